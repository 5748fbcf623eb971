"""What may be asked for in a claim: ids, texts and sizes, before anything is read or written."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from helix.core.checks import is_int
from helix.core.errors import InvalidInputError
from helix.core.json import JsonObject, check_json, check_text
from helix.core.messages import check_message
from helix.core.rows import CheckpointRow, Parent
from helix.core.spans import Trace
from helix.core.status import ClaimMode
from helix.ports.state_store import Operation
from helix.services.slot_rows import MAX_PRIORITY

MAX_REASON_BYTES = 8_000
SESSION_ID = re.compile(r"[A-Za-z0-9_.:@+=-]{1,256}")
KEY = re.compile(r"[!-~]{1,128}")


@dataclass(frozen=True, slots=True)
class Opening:
    """What a session is given when it is made; ignored for one that exists, but for `user_id`: a session of another user
    does not exist for this one."""

    user_id: str | None = None
    tags: list[str] = field(default_factory=list)
    metadata: JsonObject = field(default_factory=dict)
    parent: Parent | None = None
    ancestors: list[str] = field(default_factory=list)
    stream_id: str | None = None


@dataclass(frozen=True, slots=True)
class ClaimInput:
    """A claim as a caller asks for it. `extra` joins the transaction; it was made from the session at `version`, so the
    claim is refused with `StaleStateError` once the session has moved on. `deadline`: when the run's time is over.
    `trace`: of a sub-agent's run, `core.spans.Trace`. `priority`: of this run and those after it (None: as before). `key`:
    of the request, see `services.request_keys`; a claim under a key that has a run is refused. `made`: the session's id was
    made for this claim, so that nothing of it can be there. `point`: for `from_checkpoint`, a place of the history in place
    of a stored checkpoint."""

    mode: ClaimMode
    message: str | None = None
    state: JsonObject | None = None
    checkpoint_id: str | None = None
    metadata: JsonObject = field(default_factory=dict)
    run_id: str | None = None
    opening: Opening = field(default_factory=Opening)
    extra: list[Operation] = field(default_factory=list)
    version: int | None = None
    deadline: float | None = None
    priority: int | None = None
    trace: Trace | None = None
    key: str | None = None
    made: bool = False
    point: CheckpointRow | None = None


def check_session_id(session_id: str) -> None:
    _check_id(session_id, "session_id")


def check_run_id(run_id: str) -> None:
    _check_id(run_id, "run_id")


def _check_id(given: object, what: str) -> None:
    if not isinstance(given, str) or not SESSION_ID.fullmatch(given):
        name = repr(given[:300]) if isinstance(given, str) else type(given).__name__
        raise InvalidInputError(f"{what} {name} must have 1 to 256 letters, digits, or any of '_-.:@+='")


def check_opening(opening: Opening) -> None:
    user, tags = opening.user_id, opening.tags
    if user is not None:
        check_text(user, "user_id", 256)
        if not user:
            raise InvalidInputError("user_id is empty: leave it out, or give 1 to 256 bytes")
    if not isinstance(tags, list) or not all(isinstance(tag, str) for tag in tags):
        raise InvalidInputError("tags must be a list of texts")
    check_json(tags, "tags")
    _check_object(opening.metadata, "metadata")


def check_input(session_id: str, ask: ClaimInput) -> None:
    check_session_id(session_id)
    if ask.run_id is not None:
        check_run_id(ask.run_id)
    check_opening(ask.opening)
    _check_object(ask.metadata, "metadata")
    if ask.state is not None:
        _check_object(ask.state, "state")
    check_key(ask.key)
    priority = ask.priority
    if priority is not None and not (is_int(priority) and -MAX_PRIORITY <= priority <= MAX_PRIORITY):
        raise InvalidInputError(f"priority must be a whole number from -{MAX_PRIORITY} to {MAX_PRIORITY}")
    if ask.message is not None:
        check_message(ask.message)
    elif ask.mode in ("execute", "with_message"):
        raise InvalidInputError(f"{ask.mode!r} needs a message")


def check_key(key: str | None) -> None:
    if key is not None and not (isinstance(key, str) and KEY.fullmatch(key)):
        raise InvalidInputError("key must have 1 to 128 printable ASCII characters, without spaces")


def check_reason(reason: str | None) -> None:
    if reason is not None:
        check_text(reason, "reason", MAX_REASON_BYTES)


def _check_object(value: object, what: str) -> None:
    if not isinstance(value, dict):
        raise InvalidInputError(f"{what} must be a JSON object, not {type(value).__name__}")
    check_json(value, what)
