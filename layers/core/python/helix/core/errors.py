"""Every error Helix raises, in one tree grouped by who must act.

    HelixError
    ├── CallerError      the call was wrong: change it
    ├── DefinitionError  the agent or tool is wrong: change the code
    ├── ModelError       the model provider failed: wait, or choose another model
    └── OperatorError    storage or limits stand in the way: the operator acts

`code` is stable and meant for programs; the message is meant for people. Nobody branches on message text.
"""

from __future__ import annotations

from typing import ClassVar


class HelixError(Exception):
    """Base of all errors. `code` names the kind on the wire and in stored records."""

    code: ClassVar[str] = "helix_error"


# --- the caller must act ----------------------------------------------------------------------------------------


class CallerError(HelixError):
    """The call cannot be done as asked; nothing was changed."""

    code = "invalid_request"


class InvalidInputError(CallerError, ValueError):
    """An argument is outside what is accepted; the message names it and its limit."""

    code = "invalid_input"


class AgentAlreadyRunningError(CallerError):
    """The session has a running run, or another caller won the claim (HTTP 409)."""

    code = "agent_already_running"

    def __init__(self, session_id: str, run_id: str | None = None) -> None:
        self.session_id, self.run_id = session_id, run_id
        super().__init__(
            f"session {session_id!r} is already running (run {run_id!r}): wait for it, interrupt it, or use another session"
        )


class AgentNotFoundError(CallerError, LookupError):
    """No agent of that name is registered in this process."""

    code = "agent_not_found"


class AgentError(CallerError):
    """The fleet cannot do that with this agent."""

    code = "AGENT_ERROR"


class DuplicateAgentError(AgentError):
    """The id is registered with another definition: choose another id, or register with `replace=True`."""

    code = "DUPLICATE_AGENT"


class InvalidScaleError(AgentError):
    """The number of instances is outside what the agent's resources allow."""

    code = "INVALID_SCALE"


class AgentStoppedError(AgentError):
    """The agent was stopped and takes no runs: start it first."""

    code = "agent_stopped"


class RunFailedError(HelixError):
    """A run that was waited for did not complete. `reason` is the error code of its record, or its status."""

    code = "run_failed"

    def __init__(self, agent_id: str, session_id: str, run_id: str, reason: str, message: str) -> None:
        self.agent_id, self.session_id, self.run_id, self.reason = agent_id, session_id, run_id, reason
        super().__init__(f"agent {agent_id!r}, run {run_id!r}: {message}")


class ProcessNotFoundError(CallerError, LookupError):
    """No process of that id is looked after here."""

    code = "process_not_found"


class SessionNotFoundError(CallerError, LookupError):
    """No such session, or not the caller's. `prefix`: how the ids begin that the caller may choose."""

    code = "session_not_found"

    def __init__(self, session_id: str, prefix: str = "") -> None:
        self.session_id = session_id
        advice = f"choose an id that begins with {prefix!r}" if prefix else "start it with execute"
        super().__init__(f"session {session_id!r} does not exist in this store: check the id, or {advice}")


class SessionExistsError(CallerError):
    """The target of a clone or branch exists already."""

    code = "session_exists"


class RunNotFoundError(CallerError, LookupError):
    """The session has no such run."""

    code = "run_not_found"


class CheckpointNotFoundError(CallerError, LookupError):
    """The session has no such checkpoint; ids of other sessions are refused with the same words."""

    code = "checkpoint_not_found"


class CannotResumeError(CallerError):
    """Resume, retry or answer does not fit the session's status. `reason` is one of `CanResumeReason`."""

    code = "cannot_resume"

    def __init__(self, message: str, reason: str) -> None:
        self.reason = reason
        super().__init__(message)


class CallNotPendingError(CallerError, LookupError):
    """No such call waits for an answer in this session."""

    code = "call_not_pending"


class StaleStateError(CallerError):
    """The session changed since it was read: read it again and decide again."""

    code = "stale_state"


class StreamNotFoundError(CallerError, LookupError):
    """The stream does not exist, or has expired."""

    code = "stream_not_found"


class ContextTooLargeError(CallerError):
    """No model that may take the call has room for the prompt and its answer. In tokens: `needed`, both together;
    `largest`, the largest window there is; `longest`, the longest answer that any gives. 0 where nothing is known."""

    code = "context_too_large"

    def __init__(self, prompt: int, answer: int, largest: int, longest: int) -> None:
        self.needed, self.largest, self.longest = prompt + answer, largest, longest
        super().__init__(
            f"no model fits: the prompt has about {prompt} tokens and its answer may take {answer}, {self.needed} "
            f"together; the largest window is {largest} and the longest answer {longest}: shorten the conversation, ask "
            "for a shorter answer, or add a larger model"
        )


class BodyTooLargeError(CallerError):
    """The body of a request is larger than the server takes (HTTP 413)."""

    code = "body_too_large"


class NotAuthenticatedError(CallerError):
    """No proof of who asks, or it is wrong, revoked or expired; which of these is not said."""

    code = "not_authenticated"


class NotAllowedError(CallerError):
    """This needs a right that the caller's key does not give."""

    code = "not_allowed"


class ProtocolError(CallerError):
    """A message that is no request of this protocol. `field` names the first field that is wrong, if one is."""

    code = "invalid_message"

    def __init__(self, message: str, field: str | None = None) -> None:
        self.field = field
        super().__init__(message)


# --- the developer must act --------------------------------------------------------------------------------------


class DefinitionError(HelixError, ValueError):
    """A definition is wrong. `field` names what to change; raised when defined, never when run."""

    code = "invalid_definition"

    def __init__(self, owner: str, field: str, problem: str) -> None:
        self.owner, self.field, self.problem = owner, field, problem
        super().__init__(f"{owner}: {field}: {problem}")


class ToolError(HelixError):
    """Raise it in a tool to hand the model a failed result with this message."""

    code = "tool_error"


class FatalToolError(ToolError):
    """Raise it in a tool to fail the whole run; other exceptions become failed results that the model sees."""

    code = "fatal_tool_error"


class SecretNotFoundError(FatalToolError):
    """A secret that a tool needs is not where the settings say, or not declared: the message says where it belongs."""

    code = "secret_not_found"


class IllegalTransitionError(HelixError):
    """A status move that the table in `core.status` does not have: a defect in Helix or in a store."""

    code = "illegal_transition"


# --- the model provider must act ---------------------------------------------------------------------------------


class ModelError(HelixError):
    """A model call failed. `retryable` says whether the same call may succeed later; `retry_after_s` when."""

    code = "model_error"

    def __init__(self, message: str, *, retryable: bool = False, retry_after_s: float | None = None) -> None:
        self.retryable, self.retry_after_s = retryable, retry_after_s
        super().__init__(message)


class BatchFailedError(ModelError):
    """A batch had no answer for this request: it came too late, or the caller did not answer for each request."""

    code = "batch_failed"


class ScriptExhaustedError(ModelError):
    """A scripted model was asked for more answers than it was given."""

    code = "script_exhausted"


# --- the operator must act ---------------------------------------------------------------------------------------


class OperatorError(HelixError):
    """Storage or a limit stands in the way."""

    code = "operator_error"


class BudgetExceededError(OperatorError):
    """The next call's worst case does not fit what is left of a budget."""

    code = "budget_exceeded"


class QueueFullError(OperatorError):
    """As many runs of the agent wait for a slot as may (HTTP 429): nothing was changed; try again later, or raise the
    agent's limit. `queued` runs wait, and `limit` may."""

    code = "queue_full"

    def __init__(self, agent_type: str, queued: int, limit: int) -> None:
        self.agent_type, self.queued, self.limit = agent_type, queued, limit
        super().__init__(
            f"agent {agent_type!r} is busy: {queued} runs wait for a slot, and its queue holds {limit}: try again later"
        )


class StoreError(OperatorError):
    """A store could not answer; whether a write happened is unknown."""

    code = "store_error"


class ContentionError(StoreError):
    """Others write the same rows: the transaction had no turn, however often it was repeated. Nothing was written."""

    code = "contention"


class AccessDeniedError(StoreError):
    """AWS denies an operation to the role that asks: nothing was done. `action` is IAM's name of the operation, `resource`
    what it was to act on."""

    code = "access_denied"

    def __init__(self, action: str, resource: str) -> None:
        self.action, self.resource = action, resource
        super().__init__(
            f"AWS denies {action} on {resource}: grant it to the role that this process uses, then try again"
        )


class DamagedRowError(StoreError):
    """A stored row cannot be read: it was changed from outside, or by another version. The message names it."""

    code = "damaged_row"


def damaged_row(table: str, partition: str, sort: str, problem: object) -> DamagedRowError:
    """The error of one row, which it names."""
    return DamagedRowError(f"row {sort!r} of {partition!r} in table {table!r} cannot be read: {problem}")


class ObjectGoneError(StoreError):
    """An object beside the store is gone: the row that pointed to it was deleted or replaced. Read again."""

    code = "object_gone"


class ConditionFailedError(OperatorError):
    """A transaction's condition did not hold and nothing was written: read again and decide again.

    `index` is the position of the refused operation; never an error that a user sees.
    """

    code = "condition_failed"

    def __init__(self, name: str, index: int) -> None:
        self.name, self.index = name, index
        super().__init__(f"transaction {name!r}: condition of operation {index} does not hold")


class ProcessFailedError(OperatorError):
    """A worker process did not start, or died; the message has its last words."""

    code = "process_failed"


class WorkInProgressError(OperatorError):
    """A live delivery holds the step or call (`StepInProgress`, `CallInProgress` of the protocol): deliver again later.

    `until` is the holder's deadline, in Unix seconds.
    """

    code = "work_in_progress"

    def __init__(self, what: str, until: float) -> None:
        self.until = until
        super().__init__(f"{what} is held by another delivery")
