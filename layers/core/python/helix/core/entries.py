"""The stored messages of a session in history order: user messages, answers, and tool calls with their results.

Law: a message is written once, at its final position. Only a call's row changes, until it has its result.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Self

from pydantic import Field

from helix.core.compact import StoredFile, StoredUsage
from helix.core.elsewhere import Elsewhere
from helix.core.errors import damaged_row
from helix.core.json import JsonObject, JsonValue
from helix.core.lineage import find_spans
from helix.core.lost_caches import LostCache
from helix.core.messages import (
    AnyMessage,
    AskedQuestion,
    AssistantMessage,
    CallResponse,
    Citation,
    Edit,
    EditedArguments,
    Record,
    ServerBlock,
    ThinkingContent,
    ToolCallRequest,
    ToolResultMessage,
    UserMessage,
)
from helix.core.rows import LineageRow, Pending
from helix.core.status import ResultSource
from helix.core.steps import StopReason
from helix.core.stored import AsStored, Stored
from helix.core.usage import Usage
from helix.core.verdicts import GUARDS, NO_VERDICTS, Verdict, describe_change

QUESTIONS, RESPONSES = "questions", "responses"
"""The names of a call's questions and responses in the metadata of its result: lists of `AskedQuestion` and
`CallResponse`."""


class UserRow(Stored):
    """A user's message."""

    kind: Literal["user"] = "user"
    """The tag of this kind of row in the store."""
    content: str
    """The text as the caller sent it. Empty if the message has only files."""
    files: list[StoredFile] = Field(default_factory=list)
    """The files of the message, by their place in the text, in the short form of `core.compact`. The session holds
    them."""
    run_id: str
    """The run that the message started or steered."""
    created_at: float
    """The time at which the message was added to history (Unix seconds)."""
    metadata: JsonObject = Field(default_factory=dict)
    """The JSON object that the caller sent with the message."""
    queued: str = ""
    """The id under which the message waited in the inbox. Empty if it did not wait."""


class ChildRef(Record):
    """The ids of a sub-agent's session and first run, generated when the parent's answer is staged."""

    session_id: str
    """The sub-agent's session."""
    run_id: str
    """The first run of that session. A resumed sub-agent has later runs."""
    agent_type: str
    """The name of the sub-agent."""


class AssistantRow(Stored):
    """An answer of the model, staged or already folded into history."""

    kind: Literal["assistant"] = "assistant"
    """The tag of this kind of row in the store."""
    run_id: str
    """The run that bought the answer."""
    step: int
    """The step that the answer belongs to."""
    attempt: int = 1
    """The number of the attempt that bought it, starting at 1 within the step."""
    attempt_id: str
    """The id of that attempt, from its claim (`core.session_row.StepClaim`). It names the worker or delivery that
    bought the answer."""
    content: str | None = None
    """The text of the answer, if any."""
    tool_calls: list[ToolCallRequest] = Field(default_factory=list)
    """The tool calls of the answer, in the model's order. Their ids are unique in the session."""
    thinking: list[ThinkingContent] = Field(default_factory=list)
    """The reasoning of the answer. It is sent back only to the model that produced it."""
    server_blocks: list[ServerBlock] = Field(default_factory=list)
    """The items of the provider's own tools in the answer. They are sent back only to the model that produced them."""
    citations: list[Citation] = Field(default_factory=list)
    """The sources of the answer's text. Empty without citations."""
    children: dict[str, ChildRef] = Field(default_factory=dict)
    """The sessions and first runs of sub-agents, by call id."""
    resolved: dict[str, tuple[str, bool]] = Field(default_factory=dict)
    """The (content, success) of each call of a wide step that is not executed, by call id. Empty for other steps."""
    agent: str = ""
    """The agent that answered. Empty if it is the session's own agent and was never handed over to."""
    handoff: str = ""
    """The agent that the answer hands the conversation over to. Empty if it does not."""
    finish: JsonObject | None = None
    """`{"output": ...}` if the answer contains a valid `__finish__`. None otherwise."""
    stop_reason: str | None = None
    """The reason why the model stopped (`core.steps.StopReason`). `interrupted`: a stop cut the answer off. None if the
    provider gave none."""
    model: str | None = None
    """The model that answered. None if it is not known."""
    head: str = ""
    """The id of the request head that was sent (docs/protocol.md#row-head). Empty in rows of earlier versions, and for a
    function agent."""
    output_limit: int | None = None
    """The maximum number of tokens in the answer, if budgets set it. None: the head has the agent's limit, if any."""
    cached: bool = False
    """Whether the answer came from the response cache, without a model call."""
    without_reasoning: bool = False
    """Whether the provider rejected the earlier reasoning. Later steps omit it too."""
    view: int = 0
    """The session version in the key of the view under which the model was asked. 0: it was shown the whole history."""
    phase: str | None = None
    """OpenAI's label for the kind of text, `commentary` or `final_answer`, which must be sent back. None for other
    models."""
    verdicts: list[Verdict] = NO_VERDICTS
    """The verdicts of the agent's guards on the new user messages before this answer, on its calls and on its text or
    output. Empty without guards."""
    usage: StoredUsage = Usage()
    """The usage of the model call, including failed attempts. Zero for a cached answer."""
    lost_cache: AsStored[LostCache] | None = None
    """The reason why the provider's cache did not have the prompt, `usage.lost_tokens` of it. None if it had it, or if
    nothing was expected (`core.lost_caches`)."""
    created_at: float = 0
    """The time at which the answer was stored (Unix seconds)."""

    @property
    def is_cut(self) -> bool:
        """Whether an interrupt cut the answer off. The row of its attempt then has what is known of the usage."""
        return self.stop_reason == StopReason.INTERRUPTED


class CallRow(Stored):
    """A tool call and, once it is `done`, its result message. A call without a row has not been claimed by a worker
    yet."""

    kind: Literal["call"] = "call"
    """The tag of this kind of row in the store."""
    call_id: str
    """The id of the call, unique in its session."""
    tool_name: str
    """The tool that the model called."""
    step: int
    """The step that the call belongs to."""
    state: Literal["asked", "approved", "claimed", "done"]
    """`asked` (the call waits for a person, a client or another system), `approved` (it has its approval, or the answers to
    its questions, or a result that guards have not judged yet), `claimed` or `done`."""
    inline: bool = False
    """Whether the function that called the model also executes this call, where functions execute calls."""
    ask: Literal["approval", "client", "unknown", "question", "elsewhere"] | None = None
    """The response that an `asked` call waits for: an `approval`, the `client`'s result, a decision about an `unknown`
    outcome, the answers to the tool's questions, or a result from `elsewhere`. None in other states."""
    later: Elsewhere | None = None
    """The tokens with which another system ends the call. None if the tool did not call `ctx.later`."""
    questions: list[AskedQuestion] = Field(default_factory=list)
    """The questions that the tool asked so far, with their answers. Without an answer, a question is open."""
    responses: list[CallResponse] = Field(default_factory=list)
    """The approvals, denials, results and rulings that people and clients gave, oldest first. The answers to questions are
    in `questions`."""
    reason: str | None = None
    """Why the tool's rule or a guard requires approval. None if no reason was given."""
    edited: EditedArguments | None = None
    """The arguments that a person or a guard put in place of the model's. None if the model's are used."""
    owner: str | None = None
    """The holder of the claim: a worker, a delivery, or the sub-agent's session. None while the call waits for a
    person or another system, and after a heartbeat was missing, until a worker executes the call again."""
    claim: int = 0
    """The number of the last claim, a fencing token against earlier holders. 0 if never claimed. Asking about an
    unknown outcome also takes the next number."""
    run_id: str | None = None
    """The run that the claim belongs to, or that settled the call."""
    deadline: float | None = None
    """The time when the claim expires, or when an `asked` call has waited long enough (Unix seconds). None for a
    sub-agent's call, which ends when the sub-agent does, and for a call that waits forever."""
    on_timeout: Literal["deny", "fail", "default"] = "deny"
    """The policy for an `asked` call at its deadline. `deny` fails the call, `fail` also the run, and `default` gives the
    questions their default answers."""
    remind_at: list[float] = Field(default_factory=list)
    """The times of the reminders to come of an `asked` call, earliest first (Unix seconds)."""
    reminded: int = 0
    """The number of reminders that were recorded while the call waited."""
    reminded_at: float | None = None
    """The time of the last one (Unix seconds). None without reminders."""
    deaths: int = 0
    """The number of workers that died while executing the call. After three deaths the call is not started again."""
    released: bool = False
    """Whether the last holder gave up the call in an orderly way, because it drained or failed by itself. The expiry of
    its claim does not count as a death."""
    confirmation: JsonObject | None = None
    """The data that a person supplied with the approval. The tool reads it as `ctx.confirmation`."""
    content: str | None = None
    """The text of the result. None until the call is `done`, unless guards have not judged the result yet, or another
    system has ended the call while its tool still runs."""
    files: list[StoredFile] = Field(default_factory=list)
    """The files that the tool returned, by their place in `content`, in the short form of `core.compact`. The session
    holds them."""
    success: bool | None = None
    """Whether the call succeeded. None until it has `content`."""
    plain: bool = False
    """Whether `content` is a string that the tool returned verbatim. Other results are JSON."""
    fatal: bool = False
    """Whether the result makes the run fail."""
    by: AsStored[ResultSource] | None = None
    """The source of the result. `tool`: the tool. `answer`: a person or a client. `plan`: the framework refused or
    settled the call without executing it. `policy`: the outcome is unknown, or too many workers died. `close`: the run
    ended before the call ran. `child`: the sub-agent. `merge`: the fold rejected the call's state changes. None until
    the call is `done`, except for a result of its tool that guards have not judged yet."""
    patches: list[JsonObject] = Field(default_factory=list)
    """The RFC 6902 operations that the tool made on the custom state."""
    verdicts: list[Verdict] = NO_VERDICTS
    """The verdicts of the agent's guards on the result. Those on the call itself are in the answer's row."""
    usage: StoredUsage | None = None
    """The usage of model calls inside the tool and its guards, or of all runs of the sub-agent. None if nothing was
    reported."""
    child: ChildRef | None = None
    """The ids of the sub-agent that executes the call. None for other tools."""
    ended_at: float | None = None
    """The time at which the result was stored (Unix seconds). None without a result, and while guards have not judged
    it."""

    @property
    def is_unjudged(self) -> bool:
        """Whether the call has a result that guards must judge before it is final."""
        return self.state != "done" and self.content is not None and self.ended_at is None

    def ended(self, content: str, success: bool, by: ResultSource, now: float, **more: Any) -> Self:
        """Return the row of the call with its result. `more`: other fields that change with it."""
        changes = {"state": "done", "content": content, "success": success, "by": by, "ended_at": now}
        return self.model_copy(update={**changes, **more})


def pending_of(row: CallRow) -> Pending:
    """Return the pending response of a call in the state `asked`, as it is stored."""
    pending = Pending(call_id=row.call_id, tool_name=row.tool_name, kind=row.ask or "approval", reason=row.reason)
    pending = pending.model_copy(
        update={"expires_at": row.deadline, "remind_at": row.remind_at[0] if row.remind_at else None}
        | {"reminded": row.reminded}
        | ({"round": row.claim} if row.ask == "question" else {})
    )
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
    """Parse the message stored under this key. Raises `DamagedRowError`."""
    kind = value.get("kind", "call")
    if not isinstance(kind, str) or kind not in _KINDS:
        raise damaged_row("sessions", partition, sort, f"kind: {kind!r} is not a kind of message")
    return _KINDS[kind].read(partition, sort, value)


def entry_value(entry: AnyEntry) -> dict[str, Any]:
    """Return the stored form. It includes `kind` even though that is a default, because readers select the model by
    it."""
    return {"kind": entry.kind, **entry.dump()}


def message_of(entry: AnyEntry, lineage: int, index: int) -> UserMessage | AssistantMessage | ToolResultMessage:
    """Convert a row to its message. The message id encodes its position, so it is unique in the session and the same in
    every read."""
    ident = f"msg_{lineage}_{index}"
    match entry:
        case UserRow():
            return UserMessage(
                id=ident,
                run_id=entry.run_id,
                content=entry.content,
                files=entry.files,
                created_at=entry.created_at,
                metadata=entry.metadata,
                queued_id=entry.queued,
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
                server_blocks=entry.server_blocks,
                citations=entry.citations,
                metadata={"model": entry.model, "stop_reason": entry.stop_reason}
                | ({"cached": True} if entry.cached else {})
                | ({"without_reasoning": True} if entry.without_reasoning else {})
                | ({"phase": entry.phase} if entry.phase else {})
                | ({"lost_cache": entry.lost_cache} if entry.lost_cache else {})
                | ({"agent": entry.agent} if entry.agent else {})
                | ({"handoff": entry.handoff} if entry.handoff else {})
                | _shown(entry.verdicts),
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
                files=entry.files,
                success=bool(entry.success),
                metadata=({} if entry.edited is None else {"edited": entry.edited.model_dump(mode="json")})
                | _waits(entry)
                | _shown(entry.verdicts),
            )


def _waits(row: CallRow) -> JsonObject:
    """Return the metadata of a call that waited for people: its questions, the responses and the number of reminders."""
    asked: list[JsonValue] = [one.model_dump(mode="json", exclude_defaults=True) for one in row.questions]
    given: list[JsonValue] = [one.model_dump(mode="json") for one in row.responses]
    both: JsonObject = {QUESTIONS: asked, RESPONSES: given, "reminded": row.reminded}
    return {name: value for name, value in both.items() if value}


def read_waits(message: ToolResultMessage) -> tuple[list[AskedQuestion], list[CallResponse]]:
    """Return the questions and responses in the metadata of a result."""
    asked, given = message.metadata.get(QUESTIONS), message.metadata.get(RESPONSES)
    return (
        [AskedQuestion.model_validate(one) for one in asked] if isinstance(asked, list) else [],
        [CallResponse.model_validate(one) for one in given] if isinstance(given, list) else [],
    )


def _shown(verdicts: Sequence[Verdict]) -> JsonObject:
    """Return the metadata of a judged message. A value that every guard allowed has no such metadata. `error`: what readers
    show in place of a withheld message or output."""
    shown: list[JsonValue] = [
        {**verdict.shown(), **({"error": describe_change(verdict)} if verdict.withholds else {})}
        for verdict in verdicts
        if verdict.verdict != "allow"
    ]
    return {GUARDS: shown} if shown else {}


def active_agent(entries: Sequence[AnyEntry]) -> str:
    """Return the name of the agent that is active after this history: the target of its last handoff. Empty without
    one: the session's own agent."""
    answers = (entry.handoff for entry in reversed(entries) if isinstance(entry, AssistantRow) and entry.handoff)
    return next(answers, "")


def messages_of(row: LineageRow, start: int, entries: Sequence[AnyEntry]) -> list[AnyMessage]:
    """Convert consecutive rows to their messages. `start`: the index in the lineage of the first."""
    spans = find_spans(row, start, start + len(entries))
    owners = [owner for owner, first, end in spans for _ in range(first, end)]
    return [message_of(e, owner, start + i) for i, (e, owner) in enumerate(zip(entries, owners, strict=True))]
