"""The request head: everything that a model call sends besides the conversation and the model's name
(docs/protocol.md#row-head).

Law: a head is stored as a JSON text under a hash of that text, so a head that exists is never written differently. A
head may begin from another one, its base: it then has only the fields that depend on the session.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping
from functools import cached_property
from typing import Any, Final, Literal, Self

from pydantic import ConfigDict, Field

from helix.core.config import LLMConfig
from helix.core.damage import UNREADABLE, first_problem
from helix.core.errors import damaged_row
from helix.core.json import JsonObject, dumps, load_object
from helix.core.messages import Record
from helix.core.stored import Stored

SENT: Final = frozenset(
    {
        *("temperature", "top_p", "max_output_tokens", "stop", "provider_options", "strict_output"),
        *("parallel_tool_calls", "cache", "reasoning", "verbosity", "api", "adapter", "server_tools"),
    }
)
"""The fields of `LLMConfig` that change what is sent to the model, apart from its name."""
HIDDEN: Final = "(not stored)"
"""The value that takes the place of a provider option that may be a secret."""
_SECRET: Final = re.compile(
    r"(?i)key(_id)?$|token$|secret|passw|authorization|credential|cookie|headers$|base(_url)?$|endpoint$"
)
_BASE: Final = "base"


class HeadTool(Record):
    """A tool as the model was told about it."""

    model_config = ConfigDict(extra="ignore")

    name: str
    """The name by which the model calls the tool."""
    description: str = ""
    """The text that tells the model what the tool does."""
    parameters: JsonObject = Field(default_factory=dict)
    """The JSON schema of the arguments."""
    strict: bool | None = None
    """Whether the provider should constrain the arguments, as in `Tool.strict`. None: if the schema and the model allow
    it."""


class RequestHead(Record):
    """The part of a request that is not conversation."""

    model_config = ConfigDict(extra="ignore")

    system_prompt: str = ""
    """The system prompt. Empty if none was sent."""
    reminders: list[str] = Field(default_factory=list)
    """The texts of the messages at the end of the request that are not part of the history, in their order: the agent's
    reminders, and the request to finish."""
    tools: list[HeadTool] = Field(default_factory=list)
    """The tools in the order in which they were sent."""
    tool_choice: str = "auto"
    """The tool choice that was sent: `auto`, `required`, `none` or a tool's name."""
    output_schema: JsonObject | None = None
    """The JSON schema of the agent's output. None if its output is text, and for the request of a summary."""
    settings: JsonObject = Field(default_factory=dict)
    """The settings that differ from the defaults of `LLMConfig`, without the model, retries and timeouts. `cache` is
    missing if it was False. Provider options that may be secrets have the value `(not stored)`."""


class HeadRow(Stored):
    """A request head in the store."""

    kind: Literal["head"] = "head"
    """The tag of this kind of row in the store."""
    text: str
    """The JSON object with the fields of `RequestHead` that are not at their default. `base` is the id of another head,
    which has the fields that are missing here."""

    @cached_property
    def id(self) -> str:
        """The id of the head, which its key contains."""
        return head_id(self.text)

    @property
    def base(self) -> str | None:
        """The id of the head that has the other fields. None if this one has all."""
        base = (load_object(self.text) or {}).get(_BASE)
        return base if isinstance(base, str) else None

    @classmethod
    def at(cls, partition: str, sort: str, value: Any) -> Self:
        """Parse the row stored under this key. Raises `DamagedRowError`, also for a text that is not a head or that
        does not have the hash in the key."""
        row = cls.read(partition, sort, value)
        if f"q#{row.id}" != sort:
            raise damaged_row("sessions", partition, sort, "text: its hash is not that of the key")
        join_head(row, None)
        return row


def head_id(text: str) -> str:
    """Return the id of a head: the first 128 bits of the SHA-256 of its text, as 22 characters of base64url. Each answer
    stores it, so it is short."""
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()[:16]).decode().rstrip("=")


def sent_settings(config: LLMConfig) -> JsonObject:
    """Return the settings of a call for its head, without secrets."""
    settings: JsonObject = config.model_dump(mode="json", include=set(SENT) - {"cache"}, exclude_defaults=True)
    if config.cache is not False:  # what its absence meant in earlier releases
        settings["cache"] = config.cache
    if isinstance(options := settings.get("provider_options"), dict):
        settings["provider_options"] = _without_secrets(options)
    return settings


def _without_secrets(value: Any, hidden: bool = False) -> Any:
    """Return the value with `HIDDEN` in place of every scalar whose name may be that of a secret, at any depth."""
    if isinstance(value, Mapping):
        return {name: _without_secrets(item, hidden or bool(_SECRET.search(name))) for name, item in value.items()}
    if isinstance(value, list):
        return [_without_secrets(item, hidden) for item in value]
    return HIDDEN if hidden else value


def head_row(fields: JsonObject, base: HeadRow | None = None) -> HeadRow:
    """Return the row of a head. `fields`: the fields of `RequestHead` that are not at their default, and that `base` does
    not have. Raises `InvalidInputError` if they are not JSON."""
    return HeadRow(text=dumps(fields if base is None else {_BASE: base.id, **fields}))


def join_head(row: HeadRow, base: HeadRow | None) -> RequestHead:
    """Return the head that the row and its base make up. Raises `DamagedRowError` if a text is not a head."""
    fields: JsonObject = {}
    for part in filter(None, (base, row)):
        if (own := load_object(part.text)) is None:
            raise damaged_row("control", "heads", part.id, "text: it is not a JSON object")
        fields |= own
    try:
        return RequestHead.model_validate({name: value for name, value in fields.items() if name != _BASE})
    except UNREADABLE as error:
        raise damaged_row("control", "heads", row.id, f"text: {first_problem(error)}") from error
