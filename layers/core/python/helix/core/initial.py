"""The state that a run starts from, as a value: input read, defaults applied, the user's message in place.

Law: pure; ids and the time are arguments. What a runtime stores is split over rows (`core.rows`) by `core.claim_plan`; this
is the same beginning in one piece, for running steps without a store: a test, a replay, a runtime of one's own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from helix.core.agents import AnyAgent
from helix.core.errors import AgentAlreadyRunningError, InvalidInputError
from helix.core.json import JsonObject, JsonValue, check_json, check_text, dumps
from helix.core.messages import AnyMessage, Message, Record, UserMessage, check_message
from helix.core.prompt import repair_pairs
from helix.core.rows import ErrorInfo
from helix.core.states import merged_state
from helix.core.status import AgentStatus


class AgentInput(BaseModel):
    """What `execute` takes besides a plain string. `state` is merged over the session's custom state, key by key."""

    model_config = ConfigDict(extra="forbid")

    message: str
    state: JsonObject = Field(default_factory=dict)
    metadata: JsonObject = Field(default_factory=dict)


Input = str | AgentInput | Mapping[str, Any]


class AgentState(Record):
    """A session in one piece. `custom_state` and `output` are plain JSON: `core.states` makes them the agent's types."""

    session_id: str
    run_id: str
    agent_type: str
    stream_id: str
    status: AgentStatus = "running"
    step_count: int = 0
    custom_state: JsonObject = Field(default_factory=dict)
    messages: list[Message] = Field(default_factory=list)
    output: JsonValue = None
    error: ErrorInfo | None = None
    parent_session_id: str | None = None
    aborted: bool = False
    abort_reason: str | None = None


UntypedAgentState = AgentState


def parse_input(agent: AnyAgent, given: Input) -> AgentInput:
    """The input as a message and state. A function agent also takes a mapping of its parameters."""
    if isinstance(given, AgentInput):
        return given
    if isinstance(given, str):
        check_text(given, "message")
        return AgentInput(message=given)
    if not isinstance(given, Mapping):
        raise InvalidInputError(f"input must be a str or a mapping with a 'message', not {type(given).__name__}")
    values = dict(given)
    for name, value in values.items():
        check_json(value, f"input {name!r}", limit=None)
    if agent.function is not None and "message" not in values:
        return AgentInput(message=dumps(values))
    try:
        return AgentInput.model_validate(values)
    except ValueError as error:
        raise InvalidInputError(f"input must be a message or {{'message': ..., 'state': ...}}: {error}") from error


def create_initial_agent_state(
    agent: AnyAgent,
    *,
    session_id: str,
    run_id: str,
    stream_id: str | None = None,
    parent_session_id: str | None = None,
    custom_state: JsonObject | None = None,
    messages: Sequence[AnyMessage] = (),
) -> AgentState:
    """A new session's state from its parts. `custom_state` is the agent's defaults unless given; the stream is the
    session's own unless it is a sub-agent's."""
    return AgentState(
        session_id=session_id,
        run_id=run_id,
        agent_type=agent.name,
        stream_id=stream_id or session_id,
        parent_session_id=parent_session_id,
        custom_state=agent.initial_state() if custom_state is None else custom_state,
        messages=list(messages),
    )


def initialize_agent_state(
    agent: AnyAgent,
    given: Input,
    *,
    session_id: str,
    run_id: str,
    message_id: str,
    now: float,
    stream_id: str | None = None,
    parent_session_id: str | None = None,
) -> AgentState:
    """A new session's state from its input: defaults, the given state merged over them, the user's message.

    Raises `InvalidInputError` where the input is no input, or its state does not fit the schema.
    """
    asked = parse_input(agent, given)
    return create_initial_agent_state(
        agent,
        session_id=session_id,
        run_id=run_id,
        stream_id=stream_id,
        parent_session_id=parent_session_id,
        custom_state=merged_state(agent, agent.initial_state(), asked.state),
        messages=[_user(asked, run_id, message_id, now)],
    )


def continue_agent_state(
    state: AgentState, agent: AnyAgent, given: Input, *, run_id: str, message_id: str, now: float
) -> AgentState:
    """The state of a session's next run: history with its pairs whole, then the user's message; output and error
    cleared. Raises `AgentAlreadyRunningError` while the session runs."""
    if state.status == "running":
        raise AgentAlreadyRunningError(state.session_id, state.run_id)
    asked = parse_input(agent, given)
    return AgentState(
        session_id=state.session_id,
        run_id=run_id,
        agent_type=state.agent_type,
        stream_id=state.stream_id,
        parent_session_id=state.parent_session_id,
        step_count=state.step_count,
        custom_state=merged_state(agent, state.custom_state, asked.state),
        messages=[*repair_pairs(state.messages), _user(asked, run_id, message_id, now)],
    )


def _user(asked: AgentInput, run_id: str, message_id: str, now: float) -> UserMessage:
    check_message(asked.message)
    check_json(asked.metadata, "metadata")
    return UserMessage(id=message_id, run_id=run_id, content=asked.message, created_at=now, metadata=asked.metadata)
