"""Agent definitions. They are plain data: the same definition works in every runtime."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import InitVar, dataclass, field, fields
from functools import cached_property
from typing import Any, Generic, Literal

from pydantic import PydanticUserError, ValidationError
from typing_extensions import TypeVar

from helix.core.checks import is_int, is_model, is_plain_function, require
from helix.core.config import LLMConfig
from helix.core.context import NO_DEPS
from helix.core.context_policy import Context
from helix.core.dependencies import Factory, check_factory
from helix.core.errors import DefinitionError
from helix.core.guards import Guard, check_guards, is_judge
from helix.core.handoffs import Handoff, handoff_tools
from helix.core.hooks import Hooks
from helix.core.json import MAX_STATE_BYTES, JsonObject, check_json, dumps
from helix.core.output_checks import OutputCheck, check_of
from helix.core.reminders import Reminder, check_reminders
from helix.core.resources import DEFAULT_PROFILE, ResourceConfig
from helix.core.routes import Route
from helix.core.run_settings import CHOICES
from helix.core.signatures import parameters_of
from helix.core.steps import AnyStepResult
from helix.core.tools import NAME, AnyTool, Tool, create_finish_tool

StateT = TypeVar("StateT", default=Any)
OutputT = TypeVar("OutputT", default=Any)
CheckT = TypeVar("CheckT", bound=OutputCheck)
DEFAULT_MAX_STEPS = 50
MAX_EXAMPLES, EXAMPLE_CHARS = 8, 500


@dataclass(frozen=True, eq=False, kw_only=True)
class Agent(Generic[StateT, OutputT]):
    """The definition of an agent: its prompt, model settings, tools and limits."""

    name: str
    """The unique name of the agent, `[A-Za-z0-9_-]{1,64}` without `__`. A session stores this name to find its agent
    again."""
    system_prompt: str | Callable[[Any], str] = ""
    """The system prompt: a string, or a pure function of the custom state. Helix calls the function before every model
    call and never stores its result. Only function agents may leave the prompt empty."""
    reminders: Sequence[Reminder] = ()
    """What the model is told at the end of each request, because it changes from call to call: up to 8 texts of at most
    8,000 characters, or functions of a `ReminderContext` that return one or None. They are not part of the history."""
    description: str = ""
    """A description of the agent for listings. A sub-agent tool without its own description uses this one."""
    examples: Sequence[str] = ()
    """Up to 8 messages, of at most 500 characters, that people may begin a conversation with. The console offers them. The
    model does not see them."""
    tools: Sequence[AnyTool] = ()
    """The tools that the model may call, including sub-agent tools. Names must be unique. Those of `handoffs` are added
    at the end."""
    handoffs: Sequence[Handoff | Agent[Any, Any] | str] = ()
    """The agents that this agent may give the conversation to: agents, their names, or `Handoff`s. Each becomes a tool
    `transfer_to_<agent>`."""
    state_schema: type[StateT] | None = None
    """The pydantic model of the custom state. Every field needs a default. If None, the custom state is a JSON object
    that starts as `{}`."""
    output_schema: type[OutputT] | None = None
    """The pydantic model of the output. It adds the tool `__finish__`, and the run completes only with a valid output.
    Without a schema, the run completes with text."""
    output_checks: Sequence[OutputCheck] = ()
    """Functions that check a valid output before the run completes. `@agent.output_check` adds one."""
    llm_config: LLMConfig | Callable[[Any], LLMConfig] | None = None
    """The model settings, or a pure function of the custom state that returns them. Function agents need none."""
    model: InitVar[str | Route | None] = None
    """Short for `llm_config=LLMConfig(model=...)`: a litellm id, or a `Route` among several. Give only one of the
    two."""
    max_steps: int | None = DEFAULT_MAX_STEPS
    """The maximum number of model calls in one run. None removes the limit; budgets still apply."""
    stop_when: Callable[[AnyStepResult], bool] | None = None
    """A pure predicate on a step result, called after the step's tools ran. True completes the run."""
    hooks: Hooks | Mapping[str, Any] = field(default_factory=Hooks)
    """The functions that observe the agent's runs: `Hooks`, or a mapping from name to function."""
    max_completion_retries: int = 2
    """The number of times per run that Helix asks the model again after an invalid or missing output. After that, the
    run fails."""
    on_budget: Literal["fail", "pause"] = "fail"
    """Whether a run fails or pauses when a budget has no room for its next call. A budget's own `on_exceeded` takes
    precedence."""
    inline_tools: bool = False
    """Whether all tools are `inline`: when deployed, the function that calls the model also runs them."""
    array_delta_mode: Literal["append_only", "full_replace"] = "append_only"
    """The form in which list changes are written as patches. `append_only` writes one patch per item appended at the
    end, and the whole list for any other change. `full_replace` always writes the whole list."""
    function: AnyTool | None = None
    """The one tool of a function agent (`core.functions`), which needs no prompt and no model. None for other agents."""
    keep_partial: bool = False
    """Whether an interrupt during a model call keeps the text that has arrived as an answer, marked as cut
    (docs/guide/sessions.md). False: the text is discarded, and a resume asks the model again. An abort, a sub-agent, and
    an agent whose guards must judge the answer keep nothing."""
    context: Context = field(default_factory=Context)
    """The policy that fits the agent's conversations into its model's window. By default, old tool results are cleared,
    and a summary is written only if the prompt would not fit otherwise."""
    deps: Factory | None = None
    """A function that makes what the tools need, such as a database pool. They read it as `ToolContext.deps`. The
    function returns the value, an awaitable of it, or an async context manager. Each process calls it once, in its event
    loop, before the first call of a tool that takes a context. It takes no arguments, or `secret`, which is the same
    function as `ToolContext.secret`."""
    resources: JsonObject = field(default_factory=dict)
    """The replicas, CPU and memory that the agent requests, under the long names of `core.resources`. If empty, the
    agent shares the functions of the default profile."""
    guards: Sequence[Guard] = ()
    """The checks of what the agent receives, does and says, in order (docs/guide/guards.md). A sub-agent has its own. A
    function agent cannot have any."""
    batch: bool = False
    """Whether the agent's model calls go into the provider's batches, at half the price (docs/guide/batches.md). A step
    then takes minutes or hours, up to a day, and no process waits for it."""
    frontend_tools: bool | Sequence[str] = False
    """Whether a run may declare tools that its front end executes (docs/guide/front-ends.md#tools-of-the-page): False,
    True, or the names that it may declare. The model reads their descriptions, which the front end writes."""
    made_by_factory = False  # not a field of a definition: `AgentRegistry.resolve` sets it, also on sub-agents
    overridden_deps = NO_DEPS  # not a field of a definition: `override` sets it

    def __post_init__(self, model: str | Route | None) -> None:
        owner = f"agent {self.name!r}"
        if model is not None:
            require(self.llm_config is None, owner, "model", "is part of llm_config: give one of the two")
            valid = isinstance(model, Route) or (isinstance(model, str) and bool(model.strip()))
            require(valid, owner, "model", f"must be a model's name or a Route, not {model!r}")
            object.__setattr__(self, "llm_config", LLMConfig.model_validate({"model": model}))
        valid = isinstance(self.name, str) and NAME.fullmatch(self.name) is not None and "__" not in self.name
        require(valid, owner, "name", "must be 1 to 64 letters, digits, '_' or '-', without '__'")
        require(isinstance(self.description, str), owner, "description", "must be a string")
        self._take_examples(owner)
        prompt, config = self.system_prompt, self.llm_config
        if self.function is None:
            valid = bool(prompt.strip()) if isinstance(prompt, str) else is_plain_function(prompt)
            problem = "must be a non-empty string, or a plain function of the state"
            require(valid, owner, "system_prompt", problem)
            problem = "must be an LLMConfig, or a plain function of the state that returns one"
            require(isinstance(config, LLMConfig) or is_plain_function(config), owner, "llm_config", problem)
        else:
            require(isinstance(self.function, Tool), owner, "function", "must be a tool: use AgentClient().agent(...)")
        object.__setattr__(self, "reminders", check_reminders(self.reminders, owner))
        problem = "a function agent calls no model"
        require(not self.reminders or self.function is None, owner, "reminders", problem)
        steps, retries = self.max_steps, self.max_completion_retries
        valid = steps is None or (is_int(steps) and steps >= 1)
        require(valid, owner, "max_steps", "must be at least 1, or None for no limit")
        require(is_int(retries) and retries >= 0, owner, "max_completion_retries", "must be 0 or more")
        require(self.on_budget in ("fail", "pause"), owner, "on_budget", "must be 'fail' or 'pause'")
        for name in ("inline_tools", "keep_partial", "batch"):
            require(isinstance(getattr(self, name), bool), owner, name, "must be True or False")
        valid = self.array_delta_mode in ("append_only", "full_replace")
        require(valid, owner, "array_delta_mode", "must be 'append_only' or 'full_replace'")
        valid = self.stop_when is None or is_plain_function(self.stop_when)
        require(valid, owner, "stop_when", "must be a plain function of a step result")
        for name in ("state_schema", "output_schema"):
            schema = getattr(self, name)
            require(schema is None or is_model(schema), owner, name, "must be a pydantic model class")
        require(isinstance(self.context, Context), owner, "context", "must be a Context")
        self.context.check(owner)
        if self.deps is not None:
            check_factory(self.deps, owner)
        self._check_schemas(owner)
        self._take_checks(owner)
        object.__setattr__(self, "hooks", Hooks.of(self.hooks, owner))
        resources = ResourceConfig.of(self.resources, owner, "resources") if self.resources else None
        object.__setattr__(self, "resources", resources.model_dump(mode="json") if resources else {})
        self._check_tools(owner)
        self._check_choice(owner)
        object.__setattr__(self, "guards", check_guards(self.guards, owner))
        names = self.frontend_tools
        valid = isinstance(names, bool) or (isinstance(names, Sequence) and not isinstance(names, str))
        valid = valid and (isinstance(names, bool) or all(isinstance(name, str) for name in names))
        require(valid, owner, "frontend_tools", "must be True, False or a list of names")
        for guard in self.guards:
            for name in guard.tools:
                known = self.find_tool(name) is not None
                require(
                    known, owner, "guards", f"guard {guard.name!r} judges the tool {name!r}, which it does not have"
                )
        problem = "a function agent calls no model: check its arguments and its result in the function"
        require(not self.guards or self.function is None, owner, "guards", problem)
        self._check_batch(owner)
        finishes = any(tool.finish_with for tool in self.tools)
        problem = "an agent cannot judge the output of a tool with finish_with: use a function"
        require(not (finishes and any(is_judge(g.output) for g in self.guards)), owner, "guards", problem)

    def _check_batch(self, owner: str) -> None:
        waits = next((t.agent.name for t in self.tools if t.agent is not None and t.agent.batch), None)
        problem = f"the sub-agent {waits!r} has batch=True, which only the agent of a session can have"
        require(waits is None, owner, "tools", problem)
        require(not self.batch or self.function is None, owner, "batch", "a function agent calls no model")
        problem = "an agent with guards cannot use batches yet: leave one of the two out"
        require(not self.batch or not self.guards, owner, "batch", problem)

    def _take_examples(self, owner: str) -> None:
        given = self.examples
        listed = isinstance(given, Sequence) and not isinstance(given, str) and len(given) <= MAX_EXAMPLES
        valid = listed and all(
            isinstance(one, str) and len(one.strip()) > 0 and len(one) <= EXAMPLE_CHARS for one in given
        )
        problem = f"must be a list of at most {MAX_EXAMPLES} texts, each of 1 to {EXAMPLE_CHARS} characters"
        require(valid, owner, "examples", problem)
        require(
            not given or self.function is None, owner, "examples", "a function agent takes parameters, not messages"
        )
        object.__setattr__(self, "examples", tuple(given))

    def _check_choice(self, owner: str) -> None:
        config = self.llm_config
        if not isinstance(config, LLMConfig) or not config.forces_calls or self.frontend_tools:
            return
        names = [tool.name for tool in self.tools] + ([] if self.finish_tool is None else [self.finish_tool.name])
        known = bool(names) if config.tool_choice in CHOICES else config.tool_choice in names
        has = f"its tools are {', '.join(names)}" if names else "it has no tools"
        require(known, owner, "tool_choice", f"{config.tool_choice!r} forces a call that is not possible: {has}")

    def _take_checks(self, owner: str) -> None:
        checks = self.output_checks
        valid = isinstance(checks, Sequence) and not isinstance(checks, str)
        require(valid, owner, "output_checks", "must be a list of functions")
        object.__setattr__(self, "output_checks", ())
        for check in checks:
            self.output_check(check)

    def output_check(self, check: CheckT) -> CheckT:
        """Add a function that checks each valid output, as a decorator.

        It takes the output, an instance of `output_schema`, and optionally an `OutputContext`. It is sync or async. To
        refuse the output, it returns the reason or raises `ToolError`: the model is asked again with the reason, at
        most `max_completion_retries` times in a run. If it raises another error or takes more than 60 s, the run fails
        with `output_check_failed`. An output that was accepted is not checked again. Raises `DefinitionError` without
        an `output_schema`.
        """
        owner = f"agent {self.name!r}"
        require(self.finish_tool is not None, owner, "output_checks", "needs an output_schema, whose outputs it checks")
        object.__setattr__(self, "output_checks", (*self.output_checks, check_of(check, owner)))
        return check

    def is_inline(self, tool: AnyTool | None) -> bool:
        """Return whether the deployed function that calls the model also runs this tool. Sub-agent tools never run
        inline."""
        return tool is not None and tool.agent is None and (tool.inline or self.inline_tools)

    @contextmanager
    def override(self, *, deps: Any) -> Iterator[None]:
        """Give this agent's tools `deps` (the value, not a function) in this process until the block ends. Meant for
        tests. Raises `DefinitionError` if the agent declares no `deps`."""
        require(
            self.deps is not None, f"agent {self.name!r}", "deps", "is not declared, so there is nothing to override"
        )
        before = self.overridden_deps
        object.__setattr__(self, "overridden_deps", deps)
        try:
            yield
        finally:
            object.__setattr__(self, "overridden_deps", before)

    @property
    def profile(self) -> str:
        """The resource profile whose functions execute the agent when deployed. It is the shared default unless the
        agent requests resources."""
        return self.name if self.resources else DEFAULT_PROFILE

    def _check_schemas(self, owner: str) -> None:
        try:
            check_json(self.initial_state(), "the default state", MAX_STATE_BYTES)
        except ValidationError as error:
            missing = ", ".join(".".join(map(str, e["loc"])) or e["msg"] for e in error.errors())
            problem = f"every field needs a valid default; fields without one: {missing}"
            raise DefinitionError(owner, "state_schema", problem) from error
        except Exception as error:
            problem = f"it must be possible to create it without arguments, and the result must be JSON: {error!r}"
            raise DefinitionError(owner, "state_schema", problem) from error
        try:
            _ = self.finish_tool
        except (DefinitionError, PydanticUserError, NameError) as error:
            raise DefinitionError(owner, "output_schema", f"cannot be converted to a JSON schema: {error}") from error

    def _check_tools(self, owner: str) -> None:
        valid = isinstance(self.tools, Sequence) and not isinstance(self.tools, str)
        require(valid, owner, "tools", "must be a list of tools")
        listed = [item for item in self.tools if not (isinstance(item, Tool) and item.kind == "handoff")]
        object.__setattr__(self, "tools", (*listed, *handoff_tools(self.handoffs, owner, self)))
        object.__setattr__(self, "handoffs", tuple(self.handoffs))
        seen: set[str] = set()
        for index, item in enumerate(self.tools):
            if not isinstance(item, Tool):
                advice = "wrap it in create_sub_agent_tool" if isinstance(item, Agent) else "decorate it with @tool"
                raise DefinitionError(owner, f"tools[{index}]", f"{item!r} is not a tool: {advice}")
            problem = "the finish tool comes from output_schema; do not list it"
            require(item.kind != "finish", owner, f"tools[{index}]", problem)
            require(item.name not in seen, owner, f"tools[{index}]", f"two tools are named {item.name!r}")
            seen.add(item.name)
        below: dict[str, Agent[Any, Any]] = {self.name: self}
        stack: list[Agent[Any, Any]] = [self]
        while stack:
            for child in (t.agent for t in stack.pop().tools if t.agent is not None):
                known = below.setdefault(child.name, child)
                problem = f"two agents in this tree are named {child.name!r}: a session finds its agent by name"
                require(known is child, owner, "tools", problem)
                stack.append(child)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function of a function agent directly, without a session or a stream. Nothing is stored."""
        if self.function is None:
            raise TypeError(f"agent {self.name!r} is not a function agent: run it with an executor")
        return self.function(*args, **kwargs)

    @cached_property
    def finish_tool(self) -> AnyTool | None:
        """The tool `__finish__`, if there is an output schema. None for a function agent, whose output is its
        function's result."""
        schema: Any = self.output_schema
        return None if schema is None or self.function is not None else create_finish_tool(schema)

    def find_tool(self, name: str) -> AnyTool | None:
        """Return the tool that the model calls `name`, or the function of a function agent. None if the agent does not
        have it."""
        if self.function is not None and self.function.name == name:
            return self.function
        return next((t for t in self.tools if t.name == name), None)

    def find_agent(self, agent_type: str) -> Agent[Any, Any] | None:
        """Return the agent with that name: this agent, or one at any depth that it calls or hands over to. None if no
        agent has it."""
        stack: list[Agent[Any, Any]] = [self]
        seen: set[str] = set()
        while stack:
            agent = stack.pop()
            if agent.name == agent_type:
                return agent
            if agent.name not in seen:
                seen.add(agent.name)
                stack.extend(t.agent for t in agent.tools if t.agent is not None)
        return None

    def initial_state(self) -> JsonObject:
        """Return the defaults of the state schema as JSON, in the form that `core.tracker` stores."""
        schema: Any = self.state_schema
        state: JsonObject = {} if schema is None else schema().model_dump(mode="json", round_trip=True, by_alias=False)
        return state

    def fingerprint(self) -> str:
        """Return a digest of the prompt, model settings, tools and output schema. A run records it, which reveals a
        deployment during the run."""
        return self._fingerprint

    @cached_property
    def _fingerprint(self) -> str:
        config = self.llm_config
        tools = [*self.tools, self.function] if self.function is not None else self.tools
        reported: dict[str, Any] = {
            "prompt": self.system_prompt if isinstance(self.system_prompt, str) else "<function>",
            "model": config.model_dump(mode="json", exclude={"adapter"})
            if isinstance(config, LLMConfig)
            else "<function>",
            "tools": [[t.name, t.description, t.parameters] for t in tools],
            "output": parameters_of(self.output_schema) if self.output_schema is not None else None,  # type: ignore[arg-type]
        }
        if self.guards:
            reported["guards"] = [guard.name for guard in self.guards]
        if self.reminders:
            reported["reminders"] = [one if isinstance(one, str) else "<function>" for one in self.reminders]
        if self.handoffs:
            targets = (tool.agent for tool in self.tools if tool.kind == "handoff")
            reported["handoffs"] = [target.fingerprint() for target in targets if target is not None]
        return hashlib.sha256(dumps(reported).encode()).hexdigest()[:16]


AnyAgent = Agent[Any, Any]


def define_agent(**config: Any) -> Agent[Any, Any]:
    """Return `Agent(**config)`, for callers who prefer a factory. Raises `DefinitionError` for an unknown field or a
    missing name."""
    owner = f"agent {config.get('name')!r}"
    known = [*(f.name for f in fields(Agent)), "model"]
    for name in config:
        require(name in known, owner, name, f"no such field; the fields are {', '.join(known)}")
    require("name" in config, owner, "name", "is missing")
    return Agent(**config)
