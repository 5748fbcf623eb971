"""The input of a claim, whose ids, strings and sizes are checked before anything is read or written."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from helix.core.checks import is_int
from helix.core.errors import InvalidInputError
from helix.core.files import FilePart
from helix.core.inbox import WhenRunning, check_when_running
from helix.core.json import JsonObject, check_json, check_text
from helix.core.messages import check_message
from helix.core.request_heads import HeadRow
from helix.core.rows import CheckpointRow
from helix.core.session_row import Parent
from helix.core.spans import Trace
from helix.core.status import ClaimMode
from helix.ports.state_store import Check, Operation
from helix.services.slot_rows import MAX_PRIORITY

MAX_REASON_BYTES = 8_000
SESSION_ID = re.compile(r"[A-Za-z0-9_.:@+=-]{1,256}")
KEY = re.compile(r"[!-~]{1,128}")


@dataclass(frozen=True, slots=True)
class Opening:
    """The values that a claim gives to a session that it creates. If the session exists, only `user_id` is used: a
    session of another user counts as missing."""

    user_id: str | None = None
    """The owner of the session, 1 to 256 bytes. None for a session without an owner."""
    tags: list[str] = field(default_factory=list)
    """The labels from the session's creator. A sub-agent's session gets those of its parent."""
    metadata: JsonObject = field(default_factory=dict)
    """The JSON object from the session's creator. A sub-agent's session gets that of its parent."""
    parent: Parent | None = None
    """For a sub-agent: the session, run and call for which it works. None for a root session."""
    ancestors: list[str] = field(default_factory=list)
    """The agents above a sub-agent, starting with the root's. Empty for a root session."""
    stream_id: str | None = None
    """The stream to which the chunks go. None for the session's own stream; a sub-agent writes to its root's stream."""


@dataclass(frozen=True, slots=True)
class ClaimInput:
    """A claim as a caller requests it."""

    mode: ClaimMode
    """The kind of claim, which determines where the run continues (docs/protocol.md#claim-modes)."""
    message: str | None = None
    """The user's message. The modes `execute` and `with_message` need one."""
    state: JsonObject | None = None
    """The caller's custom state, which is merged into the session's state. None to leave the state unchanged."""
    checkpoint_id: str | None = None
    """The checkpoint to rewind to. The mode `from_checkpoint` needs it, unless `point` is given."""
    files: list[FilePart] = field(default_factory=list)
    """The files of the user's message, which the session holds."""
    holds: list[Check] = field(default_factory=list)
    """The conditions that the session still holds `files` (`HeldParts.checks`), one for each stored file. The claim's
    transaction includes them."""
    metadata: JsonObject = field(default_factory=dict)
    """The metadata of the user's message."""
    run_id: str | None = None
    """The id of the new run. None if the claim should generate one; a sub-agent's first run gets its id from the
    parent's answer."""
    opening: Opening = field(default_factory=Opening)
    """The values for a session that this claim creates."""
    extra: list[Operation] = field(default_factory=list)
    """The operations to add to the claim's transaction. They are based on the session at `version`."""
    version: int | None = None
    """The session version that the claim requires, or 0 if the session must not exist. Otherwise, the claim raises
    `StaleStateError`. None for any version."""
    deadline: float | None = None
    """The time (Unix seconds) when the parent's call stops waiting for a sub-agent's run. None for no limit."""
    priority: int | None = None
    """The queue priority, from -999 to 999, of this run and later ones. None keeps the session's priority."""
    trace: Trace | None = None
    """The trace to which the spans of a sub-agent's run belong. None for a trace of its own."""
    key: str | None = None
    """The key of the request (`services.request_keys`). A claim is refused if its key already has a run. None for no
    key."""
    when_running: WhenRunning = "refuse"
    """The handling of the message if the session is running. The claim itself is refused then."""
    tools: HeadRow | None = None
    """The tools that the run declares (`core.declared_tools`). None: a run with a message has none, and a run without one
    keeps those of the run that it continues."""
    queued: str = ""
    """The id under which the message waited in the inbox. Empty if it did not wait."""
    inbox: bool = False
    """Whether other messages wait in the inbox, which the run has to take."""
    made: bool = False
    """Whether the session's id was generated for this claim. If so, none of the session's rows can exist, and nothing
    is read."""
    point: CheckpointRow | None = None
    """For `from_checkpoint`: a position in the history to use instead of a stored checkpoint. None to use
    `checkpoint_id`."""


def check_session_id(session_id: str) -> None:
    _check_id(session_id, "session_id")


def check_run_id(run_id: str) -> None:
    _check_id(run_id, "run_id")


def _check_id(given: object, what: str) -> None:
    if not isinstance(given, str) or not SESSION_ID.fullmatch(given):
        name = repr(given[:300]) if isinstance(given, str) else type(given).__name__
        raise InvalidInputError(f"{what} {name} must have 1 to 256 letters, digits, or any of '_-.:@+='")


def check_branch(branch: object) -> None:
    if not isinstance(branch, Mapping) or not {"from_session_id"} <= set(branch) <= {
        "from_session_id",
        "checkpoint_id",
    }:
        raise InvalidInputError("branch must have from_session_id, and may have checkpoint_id, and nothing else")


def check_opening(opening: Opening) -> None:
    user, tags = opening.user_id, opening.tags
    if user is not None:
        check_text(user, "user_id", 256)
        if not user:
            raise InvalidInputError("user_id is empty: leave it out, or give 1 to 256 bytes")
    if not isinstance(tags, list) or not all(isinstance(tag, str) for tag in tags):
        raise InvalidInputError("tags must be a list of strings")
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
    check_when_running(ask.when_running)
    if ask.state is not None and ask.when_running != "refuse":
        raise InvalidInputError("a message with state cannot wait: leave state out, or use when_running='refuse'")
    priority = ask.priority
    if priority is not None and not (is_int(priority) and -MAX_PRIORITY <= priority <= MAX_PRIORITY):
        raise InvalidInputError(f"priority must be a whole number from -{MAX_PRIORITY} to {MAX_PRIORITY}")
    if ask.message is not None:
        check_message(ask.message, ask.files)
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
