"""What a tool may ask of the run it is part of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol

from typing_extensions import TypeVar

from helix.core.errors import InvalidInputError, SecretNotFoundError
from helix.core.json import JsonObject, JsonValue, check_json, check_text
from helix.core.tracker import StateTracker
from helix.core.usage import Usage

StateT = TypeVar("StateT", default=Any)
MAX_EVENT_BYTES = 100_000
MAX_EVENT_NAME_BYTES = 256


class Emit(Protocol):
    def __call__(self, event_name: str, data: JsonValue) -> None: ...


def check_event(event_name: str, data: JsonValue) -> None:
    """Raise `InvalidInputError` unless the event can go on the stream."""
    check_text(event_name, "event_name", MAX_EVENT_NAME_BYTES)
    if not event_name:
        raise InvalidInputError("event_name is empty: name the event")
    check_json(data, f"data of event {event_name!r}", MAX_EVENT_BYTES)


def _nobody(event_name: str, data: JsonValue) -> None:
    return None


def _never() -> bool:
    return False


Secrets = Callable[[str], str]
"""The text of the secret of that name. Raises `SecretNotFoundError`."""


def secrets_of(texts: Mapping[str, str], advice: str) -> Secrets:
    """From a mapping; `advice` says how a secret gets into it."""

    def read(name: str) -> str:
        if not (text := texts.get(name, "")):
            raise SecretNotFoundError(f"there is no secret {name!r}: {advice}")
        return text

    return read


NO_SECRETS = secrets_of({}, "give it to create_tool_context(secrets={...})")


@dataclass(slots=True)
class ToolContext(Generic[StateT]):
    """Given to a tool's parameter annotated `ToolContext[State]`.

    `idempotency_key` is the same in every execution of this call, in any process: hand it to systems that accept one.
    `confirmation` is the data of the person who approved the call, if any. `agent_id` is the session id.
    """

    session_id: str
    run_id: str
    agent_type: str
    step: int
    tool_call_id: str
    tool_name: str
    idempotency_key: str
    tracker: StateTracker[StateT]
    confirmation: JsonObject | None = None
    usage: list[Usage] = field(default_factory=list)
    _emit: Emit = _nobody
    _cancelled: Callable[[], bool] = _never
    _secrets: Secrets = field(default=NO_SECRETS, repr=False)

    @property
    def agent_id(self) -> str:
        return self.session_id

    def get_state(self) -> StateT:
        """A copy of this tool's view: the step's base state plus this tool's own writes. Siblings are not visible."""
        return self.tracker.get_state()

    def update_state(self, change: Callable[[StateT], Any]) -> StateT:
        """Change a draft; on an exception or a state that fails the schema, nothing changes and the error is raised."""
        return self.tracker.update(change)

    def draft(self) -> AbstractContextManager[StateT]:
        """`with ctx.draft() as state:` validates and records the change on exit, rolls it back on an exception."""
        return self.tracker.draft()

    def emit(self, event_name: str, data: JsonValue = None) -> None:
        """Put a `custom` chunk on the stream. `data` is JSON of at most 100,000 bytes, else `InvalidInputError`."""
        check_event(event_name, data)
        self._emit(event_name, data)

    def cancelled(self) -> bool:
        """True once the run was asked to stop (at most 1 s late). Long tools should look."""
        return self._cancelled()

    def secret(self, name: str) -> str:
        """The text of a secret: deployed, from where `[tool.helix.secrets]` says; in process, the environment variable of
        that name. Read it in each call, because a secret changes when it is rotated. A missing one fails the run."""
        return self._secrets(name)

    def record_usage(self, usage: Usage) -> None:
        """Add what this tool itself used (an embedding, say) to the run's usage and cost."""
        self.usage.append(usage)


def idempotency_key(session_id: str, lineage: int, tool_call_id: str) -> str:
    """The name of a call in the world: ids of calls are unique in a lineage of their session."""
    return f"{session_id}/{lineage}/{tool_call_id}"


def create_tool_context(
    *,
    agent_id: str,
    agent_type: str,
    state_tracker: StateTracker[StateT] | None = None,
    run_id: str = "run_test",
    step: int = 1,
    tool_call_id: str = "call_test",
    tool_name: str = "tool",
    emit: Emit = _nobody,
    cancelled: Callable[[], bool] = _never,
    confirmation: JsonObject | None = None,
    secrets: Mapping[str, str] | None = None,
) -> ToolContext[StateT]:
    """A context from its parts: what the engine makes for each call, and what a unit test of a tool needs."""
    return ToolContext(
        session_id=agent_id,
        run_id=run_id,
        agent_type=agent_type,
        step=step,
        tool_call_id=tool_call_id,
        tool_name=tool_name,
        idempotency_key=idempotency_key(agent_id, 0, tool_call_id),
        tracker=state_tracker if state_tracker is not None else StateTracker({}),
        confirmation=confirmation,
        _emit=emit,
        _cancelled=cancelled,
        _secrets=secrets_of(secrets or {}, "give it to create_tool_context(secrets={...})"),
    )
