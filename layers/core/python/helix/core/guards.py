"""Guards: checks of a run's inputs, calls, results and outputs (docs/guide/guards.md)."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from helix.core.checks import is_number, require
from helix.core.config import LLMConfig
from helix.core.context import NO_SECRETS, Secrets
from helix.core.errors import DefinitionError
from helix.core.files import FilePart
from helix.core.json import JsonObject
from helix.core.usage import Usage
from helix.core.verdicts import PLACES, AnyVerdict, Place

if TYPE_CHECKING:
    from helix.core.agents import AnyAgent

DEFAULT_TIMEOUT_S = 10.0
MAX_GUARDS = 20


@dataclass(slots=True, kw_only=True)
class GuardContext:
    """The facts about the judged value that a guard may use."""

    on: Place
    """What is judged: an `input`, a `call`, a `result` or an `output`."""
    agent_type: str
    """The name of the agent."""
    session_id: str
    """The session."""
    run_id: str
    """The run."""
    step: int
    """The step that the value belongs to."""
    user_id: str | None = None
    """The user who owns the session. None for a session without a user, and for a sub-agent's session."""
    tool_name: str = ""
    """The tool of a call or a result. Empty for an input and an output."""
    call_id: str = ""
    """The id of a call or a result. Empty for an input and an output."""
    arguments: JsonObject = field(default_factory=dict)
    """The arguments of the call that has the result. Empty for other values."""
    files: Sequence[FilePart] = ()
    """The files of an input."""
    user_messages: Sequence[str] = ()
    """The texts of the user's messages so far, as the guards of inputs let them pass, oldest first. Empty for an input and
    a result. In a sub-agent's session, the parent agent wrote them."""
    usage: list[Usage] = field(default_factory=list)
    """The usage that the guard reported with `record_usage`."""
    _secrets: Secrets = field(default=NO_SECRETS, repr=False)

    def secret(self, name: str) -> str:
        """Return the value of a secret, as `ToolContext.secret` does."""
        return self._secrets(name)

    def record_usage(self, usage: Usage) -> None:
        """Add the usage of the guard's own model calls to the usage and cost of the run."""
        self.usage.append(usage)


GuardFunction = Callable[[Any, GuardContext], AnyVerdict | Awaitable[AnyVerdict]]
"""A function of the judged value and its context. It may be async; other functions run in a thread. The value is the
text of an input, the arguments of a call as a dict, a result as JSON, and an output as text or JSON."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Guard:
    """A check of what an agent receives, does and says. Each place has a function that returns a verdict, or an agent
    that judges with one model call."""

    name: str = ""
    """The name under which verdicts are stored. Empty: the name of the first function."""
    input: GuardFunction | AnyAgent | None = None
    """Judges each user message before the run's next step is stored."""
    call: GuardFunction | AnyAgent | None = None
    """Judges the arguments of each valid call before it is executed or shown to a person."""
    result: GuardFunction | None = None
    """Judges the result of each tool before it is final: of tools that Helix or a client executed, and of calls that ended
    elsewhere."""
    output: GuardFunction | AnyAgent | None = None
    """Judges the text of each answer, and the output, before they are stored."""
    tools: Sequence[str] = ()
    """The names of the tools whose calls and results it judges. Empty: all tools. The agent must have each of them."""
    when: Literal["before", "beside"] = "before"
    """Whether `input` runs before the model call, or at the same time."""
    hold: Literal["step"] | None = None
    """`step`: readers get the text of a step only once the guard has judged it. None: refused text is taken back."""
    timeout_s: float = DEFAULT_TIMEOUT_S
    """The maximum duration of one verdict in seconds. A guard that takes longer blocks."""

    def __post_init__(self) -> None:
        first = next((f for place in PLACES if (f := getattr(self, place)) is not None), None)
        name = self.name or getattr(first, "name", "") or getattr(first, "__name__", "") or type(first).__name__
        owner = f"guard {name!r}"
        require(first is not None, owner, "input", f"give at least one of {', '.join(PLACES)}")
        valid = isinstance(name, str) and 0 < len(name) <= 64 and name.isprintable()
        require(valid, owner, "name", "must be 1 to 64 printable characters")
        object.__setattr__(self, "name", name)
        for place in PLACES:
            function = getattr(self, place)
            require(function is None or callable(function), owner, place, "must be a function or an agent")
            if is_judge(function):
                _check_judge(function, place, owner)
            elif function is not None:
                require(_takes_two(function), owner, place, "must take two arguments: the value and its context")
        valid = isinstance(self.tools, Sequence) and not isinstance(self.tools, str)
        require(valid, owner, "tools", "must be a list of names of tools")
        object.__setattr__(self, "tools", tuple(self.tools))
        valid = not self.tools or self.call is not None or self.result is not None
        require(valid, owner, "tools", "limits `call` and `result`: give one of them, or leave it out")
        require(self.when in ("before", "beside"), owner, "when", "must be 'before' or 'beside'")
        require(self.hold in (None, "step"), owner, "hold", "must be 'step' or None")
        valid = is_number(self.timeout_s) and 0 < self.timeout_s <= 60
        require(valid, owner, "timeout_s", "must be a number of seconds above 0, 60 at most")

    def judges(self, place: Place, tool_name: str = "") -> bool:
        """Return whether the guard judges this place. `tool_name`: the tool of a call or a result."""
        limited = bool(self.tools) and place in ("call", "result")
        return getattr(self, place) is not None and (not limited or tool_name in self.tools)


def judges_result(agent: AnyAgent, tool_name: str) -> bool:
    """Return whether guards of the agent judge the tool's result, also if it only becomes an output (`finish_with`)."""
    tool = agent.find_tool(tool_name)
    finishes = tool is not None and tool.finish_with
    return any(guard.judges("result", tool_name) or (finishes and guard.judges("output")) for guard in agent.guards)


def seconds_after_answer(agent: AnyAgent) -> float:
    """Return the most seconds that the agent's guards may take once the model has answered. They judge the answer's text,
    output and calls one after the other."""
    texts = 1 if agent.output_schema is None else 2
    seconds = 0.0
    for guard in agent.guards:
        beside = guard.input is not None and guard.when == "beside"
        times = beside + texts * (guard.output is not None) + (guard.call is not None)
        seconds += guard.timeout_s * times
    return seconds


def is_judge(function: object) -> bool:
    """Return whether this is an agent, which judges with a model call."""
    return hasattr(function, "llm_config")


def _check_judge(judge: Any, place: Place, owner: str) -> None:
    problem = "must be a function: only the function that calls the model can ask an agent"
    require(place != "result", owner, place, problem)
    require(isinstance(judge.system_prompt, str), owner, place, "the agent's system_prompt must be a string")
    valid = isinstance(judge.llm_config, LLMConfig) and judge.llm_config.route is None
    require(valid, owner, place, "the agent must name one model")
    valid = not judge.tools and not judge.guards and judge.output_schema is None
    require(valid, owner, place, "the agent must have no tools, guards or output_schema: it gets its own")


def check_guards(guards: object, owner: str) -> tuple[Guard, ...]:
    """Return the guards of an agent. Raises `DefinitionError` if they are not valid."""
    require(isinstance(guards, Sequence) and not isinstance(guards, str), owner, "guards", "must be a list of guards")
    assert isinstance(guards, Sequence)
    require(len(guards) <= MAX_GUARDS, owner, "guards", f"may have {MAX_GUARDS} guards at most")
    seen: set[str] = set()
    for index, guard in enumerate(guards):
        if not isinstance(guard, Guard):
            problem = f"{guard!r} is not a guard: write Guard(call=...), Guard(output=...) or another place"
            raise DefinitionError(owner, f"guards[{index}]", problem)
        problem = f"two guards are named {guard.name!r}: give them different names"
        require(guard.name not in seen, owner, f"guards[{index}]", problem)
        seen.add(guard.name)
    return tuple(guards)


def _takes_two(function: Callable[..., Any]) -> bool:
    try:
        inspect.signature(function).bind(None, None)
    except TypeError:
        return False
    except ValueError:  # a builtin without a signature
        return True
    return True
