"""Builds the state that a run starts from: parsed input, defaults, and the user's message.

Law: pure. Ids and the time are arguments. A runtime stores this state in several rows (`core.session_row`), which
`core.claim_plan` creates. Here it is a single value, for running steps without a store: in a test, a replay or a custom
runtime.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from helix.core.agents import AnyAgent
from helix.core.errors import AgentAlreadyRunningError, InvalidInputError
from helix.core.files import FilePart
from helix.core.json import JsonObject, JsonValue, check_json, check_text, dumps
from helix.core.messages import AnyMessage, Message, Record, UserMessage, check_message
from helix.core.prompt import repair_pairs
from helix.core.rows import ErrorInfo
from helix.core.states import merged_state
from helix.core.status import AgentStatus


class AgentInput(BaseModel):
    """The structured input of `execute`, as an alternative to a plain string."""

    model_config = ConfigDict(extra="forbid")

    message: str
    """The text of the user's message."""
    files: list[FilePart] = Field(default_factory=list)
    """The files of the user's message, each with its position in the text. They are stored already, or at a URL."""
    state: JsonObject = Field(default_factory=dict)
    """Top-level fields to merge into the session's custom state."""
    metadata: JsonObject = Field(default_factory=dict)
    """A JSON object to store with the user's message."""


Input = str | AgentInput | Mapping[str, Any]


class AgentState(Record):
    """The whole state of a session as one value."""

    session_id: str
    """The id of the session."""
    run_id: str
    """The run that this state begins."""
    agent_type: str
    """The name of the session's agent."""
    stream_id: str
    """The stream that receives the chunks: the session's own id, or the root session's id for a sub-agent."""
    status: AgentStatus = "running"
    """The status of the run. A `running` state cannot be continued with another message."""
    step_count: int = 0
    """The number of steps so far."""
    custom_state: JsonObject = Field(default_factory=dict)
    """The agent's custom state as plain JSON. `core.states` converts it to the agent's type."""
    messages: list[Message] = Field(default_factory=list)
    """The history, including the user's message that starts the run."""
    output: JsonValue = None
    """The output of the run as plain JSON, if any."""
    error: ErrorInfo | None = None
    """The reason why the run failed. None if it did not."""
    parent_session_id: str | None = None
    """The parent session of a sub-agent. None for a root session."""
    aborted: bool = False
    """Whether the run was aborted."""
    abort_reason: str | None = None
    """The reason that the caller of the abort gave, if any."""


UntypedAgentState = AgentState


def parse_input(agent: AnyAgent, given: Input) -> AgentInput:
    """Parse the input into a message and state. A function agent also accepts a mapping of its parameters. Raises
    `InvalidInputError` for any other input."""
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
    """Build a new session's state from its parts. `custom_state` defaults to the agent's initial state. `stream_id`
    defaults to the session's own id; a sub-agent passes its root's."""
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
    """Build a new session's state from its input: the defaults, the given state merged into them, and the user's
    message.

    Raises `InvalidInputError` if the input is not valid, or its state does not match the schema.
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
    """Build the state of a session's next run: the history with a result for every call, then the user's message.
    Output and error are cleared. Raises `AgentAlreadyRunningError` while the session is running."""
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
    check_message(asked.message, asked.files)
    check_json(asked.metadata, "metadata")
    return UserMessage(
        id=message_id,
        run_id=run_id,
        content=asked.message,
        files=asked.files,
        created_at=now,
        metadata=asked.metadata,
    )
