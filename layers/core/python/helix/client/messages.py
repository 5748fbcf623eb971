"""Converts what a caller gives `HelixClient.run` into a message and the session that holds its files."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

from pydantic import ValidationError

from helix.core.damage import first_problem
from helix.core.errors import InvalidInputError
from helix.core.files import Content
from helix.core.frontend_tools import FrontendTool, GivenTool
from helix.core.initial import AgentInput
from helix.core.json import JsonObject, JsonValue
from helix.core.run_settings import GivenSettings, read_settings

_KEYS: Final = ("message", "state", "files")
"""The keys of a message that is given as a mapping."""


ANSWER_FIELDS: Final = ("approved", "data", "reason", "arguments", "round")
"""The fields of a `Confirmation` that `HelixClient.answer` takes."""


def session_of_key(key: str) -> str:
    """Return the id of the new session of a request with this idempotency key, the same in every process."""
    return f"ses_{hashlib.sha256(key.encode()).hexdigest()[:32]}"


def declared(tools: Sequence[GivenTool] | None, given: GivenSettings | None) -> JsonObject:
    """Return the fields of a request that declare the run's tools and settings. An older service does not know them, so
    each is left out if there are none. Raises `DefinitionError` for a setting that does not exist."""
    settings = read_settings(given)
    given_tools: list[JsonValue] = [
        tool.model_dump() if isinstance(tool, FrontendTool) else dict(tool) for tool in tools or ()
    ]
    fields: JsonObject = {"tools": given_tools} if given_tools else {}
    return fields | ({} if settings is None else {"settings": settings.changes})


def message_of(given: Mapping[str, Any]) -> Content | AgentInput:
    """Return the message of a mapping with the key `message`. Its files are stored already, or at a URL. Raises
    `InvalidInputError` for other keys, and for files that are not `FilePart` objects or their JSON."""
    unknown = [repr(name) for name in given if name not in _KEYS]
    if unknown:
        raise InvalidInputError(
            f"a message as a mapping has only the keys 'message', 'state' and 'files', not {', '.join(unknown)}: use the "
            "parameters of `run` for others"
        )
    if not given.get("files"):
        content: Content = given["message"]
        return content
    try:
        return AgentInput.model_validate({"message": given["message"], "files": given["files"]})
    except ValidationError as error:
        raise InvalidInputError(first_problem(error, "input")) from None
