"""What may be asked for in a claim: ids, texts and sizes, before anything is read or written."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from helix.core.checks import is_int
from helix.core.errors import InvalidInputError
from helix.core.json import size, text_size
from helix.ports.slots import MAX_PRIORITY

if TYPE_CHECKING:
    from helix.engine.claims import ClaimInput, Opening

SESSION_ID = re.compile(r"[A-Za-z0-9_.:@+=-]{1,256}")
MAX_MESSAGE_BYTES = 1_000_000


def check_session_id(session_id: str) -> None:
    if not isinstance(session_id, str) or not SESSION_ID.fullmatch(session_id):
        raise InvalidInputError(f"session_id {session_id!r} must have 1 to 256 letters, digits, or any of '_-.:@+='")


def check_opening(opening: Opening) -> None:
    user, tags = opening.user_id, opening.tags
    if user is not None and not (isinstance(user, str) and 1 <= text_size(user) <= 256):
        raise InvalidInputError(f"user_id {user!r} must be a text of 1 to 256 bytes")
    if not isinstance(tags, list) or not all(isinstance(tag, str) for tag in tags):
        raise InvalidInputError(f"tags {tags!r} must be a list of texts")
    if not isinstance(opening.metadata, dict):
        raise InvalidInputError(f"metadata {opening.metadata!r} must be a JSON object")
    size([tags, opening.metadata])


def check_input(session_id: str, ask: ClaimInput) -> None:
    check_session_id(session_id)
    check_opening(ask.opening)
    size(ask.metadata)
    priority = ask.priority
    if priority is not None and not (is_int(priority) and -MAX_PRIORITY <= priority <= MAX_PRIORITY):
        raise InvalidInputError(f"priority {priority!r} must be a whole number from -{MAX_PRIORITY} to {MAX_PRIORITY}")
    if ask.message is not None:
        if not isinstance(ask.message, str) or not ask.message.strip():
            raise InvalidInputError("message is empty: say what the agent should do")
        if (n := text_size(ask.message)) > MAX_MESSAGE_BYTES:
            raise InvalidInputError(f"message has {n} bytes; the limit is {MAX_MESSAGE_BYTES}")
    elif ask.mode in ("execute", "with_message"):
        raise InvalidInputError(f"{ask.mode!r} needs a message")
