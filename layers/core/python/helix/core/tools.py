"""Tools: the functions that a model can call. A definition is data plus one function.

Law: a tool's identity is its name. Whether a call may run again after a crash is declared here (`on_unknown`), not
guessed by the engine.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Any, Generic, Literal, TypedDict, TypeVar, Unpack, cast, get_args, overload

from pydantic import BaseModel, PydanticUserError

from helix.core.checks import is_int, is_model, is_number, is_plain_function, require
from helix.core.context import ToolContext
from helix.core.errors import DefinitionError
from helix.core.json import JsonObject
from helix.core.signatures import parameters_of, read_signature

if TYPE_CHECKING:
    from helix.core.agents import Agent

SUBAGENT_TOOL_PREFIX = "subagent__"
FINISH_TOOL_NAME = "__finish__"
NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
DEFAULT_TOOL_TIMEOUT_S = 60.0

In = TypeVar("In", bound=BaseModel)
Kind = Literal["tool", "client", "subagent", "finish"]
OnUnknown = Literal["retry", "skip", "ask"]
Approval = bool | Callable[[Any], bool | str]
Execute = Callable[[Any, ToolContext[Any]], Any]


@dataclass(frozen=True, eq=False)
class Tool(Generic[In]):
    """A tool definition. Make one with `@tool`, `define_tool` or `create_sub_agent_tool`."""

    name: str
    """The name by which the model calls the tool, `[A-Za-z0-9_-]{1,64}`."""
    description: str
    """The text by which the model chooses the tool. It may be empty for `__finish__` only."""
    input_schema: type[In]
    """The pydantic model of the arguments. They are validated before `execute`, and a mismatch is a failed result."""
    execute: Execute | None = None
    """The function `(input, context) -> result`, async or sync. A sync one runs in a thread. None for client and
    sub-agent tools."""
    output_schema: type[BaseModel] | None = None
    """The pydantic model that results are validated against. None accepts any JSON."""
    kind: Kind = "tool"
    """The executor of a call: for `tool` the function `execute`, for `client` the caller of the run, for `subagent` a
    run of `agent`. A call of `finish` is not executed: its input is the run's output."""
    agent: Agent[Any, Any] | None = None
    """The agent that a sub-agent tool runs. None for other kinds."""
    finish_with: bool = False
    """Whether a successful result becomes the run's output and completes the run."""
    require_approval: Approval = False
    """True, or a function of the validated input: the run pauses until someone answers. A text that the function
    returns is the reason, shown to the person who is asked; an empty one means no. If the function raises, approval is
    required."""
    timeout_s: float = DEFAULT_TOOL_TIMEOUT_S
    """The bound of one execution in seconds. For a sub-agent tool, how long the call waits for the sub-agent."""
    on_unknown: OnUnknown = "retry"
    """The policy for a call that was started and has no result after its deadline, because its process died. `retry`
    runs it again (it is idempotent, or uses `ctx.idempotency_key`). `skip` answers the model that the outcome is
    unknown. `ask` pauses for a person."""
    retries: int = 0
    """The number of times that an execution that raises is repeated within the same claim, after 0.5, 1, 2, ...
    seconds. At most 10."""
    retry_timeouts: bool = False
    """Whether an execution that took longer than `timeout_s` is repeated too. Its outcome is unknown, so this needs
    `on_unknown="retry"`."""
    strict: bool = False
    """Whether the provider is asked to constrain the arguments to the schema, if it can."""
    inline: bool = False
    """Whether the tool is quick and trusted: deployed, it may run beside the model call instead of in a worker of its
    own."""
    function: Callable[..., Any] | None = None
    """The decorated function, which a direct call of the tool runs. None if the tool was not made from one."""
    parameters: JsonObject = field(init=False)
    """The JSON schema of `input_schema`, as the model sees it."""

    def __post_init__(self) -> None:
        owner = f"tool {self.name!r}"
        valid_name = isinstance(self.name, str) and NAME.fullmatch(self.name) is not None
        require(valid_name, owner, "name", "must be 1 to 64 letters, digits, '_' or '-'")
        require(self.kind in get_args(Kind), owner, "kind", f"must be one of {get_args(Kind)}")
        reserved = self.name == FINISH_TOOL_NAME or self.name.startswith(SUBAGENT_TOOL_PREFIX)
        problem = f"{FINISH_TOOL_NAME!r} and the prefix {SUBAGENT_TOOL_PREFIX!r} are reserved"
        require(self.kind in ("subagent", "finish") or not reserved, owner, "name", problem)
        require(isinstance(self.description, str), owner, "description", "must be a text")
        problem = "is empty: give a docstring or description, the model chooses by it"
        require(bool(self.description.strip()) or self.kind == "finish", owner, "description", problem)
        require(is_model(self.input_schema), owner, "input_schema", "must be a pydantic model class")
        require(
            self.output_schema is None or is_model(self.output_schema),
            owner,
            "output_schema",
            "must be a pydantic model class",
        )
        problem = "must be a function, or 'client' for a tool that the client executes"
        require(self.kind != "tool" or callable(self.execute), owner, "execute", problem)
        problem = "must be True, False, or a plain function of the validated input"
        approval = self.require_approval
        require(isinstance(approval, bool) or is_plain_function(approval), owner, "require_approval", problem)
        problem = "a client tool waits for the client already; drop one of the two"
        require(self.kind != "client" or not approval, owner, "require_approval", problem)
        valid = is_number(self.timeout_s) and 0 < self.timeout_s < inf
        require(valid, owner, "timeout_s", "must be a number of seconds, more than 0")
        require(self.on_unknown in get_args(OnUnknown), owner, "on_unknown", "must be 'retry', 'skip' or 'ask'")
        require(is_int(self.retries) and 0 <= self.retries <= 10, owner, "retries", "must be between 0 and 10")
        for flag in ("finish_with", "retry_timeouts", "strict", "inline"):
            require(isinstance(getattr(self, flag), bool), owner, flag, "must be True or False")
        problem = "needs retries=1 or more, and on_unknown='retry': what timed out may have happened"
        retried = self.retries > 0 and self.on_unknown == "retry"
        require(not self.retry_timeouts or retried, owner, "retry_timeouts", problem)
        try:
            object.__setattr__(self, "parameters", parameters_of(self.input_schema))
        except (PydanticUserError, NameError) as error:
            raise DefinitionError(owner, "input_schema", f"no JSON schema can be made of it: {error}") from error

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the decorated function itself, as a unit test of a tool does."""
        if self.function is None:
            raise TypeError(f"tool {self.name!r} was not made from a function")
        return self.function(*args, **kwargs)


AnyTool = Tool[Any]


def is_sub_agent_tool(name: str) -> bool:
    return name.startswith(SUBAGENT_TOOL_PREFIX)


def is_finish_tool(name: str) -> bool:
    return name == FINISH_TOOL_NAME


class ToolOptions(TypedDict, total=False):
    """The options that any tool takes."""

    output_schema: type[BaseModel] | None
    """See `Tool.output_schema`."""
    finish_with: bool
    """See `Tool.finish_with`."""
    require_approval: Approval
    """See `Tool.require_approval`."""
    timeout_s: float
    """See `Tool.timeout_s`."""
    on_unknown: OnUnknown
    """See `Tool.on_unknown`."""
    retries: int
    """See `Tool.retries`."""
    retry_timeouts: bool
    """See `Tool.retry_timeouts`."""
    strict: bool
    """See `Tool.strict`."""
    inline: bool
    """See `Tool.inline`."""


_OPTIONS = ("name", "description", *ToolOptions.__annotations__)


def define_tool(
    *,
    name: str,
    description: str,
    input_schema: type[In],
    execute: Callable[[In, ToolContext[Any]], Any] | Literal["client"],
    **options: Unpack[ToolOptions],
) -> Tool[In]:
    """Make a tool from its parts, which are the fields of `Tool`. `execute="client"` is a tool that the client
    executes. Raises `DefinitionError` naming the field that is wrong."""
    client = isinstance(execute, str) and execute == "client"
    return Tool(
        name=name,
        description=description,
        input_schema=input_schema,
        execute=None if client else cast(Execute, execute),
        kind="client" if client else "tool",
        **options,
    )


@overload
def tool(function: Callable[..., Any], /) -> Tool[BaseModel]: ...
@overload
def tool(
    *, name: str | None = None, description: str | None = None, **options: Unpack[ToolOptions]
) -> Callable[[Callable[..., Any]], Tool[BaseModel]]: ...
def tool(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Make a tool of a function: schema from the signature, description from the docstring.

    A parameter annotated `ToolContext` (or `ToolContext[State]`) receives the context and is hidden from the model.
    Options are the fields of `Tool`. Raises `DefinitionError` when the function cannot be a tool.
    """
    localns = sys._getframe(1).f_locals
    if function is not None:
        return from_function(function, localns, options)
    return lambda decorated: from_function(decorated, localns, options)


def from_function(function: Callable[..., Any], localns: dict[str, Any], options: Mapping[str, Any]) -> Tool[BaseModel]:
    """Do what `tool(**options)(function)` does. `localns` resolves annotations that name types of an enclosing
    function."""
    if not callable(function) or isinstance(function, (Tool, type)):
        raise DefinitionError("tool", "function", f"{function!r} is not a function that could become a tool")
    given = dict(options)
    name = given.pop("name", None) or getattr(function, "__name__", "")
    owner = f"tool {name!r}"
    for key in given:
        require(key in _OPTIONS, owner, key, f"no such option; there are {', '.join(_OPTIONS)}")
    plain = inspect.unwrap(function)
    generator = inspect.isgeneratorfunction(plain) or inspect.isasyncgenfunction(plain)
    require(not generator, owner, "function", "must return its result, not yield it: report progress with ctx.emit")
    signature = read_signature(function, owner, ToolContext, localns)
    description = given.pop("description", None) or (inspect.getdoc(function) if hasattr(function, "__name__") else "")
    if is_model(signature.returns) and signature.returns is not BaseModel:
        given["output_schema"] = given.get("output_schema") or signature.returns

    def execute(arguments: BaseModel, context: ToolContext[Any]) -> Any:
        values = {key: getattr(arguments, attribute) for key, attribute in signature.attributes.items()}
        if signature.context is not None:
            values[signature.context] = context
        return function(**values)

    async def execute_async(arguments: BaseModel, context: ToolContext[Any]) -> Any:
        result = execute(arguments, context)
        return await result if inspect.isawaitable(result) else result

    asynchronous = any(map(inspect.iscoroutinefunction, (function, plain, getattr(function, "__call__", None))))  # noqa: B004
    return Tool(
        name=name,
        description=description or "",
        input_schema=signature.schema,
        execute=execute_async if asynchronous else execute,
        function=function,
        **given,
    )


def create_finish_tool(schema: type[BaseModel]) -> Tool[BaseModel]:
    """Make the tool `__finish__`, whose input is the agent's output. It never executes."""
    return Tool(
        name=FINISH_TOOL_NAME,
        description="Call this once, when the task is done, with the final answer.",
        input_schema=schema,
        kind="finish",
    )


def create_sub_agent_tool(
    agent: Agent[Any, Any],
    input_schema: type[BaseModel] | None = None,
    *,
    description: str | None = None,
    timeout_s: float = 3600,
    require_approval: Approval = False,
) -> Tool[Any]:
    """Make a tool that runs `agent` in a session of its own, on this run's stream, and returns its output.

    The model calls it `subagent__<agent name>`. The child's user message is the input's field `message` if there is no
    other field, else the JSON of the validated input. Without `input_schema` the input is one string, `message`.
    `require_approval` is as for `Tool`: nothing of the sub-agent starts before the answer. Raises `DefinitionError` if
    the agent has no `output_schema` or the prefixed name exceeds 64 characters.
    """
    from helix.core.agents import Agent as AgentType

    if not isinstance(agent, AgentType):
        raise DefinitionError("sub-agent tool", "agent", f"{agent!r} is not an Agent")
    owner = f"sub-agent tool for {agent.name!r}"
    problem = "a sub-agent must have one: its output is the tool's result"
    require(agent.output_schema is not None, owner, "output_schema", problem)
    return Tool(
        name=SUBAGENT_TOOL_PREFIX + agent.name,
        description=description or agent.description or f"Delegate a task to the agent {agent.name!r}.",
        input_schema=input_schema or SubAgentInput,
        kind="subagent",
        agent=agent,
        timeout_s=timeout_s,
        require_approval=require_approval,
    )


class SubAgentInput(BaseModel):
    """What a sub-agent gets when its tool names no schema of its own."""

    message: str
    """The task for the sub-agent, which becomes its user message."""
