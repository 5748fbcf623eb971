"""The context of a tool call, through which the tool accesses its run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, cast, overload

from typing_extensions import TypeVar

from helix.core.elsewhere import CallToken, OnMissing, Wait
from helix.core.errors import DependencyError, InvalidInputError, SecretNotFoundError
from helix.core.json import JsonObject, JsonValue, check_json, check_text
from helix.core.tracker import StateTracker
from helix.core.usage import Usage

if TYPE_CHECKING:
    from helix.core.questions import Question

StateT = TypeVar("StateT", default=Any)
DepsT = TypeVar("DepsT", default=Any)
NO_DEPS: Final[Any] = object()
"""The dependencies of an agent without `deps`. None may be the value of `deps`."""
T1 = TypeVar("T1")
T2 = TypeVar("T2")
T3 = TypeVar("T3")
MAX_EVENT_BYTES = 100_000
MAX_EVENT_NAME_BYTES = 256


class Emit(Protocol):
    def __call__(self, event_name: str, data: JsonValue) -> None: ...


def check_event(event_name: str, data: JsonValue) -> None:
    """Raise `InvalidInputError` unless the event can be written to the stream."""
    check_text(event_name, "event_name", MAX_EVENT_NAME_BYTES)
    if not event_name:
        raise InvalidInputError("event_name is empty: name the event")
    check_json(data, f"data of event {event_name!r}", MAX_EVENT_BYTES)


def _drop_event(event_name: str, data: JsonValue) -> None:
    return None


def _is_not_cancelled() -> bool:
    return False


Ask = Callable[[Sequence["Question[Any]"]], Awaitable[list[Any]]]


def answers_of(answers: Sequence[Any]) -> Ask:
    """Return a function that answers questions from a list, for unit tests. It reads each answer as the tool would."""
    left = list(answers)

    async def ask(questions: Sequence[Question[Any]]) -> list[Any]:
        if len(left) < len(questions):
            raise InvalidInputError(
                f"there is no answer to {questions[len(left)]!r}: give it to create_tool_context(answers=[...])"
            )
        return [question.read(left.pop(0)) for question in questions]

    return ask


Secrets = Callable[[str], str]
"""A function that returns the value of the secret with the given name. Raises `SecretNotFoundError`."""


def secrets_of(texts: Mapping[str, str], advice: str) -> Secrets:
    """Return a function that reads secrets from a mapping. `advice` tells the user how to add a missing secret."""

    def read(name: str) -> str:
        if not (text := texts.get(name, "")):
            raise SecretNotFoundError(f"there is no secret {name!r}: {advice}")
        return text

    return read


NO_SECRETS = secrets_of({}, "give it to create_tool_context(secrets={...})")
NO_ANSWERS = answers_of(())
Later = Callable[[Wait], Awaitable[str]]


async def _token_for_tests(wait: Wait) -> str:
    """Return a token that no call has, for unit tests."""
    return str(CallToken("test", 0, 0, "0" * 32))


@dataclass(slots=True)
class ToolContext(Generic[StateT, DepsT]):
    """The context that a tool receives in its parameter annotated `ToolContext`, `ToolContext[State]` or
    `ToolContext[State, Deps]`. `agent_id` is the session id."""

    session_id: str
    """The session that the call belongs to."""
    run_id: str
    """The run that executes the call. A retried call may belong to a later run."""
    agent_type: str
    """The name of the agent that called the tool."""
    step: int
    """The step that the call belongs to."""
    tool_call_id: str
    """The id of the call, unique in its session."""
    tool_name: str
    """The name by which the model called the tool."""
    idempotency_key: str
    """A key that stays the same across all executions of this call, in any process. Pass it to systems that accept
    idempotency keys."""
    tracker: StateTracker[StateT]
    """The custom state as seen by this tool, including its own changes. The engine merges the changes after the
    step."""
    confirmation: JsonObject | None = None
    """The data that a person supplied with the approval. None if the call needed no approval or the person supplied no
    data."""
    usage: list[Usage] = field(default_factory=list)
    """The usage that the tool reported with `record_usage`."""
    takes_files: bool = True
    """Whether the tool may return files. False if the executor has no place to store them."""
    _emit: Emit = _drop_event
    _cancelled: Callable[[], bool] = _is_not_cancelled
    _secrets: Secrets = field(default=NO_SECRETS, repr=False)
    _deps: Any = field(default=NO_DEPS, repr=False)
    _ask: Ask = field(default=NO_ANSWERS, repr=False)
    _later: Later = field(default=_token_for_tests, repr=False)
    _calls_url: str = ""

    @property
    def agent_id(self) -> str:
        return self.session_id

    @property
    def deps(self) -> DepsT:
        """The value that the agent's `deps` made in this process. All calls share it. Raises `DependencyError` if the
        agent has no `deps`."""
        if self._deps is NO_DEPS:
            raise DependencyError(
                f"agent {self.agent_type!r} has no dependencies: define it with deps=, a function that makes them"
            )
        return cast(DepsT, self._deps)

    def get_state(self) -> StateT:
        """Return a copy of this tool's view of the state: the state before the step plus this tool's own changes.

        Changes made by other calls of the same step are not visible.
        """
        return self.tracker.get_state()

    def update_state(self, change: Callable[[StateT], Any]) -> StateT:
        """Apply `change` to a draft of the state. If it raises or the schema rejects the result, nothing changes and
        the error is raised."""
        return self.tracker.update(change)

    def draft(self) -> AbstractContextManager[StateT]:
        """Open a draft of the state: `with ctx.draft() as state:`. Leaving the block validates and records the changes;
        an exception rolls them back."""
        return self.tracker.draft()

    def emit(self, event_name: str, data: JsonValue = None) -> None:
        """Write a `custom` chunk to the stream. Raises `InvalidInputError` unless `data` is JSON of at most 100,000
        bytes."""
        check_event(event_name, data)
        self._emit(event_name, data)

    def cancelled(self) -> bool:
        """Return whether the run was asked to stop, with a delay of at most 1 s. Long-running tools should check it
        regularly."""
        return self._cancelled()

    def secret(self, name: str) -> str:
        """Return the value of a secret.

        When deployed, the secret is read from the location given in `[tool.helix.secrets]`; in process, from the
        environment variable with that name. Read it in each call, because rotation changes it. A missing secret fails
        the run.
        """
        return self._secrets(name)

    @overload
    async def ask(self, one: Question[T1], /) -> T1: ...
    @overload
    async def ask(self, one: Question[T1], two: Question[T2], /) -> tuple[T1, T2]: ...
    @overload
    async def ask(self, one: Question[T1], two: Question[T2], three: Question[T3], /) -> tuple[T1, T2, T3]: ...
    @overload
    async def ask(self, *questions: Question[Any]) -> Any: ...
    async def ask(self, *questions: Question[Any]) -> Any:
        """Ask a person, and return the answer. With several questions, return a tuple of their answers.

        The run pauses until the answers are there. Then the tool is entered again from its beginning, and `ask` returns the
        recorded answers: code before it runs again, and its state changes before it are dropped. A question with another
        text or schema is asked again. A call may ask at most 20 questions. Denying the questions fails the call.
        """
        answers = await self._ask(questions)
        return answers[0] if len(questions) == 1 else tuple(answers)

    async def later(
        self, *, heartbeat_s: float | None = None, timeout_s: float | None = None, on_timeout: OnMissing = "deny"
    ) -> str:
        """Return a token with which another system ends this call, after the tool has returned. The tool is declared with
        `@tool(later=True)`, gives the token away and returns. Its own result is ignored, unless it raises.

        The run pauses until the result is there. The token works as soon as `later` returns. A second execution of the
        call gets another token, and the first result that comes with one of them is final.

        heartbeat_s: the longest time between two heartbeats, in seconds. Once one is missing, the outcome is unknown, and
            the tool's `on_unknown` applies. None: no heartbeats.
        timeout_s: how many seconds the call waits for its result at most. None: forever.
        on_timeout: `deny` fails the call at that time, `fail` also fails the run.

        A sweep ends a wait, up to a minute late, or an hour on a stage at rest.
        """
        return await self._later(Wait(heartbeat_s, timeout_s, on_timeout))

    def call_url(self, token: str) -> str:
        """Return the URL at which a webhook reports the result of this call: `POST` it there. The URL is a secret, because
        it has the token. Raises `InvalidInputError` if the executor does not know its address (`Settings.calls_url`)."""
        if not self._calls_url:
            raise InvalidInputError("ctx.call_url: set calls_url in the executor's settings; a stage knows its own")
        return f"{self._calls_url.rstrip('/')}/{token}"

    def record_usage(self, usage: Usage) -> None:
        """Add the tool's own usage, such as that of an embedding, to the usage and cost of the run."""
        self.usage.append(usage)


def idempotency_key(session_id: str, lineage: int, tool_call_id: str) -> str:
    """Return the idempotency key of a call for external systems. Call ids are unique within a lineage of their
    session."""
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
    emit: Emit = _drop_event,
    cancelled: Callable[[], bool] = _is_not_cancelled,
    confirmation: JsonObject | None = None,
    secrets: Mapping[str, str] | None = None,
    deps: Any = NO_DEPS,
    answers: Sequence[Any] = (),
) -> ToolContext[StateT]:
    """Build a context from its parts, as the engine does for each call. Meant for unit tests of tools. `deps`: the
    dependencies themselves, not the function that makes them. `answers`: what `ask` returns, in order, each as the JSON
    that a person would send."""
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
        _deps=deps,
        _ask=answers_of(answers),
    )
