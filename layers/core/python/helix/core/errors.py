"""Every error that Helix raises, in one tree, grouped by who must act.

    HelixError
    ├── CallerError      The call was wrong. Change it.
    ├── DefinitionError  The agent or tool is wrong. Change the code.
    ├── ModelError       The model provider failed. Wait, or choose another model.
    └── OperatorError    Storage or a limit prevents the operation. The operator must act.

`code` is stable and meant for programs. The message is meant for people, and no code depends on its text.
"""

from __future__ import annotations

from typing import ClassVar, Final


class HelixError(Exception):
    """The base of all errors. `code` names the kind of error on the wire and in stored records."""

    code: ClassVar[str] = "helix_error"


# --- the caller must act ----------------------------------------------------------------------------------------


class CallerError(HelixError):
    """The call cannot be carried out as requested. Nothing was changed."""

    code = "invalid_request"


class InvalidInputError(CallerError, ValueError):
    """An argument is not valid. The message names the argument and its limit."""

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
    """No agent with that name is registered in this process."""

    code = "agent_not_found"


class AgentError(CallerError):
    """The fleet cannot carry out the operation on this agent."""

    code = "AGENT_ERROR"


class DuplicateAgentError(AgentError):
    """The id is registered with another definition. Choose another id, or register with `replace=True`."""

    code = "DUPLICATE_AGENT"


class InvalidScaleError(AgentError):
    """The number of instances is outside what the agent's resources allow."""

    code = "INVALID_SCALE"


class AgentStoppedError(AgentError):
    """The agent was stopped and does not accept runs. Start it first."""

    code = "agent_stopped"


class RunFailedError(HelixError):
    """A run that the caller waited for did not complete. `reason` is the error code of its record, or its status."""

    code = "run_failed"

    def __init__(self, agent_id: str, session_id: str, run_id: str, reason: str, message: str) -> None:
        self.agent_id, self.session_id, self.run_id, self.reason = agent_id, session_id, run_id, reason
        super().__init__(f"agent {agent_id!r}, run {run_id!r}: {message}")


class ProcessNotFoundError(CallerError, LookupError):
    """This supervisor has no process with that id."""

    code = "process_not_found"


class SessionNotFoundError(CallerError, LookupError):
    """The session does not exist, or belongs to another user. Ids that the caller may choose begin with `prefix`."""

    code = "session_not_found"

    def __init__(self, session_id: str, prefix: str = "") -> None:
        self.session_id = session_id
        advice = f"choose an id that begins with {prefix!r}" if prefix else "start it with execute"
        super().__init__(f"session {session_id!r} does not exist in this store: check the id, or {advice}")


class SessionExistsError(CallerError):
    """The target of a clone or branch already exists."""

    code = "session_exists"


class RunNotFoundError(CallerError, LookupError):
    """The session does not have this run."""

    code = "run_not_found"


class CheckpointNotFoundError(CallerError, LookupError):
    """The session does not have this checkpoint. Ids of other sessions' checkpoints produce the same message."""

    code = "checkpoint_not_found"


class InvalidFileError(CallerError):
    """A file is too large, or its bytes are not of a type that is accepted."""

    code = "invalid_file"


class FileMissingError(CallerError, LookupError):
    """The bytes of a file do not exist: they were never uploaded, or were deleted. Or the session that should hold the
    file does not."""

    code = "file_missing"

    def __init__(self, address: str, name: str | None = None, problem: str = "does not exist: upload it again") -> None:
        self.address, self.name = address, name
        shown = f"file {name!r}" if name else f"the file {address[:80]!r}"
        super().__init__(f"{shown} {problem}")


NOT_HELD: Final = "was not found: the session does not hold it; use a file that its messages or results name"
"""The problem of a `FileMissingError` for a file that its session does not hold."""
BYTES_DELETED: Final = "can no longer be read: its bytes were deleted"
"""The problem of a `FileMissingError` for a file that was stored once."""


class CannotResumeError(CallerError):
    """The session's status does not allow the resume, retry or answer. `reason` is one of `CanResumeReason`."""

    code = "cannot_resume"

    def __init__(self, message: str, reason: str) -> None:
        self.reason = reason
        super().__init__(message)


class CallNotPendingError(CallerError, LookupError):
    """The session has no call with this id that waits for a response."""

    code = "call_not_pending"


class StaleStateError(CallerError):
    """The session changed after it was read. Read it again and retry."""

    code = "stale_state"


class StreamNotFoundError(CallerError, LookupError):
    """The stream does not exist, or has expired."""

    code = "stream_not_found"


class ContextTooLargeError(CallerError):
    """The prompt and its answer fit into none of the available models.

    Sizes are in tokens. `needed` is the prompt plus the answer, `largest` the largest context window, and `longest` the
    longest answer of any model. `largest` and `longest` are 0 if no limit is known.
    """

    code = "context_too_large"

    def __init__(self, prompt: int, answer: int, largest: int, longest: int) -> None:
        self.needed, self.largest, self.longest = prompt + answer, largest, longest
        super().__init__(
            f"no model fits: the prompt has about {prompt} tokens and its answer may take {answer}, {self.needed} "
            f"together; the largest window is {largest} and the longest answer {longest}: shorten the conversation, ask "
            "for a shorter answer, or add a larger model"
        )


class BodyTooLargeError(CallerError):
    """The body of a request is larger than the server accepts (HTTP 413)."""

    code = "body_too_large"


class NotAuthenticatedError(CallerError):
    """The caller's credentials are missing, invalid, revoked or expired. The message does not say which."""

    code = "not_authenticated"


class NotAllowedError(CallerError):
    """The operation needs a permission that the caller's key does not grant."""

    code = "not_allowed"


class ProtocolError(CallerError):
    """The message is not a valid request of this protocol. `field` is the first invalid field, or None."""

    code = "invalid_message"

    def __init__(self, message: str, field: str | None = None) -> None:
        self.field = field
        super().__init__(message)


# --- the developer must act --------------------------------------------------------------------------------------


class DefinitionError(HelixError, ValueError):
    """A definition is not valid. `field` names the field to change. Raised when an agent or tool is defined, never
    during a run."""

    code = "invalid_definition"

    def __init__(self, owner: str, field: str, problem: str) -> None:
        self.owner, self.field, self.problem = owner, field, problem
        super().__init__(f"{owner}: {field}: {problem}")


class ToolError(HelixError):
    """Raise this in a tool, or in a check of the output, to return a failed result with this message to the model."""

    code = "tool_error"


class FatalToolError(ToolError):
    """Raise this in a tool to fail the whole run. Other exceptions become failed results that the model sees."""

    code = "fatal_tool_error"


class DependencyError(ToolError):
    """The dependencies of an agent's tools do not exist or could not be made. The next call tries again."""

    code = "dependency_failed"


class SecretNotFoundError(FatalToolError):
    """A secret that a tool needs is not declared, or does not exist where the settings point. The message says where it
    belongs."""

    code = "secret_not_found"


class IllegalTransitionError(HelixError):
    """A status change that the table in `core.status` does not allow. It is a defect in Helix or in a store."""

    code = "illegal_transition"


# --- the model provider must act ---------------------------------------------------------------------------------


class ModelError(HelixError):
    """A model call failed. `retryable`: the same call may succeed later. `retry_after_s`: the delay before a retry, if
    known."""

    code = "model_error"

    def __init__(self, message: str, *, retryable: bool = False, retry_after_s: float | None = None) -> None:
        self.retryable, self.retry_after_s = retryable, retry_after_s
        super().__init__(message)


class BatchFailedError(ModelError):
    """A batch has no answer for this request. The request came too late, or the caller did not answer every request."""

    code = "batch_failed"


class ScriptExhaustedError(ModelError):
    """A scripted model was asked for more answers than it was given."""

    code = "script_exhausted"


# --- the operator must act ---------------------------------------------------------------------------------------


class OperatorError(HelixError):
    """Storage or a limit prevents the operation."""

    code = "operator_error"


class BudgetExceededError(OperatorError):
    """The worst-case cost of the next call exceeds what remains of a budget."""

    code = "budget_exceeded"


class QueueFullError(OperatorError):
    """The agent's queue is full (HTTP 429): `queued` runs wait, and at most `limit` may wait.

    Nothing was changed. Try again later, or raise the agent's limit.
    """

    code = "queue_full"

    def __init__(self, agent_type: str, queued: int, limit: int) -> None:
        self.agent_type, self.queued, self.limit = agent_type, queued, limit
        super().__init__(
            f"agent {agent_type!r} is busy: {queued} runs wait for a slot, and its queue holds {limit}: try again later"
        )


class StoreError(OperatorError):
    """A store did not respond. It is not known whether a write took effect."""

    code = "store_error"


class ContentionError(StoreError):
    """The transaction was retried but kept conflicting with other writers of the same rows. Nothing was written."""

    code = "contention"


class AccessDeniedError(StoreError):
    """AWS denied an operation to the IAM role of this process. Nothing was done.

    `action` is the IAM name of the operation, `resource` its target.
    """

    code = "access_denied"

    def __init__(self, action: str, resource: str) -> None:
        self.action, self.resource = action, resource
        super().__init__(
            f"AWS denies {action} on {resource}: grant it to the role that this process uses, then try again"
        )


class DamagedRowError(StoreError):
    """A stored row cannot be read. Something outside Helix, or another version, changed it. The message names the
    row."""

    code = "damaged_row"


def damaged_row(table: str, partition: str, sort: str, problem: object) -> DamagedRowError:
    """Return an error whose message names the row."""
    return DamagedRowError(f"row {sort!r} of {partition!r} in table {table!r} cannot be read: {problem}")


class ObjectGoneError(StoreError):
    """An object outside the store is missing, because the row that referenced it was deleted or replaced. Read the row
    again."""

    code = "object_gone"


class ConditionFailedError(OperatorError):
    """A condition of the transaction did not hold, and nothing was written. Read the rows again and retry.

    `index` is the position of the refused operation. Users never see this error.
    """

    code = "condition_failed"

    def __init__(self, name: str, index: int) -> None:
        self.name, self.index = name, index
        super().__init__(f"transaction {name!r}: condition of operation {index} does not hold")


class ProcessFailedError(OperatorError):
    """A worker process did not start, or died. The message says why, with the last line of its log."""

    code = "process_failed"


class WorkInProgressError(OperatorError):
    """Another live delivery holds the step or call. Redeliver later.

    The protocol documentation calls it `StepInProgress` or `CallInProgress`. `until` is the holder's deadline in Unix
    seconds.
    """

    code = "work_in_progress"

    def __init__(self, what: str, until: float) -> None:
        self.until = until
        super().__init__(f"{what} is held by another delivery")
