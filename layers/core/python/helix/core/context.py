"""The context of a tool call: the tool's access to its run."""

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
"""A function that returns the text of the secret with a name. Raises `SecretNotFoundError`."""


def secrets_of(texts: Mapping[str, str], advice: str) -> Secrets:
    """Return a function that reads secrets from a mapping. `advice` says how a secret gets into the mapping."""

    def read(name: str) -> str:
        if not (text := texts.get(name, "")):
            raise SecretNotFoundError(f"there is no secret {name!r}: {advice}")
        return text

    return read


NO_SECRETS = secrets_of({}, "give it to create_tool_context(secrets={...})")


@dataclass(slots=True)
class ToolContext(Generic[StateT]):
    """The context that a tool receives in its parameter annotated `ToolContext[State]`. `agent_id` is the session id."""

    session_id: str
    """The session that the call belongs to."""
    run_id: str
    """The run that executes the call. A call that is repeated may belong to a later run."""
    agent_type: str
    """The name of the agent that called the tool."""
    step: int
    """The step that the call belongs to."""
    tool_call_id: str
    """The id of the call, unique in its session."""
    tool_name: str
    """The name by which the model called the tool."""
    idempotency_key: str
    """A key that is the same in every execution of this call, in any process. Pass it to systems that accept one."""
    tracker: StateTracker[StateT]
    """The custom state as this tool sees it, with the tool's changes. The engine merges them after the step."""
    confirmation: JsonObject | None = None
    """The data of the person who approved the call. None if the call needed no approval, or the person gave no data."""
    usage: list[Usage] = field(default_factory=list)
    """The usage that the tool reported with `record_usage`."""
    _emit: Emit = _nobody
    _cancelled: Callable[[], bool] = _never
    _secrets: Secrets = field(default=NO_SECRETS, repr=False)

    @property
    def agent_id(self) -> str:
        return self.session_id

    def get_state(self) -> StateT:
        """Return a copy of this tool's view: the state before the step, with this tool's own changes.

        The changes of other calls of the step are not visible.
        """
        return self.tracker.get_state()

    def update_state(self, change: Callable[[StateT], Any]) -> StateT:
        """Apply `change` to a draft of the state. If it raises, or if the schema refuses the result, nothing changes and
        the error is raised."""
        return self.tracker.update(change)

    def draft(self) -> AbstractContextManager[StateT]:
        """Return a draft for `with ctx.draft() as state:`. The exit validates and records the changes, an exception rolls
        them back."""
        return self.tracker.draft()

    def emit(self, event_name: str, data: JsonValue = None) -> None:
        """Put a `custom` chunk on the stream. Raises `InvalidInputError` unless `data` is JSON of at most 100,000 bytes."""
        check_event(event_name, data)
        self._emit(event_name, data)

    def cancelled(self) -> bool:
        """Return whether the run was asked to stop. The answer is at most 1 s late. Long tools should ask."""
        return self._cancelled()

    def secret(self, name: str) -> str:
        """Return the text of a secret.

        Deployed, it comes from the place that `[tool.helix.secrets]` names. In process, it is the environment variable
        with that name. Read it in each call, because it changes when it is rotated. A missing secret fails the run.
        """
        return self._secrets(name)

    def record_usage(self, usage: Usage) -> None:
        """Add the tool's own usage, such as that of an embedding, to the usage and cost of the run."""
        self.usage.append(usage)


def idempotency_key(session_id: str, lineage: int, tool_call_id: str) -> str:
    """Return the key of a call for systems outside. Ids of calls are unique within a lineage of their session."""
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
    """Return a context made from its parts, as the engine makes one for each call. Unit tests of tools need it."""
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
