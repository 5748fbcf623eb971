"""The stored messages of a session, in the order of history: users', answers, calls with their results.

Law: a message is written once, at its final place; a call's row changes until it has its result.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from helix.core.compact import StoredUsage
from helix.core.errors import damaged_row
from helix.core.json import JsonObject
from helix.core.messages import (
    AssistantMessage,
    Edit,
    EditedArguments,
    Record,
    ThinkingContent,
    ToolCallRequest,
    ToolResultMessage,
    UserMessage,
)
from helix.core.rows import AsStored, Pending, Stored
from helix.core.status import ResultSource
from helix.core.usage import Usage


class UserRow(Stored):
    kind: Literal["user"] = "user"
    content: str
    run_id: str
    created_at: float
    metadata: JsonObject = Field(default_factory=dict)


class ChildRef(Record):
    """Ids of a sub-agent's session and first run, minted when the parent's answer was staged."""

    session_id: str
    run_id: str
    agent_type: str


class AssistantRow(Stored):
    """A staged or folded answer. `finish` is set where a valid `__finish__` came with it. `resolved`: by id,
    (content, success) of the calls of a wide step that are not executed. `without_reasoning`: the provider refused the
    reasoning before it, which later steps leave out. `phase`: OpenAI's word for the text, which it wants back."""

    kind: Literal["assistant"] = "assistant"
    run_id: str
    step: int
    attempt: int = 1
    attempt_id: str
    content: str | None = None
    tool_calls: list[ToolCallRequest] = Field(default_factory=list)
    thinking: list[ThinkingContent] = Field(default_factory=list)
    children: dict[str, ChildRef] = Field(default_factory=dict)
    resolved: dict[str, tuple[str, bool]] = Field(default_factory=dict)
    finish: JsonObject | None = None
    stop_reason: str | None = None
    model: str | None = None
    cached: bool = False
    without_reasoning: bool = False
    phase: str | None = None
    usage: StoredUsage = Usage()
    created_at: float = 0


class CallRow(Stored):
    """A tool call's ledger row, and once `done` its result message.

    state: `asked` (waits for a person), `approved`, `claimed`, `done`; no row means that nobody took the call yet.
    leased: claimed by an in-process worker: the claim is dead once its run is no longer the session's. Otherwise it is
        dead after `deadline` (Unix seconds).
    deaths: how many workers have died so far while they executed the call.
    released: the last holder ended in order, by a drain or a failure of its own: its lapsed claim is no death.
    plain: `content` is a text that the tool returned as such; other results are JSON.
    inline: executed by the function that asked the model, where functions execute.
    reason: why an approval is asked for, where the tool's rule says it.
    edited: the arguments that a person approved in place of the model's.
    by: who gave the result: `tool`, `answer`, `plan` (refused when the answer was staged), `policy` (unknown outcome),
        `close` (the run ended before it ran), `child`, `merge` (the fold refused its
        changes of the state).
    """

    kind: Literal["call"] = "call"
    call_id: str
    tool_name: str
    step: int
    state: Literal["asked", "approved", "claimed", "done"]
    leased: bool = False
    inline: bool = False
    ask: Literal["approval", "client", "unknown"] | None = None
    reason: str | None = None
    edited: EditedArguments | None = None
    owner: str | None = None
    claim: int = 0
    run_id: str | None = None
    deadline: float | None = None
    deaths: int = 0
    released: bool = False
    confirmation: JsonObject | None = None
    content: str | None = None
    success: bool | None = None
    plain: bool = False
    fatal: bool = False
    by: AsStored[ResultSource] | None = None
    patches: list[JsonObject] = Field(default_factory=list)
    usage: StoredUsage | None = None
    child: ChildRef | None = None
    ended_at: float | None = None


def pending_of(row: CallRow) -> Pending:
    """What an asked call waits for."""
    pending = Pending(call_id=row.call_id, tool_name=row.tool_name, kind=row.ask or "approval", reason=row.reason)
    if row.edited is None:
        return pending
    edit = Edit(by=row.edited.by, at=row.edited.at)
    return pending.model_copy(update={"edited": edit, "arguments": row.edited.arguments})


AnyEntry = UserRow | AssistantRow | CallRow
_KINDS: dict[str, type[UserRow | AssistantRow | CallRow]] = {
    "user": UserRow,
    "assistant": AssistantRow,
    "call": CallRow,
}


def parse_entry(partition: str, sort: str, value: dict[str, Any]) -> AnyEntry:
    """The message as stored under this key. Raises `DamagedRowError`."""
    kind = value.get("kind", "call")
    if not isinstance(kind, str) or kind not in _KINDS:
        raise damaged_row("sessions", partition, sort, f"kind: {kind!r} is not a kind of message")
    return _KINDS[kind].read(partition, sort, value)


def entry_value(entry: AnyEntry) -> dict[str, Any]:
    """The stored form; `kind` is kept although it is a default, because readers choose the model by it."""
    return {"kind": entry.kind, **entry.dump()}


def message_of(entry: AnyEntry, lineage: int, index: int) -> UserMessage | AssistantMessage | ToolResultMessage:
    """The message that a row is. Ids name the place: unique in the session, and the same in every read."""
    ident = f"msg_{lineage}_{index}"
    match entry:
        case UserRow():
            return UserMessage(
                id=ident,
                run_id=entry.run_id,
                content=entry.content,
                created_at=entry.created_at,
                metadata=entry.metadata,
            )
        case AssistantRow():
            return AssistantMessage(
                id=ident,
                run_id=entry.run_id,
                step=entry.step,
                created_at=entry.created_at,
                content=entry.content,
                tool_calls=entry.tool_calls,
                thinking=entry.thinking,
                metadata={"model": entry.model, "stop_reason": entry.stop_reason}
                | ({"cached": True} if entry.cached else {})
                | ({"without_reasoning": True} if entry.without_reasoning else {})
                | ({"phase": entry.phase} if entry.phase else {}),
            )
        case CallRow():
            return ToolResultMessage(
                id=ident,
                run_id=entry.run_id,
                step=entry.step,
                created_at=entry.ended_at,
                tool_call_id=entry.call_id,
                tool_name=entry.tool_name,
                content=entry.content or "",
                success=bool(entry.success),
                metadata={} if entry.edited is None else {"edited": entry.edited.model_dump(mode="json")},
            )
