"""Errors on the wire: what a caller may see of an error, and how the client raises the same error again.

Law: caller errors, exceeded budgets and full queues are sent with their message. For any other error, only the code
leaves the service; its message may name tables, files or models and stays in the log. Exceptions that Helix does not
define are sent as `internal_error`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from helix.core.elsewhere import CallEndedError, InvalidCallTokenError
from helix.core.errors import (
    AccessDeniedError,
    AgentAlreadyRunningError,
    AgentNotFoundError,
    BodyTooLargeError,
    BudgetExceededError,
    CallerError,
    CannotResumeError,
    DefinitionError,
    FileMissingError,
    HelixError,
    ModelError,
    NotAuthenticatedError,
    OperatorError,
    ProtocolError,
    QueueFullError,
    RunNotFoundError,
    SessionNotFoundError,
    StaleStateError,
    StoreError,
    StreamNotFoundError,
)
from helix.core.frontend_tools import FrontendToolError as FrontendToolError  # its code is looked up below
from helix.core.inbox import InboxFullError, MessageWithdrawnError
from helix.core.json import JsonObject, clean_text

INTERNAL = "internal_error"
_DETAILS = ("session_id", "run_id", "reason", "field", "agent_type", "queued", "limit")
_AGAIN = (AgentAlreadyRunningError, StaleStateError, NotAuthenticatedError, QueueFullError, InboxFullError)
_MADE: Mapping[type[HelixError], Mapping[str, Any]] = {
    AgentAlreadyRunningError: {"session_id": "", "run_id": None},
    SessionNotFoundError: {"session_id": ""},
    QueueFullError: {"agent_type": "", "queued": 0, "limit": 0},
    AccessDeniedError: {"action": "", "resource": ""},
    FileMissingError: {"address": "", "name": None},
    InboxFullError: {},
    MessageWithdrawnError: {},
}
"""Errors that build their message from fields, with default values for these fields."""
MAX_MESSAGE = 2_000
_HTTP: Mapping[type[BaseException], int] = {
    NotAuthenticatedError: 401,
    SessionNotFoundError: 404,
    AgentNotFoundError: 404,
    RunNotFoundError: 404,
    StreamNotFoundError: 404,
    FileMissingError: 404,
    InvalidCallTokenError: 403,
    AgentAlreadyRunningError: 409,
    CallEndedError: 409,
    InboxFullError: 409,
    StaleStateError: 409,
    BodyTooLargeError: 413,
    QueueFullError: 429,
}


class RemoteError(HelixError):
    """A service failure of which only the code is known (`remote_code`). `recoverable`: a retry may succeed."""

    code: ClassVar[str] = INTERNAL

    def __init__(self, message: str, remote_code: str = INTERNAL, recoverable: bool = True) -> None:
        self.remote_code, self.recoverable = remote_code, recoverable
        super().__init__(message)


def http_status(error: BaseException) -> int:
    """Return the HTTP status code for an error."""
    return _HTTP.get(type(error)) or (400 if isinstance(error, CallerError) else 500)


def refusal_of(error: BaseException) -> JsonObject:
    """Return the public form of an error, `{"code", "message", "recoverable", "details"}`.

    `recoverable`: the same request may succeed later, or after the connection has authenticated again.
    """
    details = {name: value for name in _DETAILS if isinstance(value := getattr(error, name, None), str | int)}
    if isinstance(error, FileMissingError):
        details |= {"address": error.address} | ({} if error.name is None else {"name": error.name})
    match error:
        case CallerError() | BudgetExceededError() | QueueFullError():
            again, message = isinstance(error, _AGAIN), str(error)
        case OperatorError():
            again, message, details = True, "the service could not do this now: try again", {}
        case ModelError():
            again, message, details = error.retryable, "the model failed: try again later", {}
        case HelixError():
            again, message, details = False, "the agent or its tools are defined wrongly: its developer must act", {}
        case _:
            again, message, details = True, "the service failed: its log has the details under this request's id", {}
    code = error.code if isinstance(error, HelixError) else INTERNAL
    reported: JsonObject = {"code": code, "message": clean_text(message[:MAX_MESSAGE]), "recoverable": again}
    clean: JsonObject = {
        name: clean_text(value) if isinstance(value, str) else value for name, value in details.items()
    }
    return reported | {"details": clean}


def error_of(refusal: Mapping[str, Any]) -> HelixError:
    """Recreate the error of a refusal: an instance of the class with its code, or a `RemoteError` if there is no such
    class.

    Classes that need more than a message, such as `ConditionFailedError`, also become a `RemoteError`.
    """
    code, message = str(refusal.get("code", INTERNAL)), str(refusal.get("message", "the service failed"))
    details = refusal.get("details")
    known: Mapping[str, Any] = details if isinstance(details, dict) else {}
    cls = _BY_CODE.get(code)
    if cls is None or not issubclass(cls, CallerError | BudgetExceededError | QueueFullError | StoreError):
        return RemoteError(message, code, bool(refusal.get("recoverable", True)))
    if issubclass(cls, CannotResumeError):
        return cls(message, str(known.get("reason", "")))
    if issubclass(cls, ProtocolError):
        return cls(message, known.get("field"))
    if cls in _MADE:
        made = cls.__new__(cls)
        made.args = (message,)
        vars(made).update({name: known.get(name, nothing) for name, nothing in _MADE[cls].items()})
        return made
    return cls(message)  # type: ignore[call-arg]


def _subclasses_of(cls: type[HelixError]) -> Iterator[type[HelixError]]:
    for sub in cls.__subclasses__():
        yield sub
        yield from _subclasses_of(sub)


_BY_CODE = {  # a code belongs to the class that defines it, not to a subclass that inherits it
    cls.code: cls
    for cls in _subclasses_of(HelixError)
    if "code" in vars(cls) and cls not in (RemoteError, DefinitionError)
}
