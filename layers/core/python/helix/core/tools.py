"""Tools: the functions that a model can call. A definition is data plus one function.

Law: a tool is identified by its name. The definition declares whether a call may run again after a crash
(`on_unknown`); the engine never guesses.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Any, Generic, Literal, TypedDict, TypeVar, Unpack, cast, get_args, overload

from pydantic import BaseModel, PydanticUserError

from helix.core.checks import is_int, is_model, is_number, is_plain_function, require
from helix.core.context import ToolContext
from helix.core.docstrings import read_docstring
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
Kind = Literal["tool", "client", "subagent", "handoff", "finish"]
OnUnknown = Literal["retry", "skip", "ask"]
OnAnswerTimeout = Literal["deny", "fail"]
RemindS = float | Sequence[float] | None
Approval = bool | Callable[[Any], bool | str]
Execute = Callable[[Any, ToolContext[Any]], Any]


MAX_REMINDERS = 20
REMIND_PROBLEM = f"must be 1 to {MAX_REMINDERS} numbers of seconds, more than 0 and less than the time limit, or None"


def reminders_of(remind_s: Any, limit_s: float | None) -> list[float] | None:
    """Return the times of the reminders of a wait, in seconds after its beginning. None: `remind_s` is not valid."""
    if remind_s is None:
        return []
    given = list(remind_s) if isinstance(remind_s, list | tuple) else [remind_s]
    most = inf if limit_s is None else limit_s
    valid = 1 <= len(given) <= MAX_REMINDERS and all(is_number(one) and 0 < one < most for one in given)
    return sorted(float(one) for one in {*given}) if valid else None


@dataclass(frozen=True, eq=False)
class Tool(Generic[In]):
    """A tool definition. Make one with `@tool`, `define_tool` or `create_sub_agent_tool`."""

    name: str
    """The name by which the model calls the tool, `[A-Za-z0-9_-]{1,64}`."""
    description: str
    """The description that the model sees when it chooses a tool. Only `__finish__` may have an empty one."""
    input_schema: type[In]
    """The pydantic model of the arguments. They are validated before `execute`; a mismatch becomes a failed result."""
    execute: Execute | None = None
    """The function `(input, context) -> result`, async or sync. A sync one runs in a thread. None for client and
    sub-agent tools."""
    output_schema: type[BaseModel] | None = None
    """The pydantic model that results are validated against. None accepts any JSON."""
    kind: Kind = "tool"
    """The executor of a call: for `tool` the function `execute`, for `client` the caller of the run, for `subagent` a run
    of `agent`. A call of `handoff` or `finish` is not executed: the next step is made by the agent `hands_to`, or the
    input becomes the run's output."""
    agent: Agent[Any, Any] | None = None
    """The agent that a sub-agent tool runs, or that a handoff tool names by its definition. None for other tools."""
    hands_to: str = ""
    """The name of the agent that a handoff tool gives the conversation to. Empty for other kinds."""
    finish_with: bool = False
    """Whether a successful result becomes the run's output and completes the run."""
    require_approval: Approval = False
    """Whether the run pauses for approval before a call: a bool, or a function of the validated input. If the function
    returns a string, it is shown as the reason; an empty string means no approval. If the function raises, approval is
    required."""
    timeout_s: float = DEFAULT_TOOL_TIMEOUT_S
    """The timeout of one execution in seconds. For a sub-agent tool, how long the call waits for the sub-agent."""
    on_unknown: OnUnknown = "retry"
    """The policy for a call that was started but has no result after its deadline, because its process died. `retry`
    runs it again; the tool must be idempotent or use `ctx.idempotency_key`. `skip` tells the model that the outcome is
    unknown. `ask` pauses for a person's decision."""
    retries: int = 0
    """The number of retries within the same claim if an execution raises, after 0.5, 1, 2, ... seconds. At most 10."""
    retry_timeouts: bool = False
    """Whether to also retry an execution that exceeded `timeout_s`. Its outcome is unknown, so this requires
    `on_unknown="retry"`."""
    answer_timeout_s: float | None = None
    """The number of seconds that a call waits for its approval, for the client's result, or for a decision about an
    unknown outcome. None: forever. A sweep ends the wait, up to a minute late, or an hour on a stage at rest."""
    on_answer_timeout: OnAnswerTimeout = "deny"
    """The policy for a call that waited for `answer_timeout_s`. `deny`: the call fails, and the model reads why. `fail`:
    the run fails too."""
    remind_s: RemindS = None
    """The number of seconds after which a waiting call is recalled to people, or several of them. Each reminder is recorded
    once, on the stream and in the call's row, and calls the hook `on_reminder`. None: no reminders."""
    strict: bool | None = None
    """Whether the provider constrains the arguments to the schema. None: if the schema is closed and the model can
    (docs/guide/models.md#strict-schemas). False: never. True: as None, and before other tools where the provider limits
    their number."""
    inline: bool = False
    """Whether the tool is fast and trusted. When deployed, it may then run in the function that calls the model, rather
    than in its own worker."""
    later: bool = False
    """Whether the tool may call `ctx.later`, so that another system ends the call. A stage with such a tool has the HTTP
    function."""
    uses_deps: bool = True
    """Whether the tool may read `ToolContext.deps`, so that they are made before its first call. False if its function
    takes no context."""
    function: Callable[..., Any] | None = None
    """The decorated function, which calling the tool object runs. None if the tool was not created from a function."""
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
        require(isinstance(self.description, str), owner, "description", "must be a string")
        problem = "is empty: add a docstring or a description, because the model chooses tools by it"
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
        wait = self.answer_timeout_s
        valid = wait is None or (is_number(wait) and 0 < wait < inf)
        require(valid, owner, "answer_timeout_s", "must be a number of seconds, more than 0, or None")
        policies = get_args(OnAnswerTimeout)
        require(self.on_answer_timeout in policies, owner, "on_answer_timeout", "must be 'deny' or 'fail'")
        require(reminders_of(self.remind_s, wait) is not None, owner, "remind_s", REMIND_PROBLEM)
        require(is_int(self.retries) and 0 <= self.retries <= 10, owner, "retries", "must be between 0 and 10")
        for flag in ("finish_with", "retry_timeouts", "inline", "later"):
            require(isinstance(getattr(self, flag), bool), owner, flag, "must be True or False")
        require(self.strict in (None, True, False), owner, "strict", "must be True, False or None")
        problem = "needs retries=1 or more, and on_unknown='retry': what timed out may have happened"
        retried = self.retries > 0 and self.on_unknown == "retry"
        require(not self.retry_timeouts or retried, owner, "retry_timeouts", problem)
        require(self.kind == "tool" or not self.later, owner, "later", "needs a function that calls ctx.later")
        try:
            object.__setattr__(self, "parameters", parameters_of(self.input_schema))
        except (PydanticUserError, NameError) as error:
            raise DefinitionError(owner, "input_schema", f"cannot be converted to a JSON schema: {error}") from error

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the decorated function directly, for example in a unit test."""
        if self.function is None:
            raise TypeError(f"tool {self.name!r} was not made from a function")
        return self.function(*args, **kwargs)


AnyTool = Tool[Any]


def is_sub_agent_tool(name: str) -> bool:
    return name.startswith(SUBAGENT_TOOL_PREFIX)


def is_finish_tool(name: str) -> bool:
    return name == FINISH_TOOL_NAME


class ToolOptions(TypedDict, total=False):
    """The options that every tool accepts."""

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
    answer_timeout_s: float | None
    """See `Tool.answer_timeout_s`."""
    on_answer_timeout: OnAnswerTimeout
    """See `Tool.on_answer_timeout`."""
    remind_s: RemindS
    """See `Tool.remind_s`."""
    strict: bool | None
    """See `Tool.strict`."""
    inline: bool
    """See `Tool.inline`."""
    later: bool
    """See `Tool.later`."""


_OPTIONS = ("name", "description", *ToolOptions.__annotations__)


def define_tool(
    *,
    name: str,
    description: str,
    input_schema: type[In],
    execute: Callable[[In, ToolContext[Any]], Any] | Literal["client"],
    **options: Unpack[ToolOptions],
) -> Tool[In]:
    """Create a tool from the fields of `Tool`. With `execute="client"`, the client executes the tool. Raises
    `DefinitionError`, naming the invalid field."""
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
    """Create a tool from a function, with the schema from its signature and the description from its docstring.

    A docstring may describe the parameters in Google, NumPy or Sphinx style. These descriptions become part of the
    schema, unless the parameter has a `Field` with its own. A parameter annotated `ToolContext`
    (or `ToolContext[State]`, `ToolContext[State, Deps]`) receives the context and is hidden from the model. The
    options are fields of `Tool`. Raises `DefinitionError` if the function cannot be a tool.
    """
    localns = sys._getframe(1).f_locals
    if function is not None:
        return from_function(function, localns, options)
    return lambda decorated: from_function(decorated, localns, options)


def from_function(function: Callable[..., Any], localns: dict[str, Any], options: Mapping[str, Any]) -> Tool[BaseModel]:
    """Create a tool like `tool(**options)(function)`. `localns` resolves annotations that refer to types of an
    enclosing function."""
    if not callable(function) or isinstance(function, (Tool, type)):
        raise DefinitionError("tool", "function", f"{function!r} is not a function that could become a tool")
    given = dict(options)
    name = given.pop("name", None) or getattr(function, "__name__", "")
    owner = f"tool {name!r}"
    for key in given:
        require(key in _OPTIONS, owner, key, f"no such option; the options are {', '.join(_OPTIONS)}")
    plain = inspect.unwrap(function)
    generator = inspect.isgeneratorfunction(plain) or inspect.isasyncgenfunction(plain)
    require(not generator, owner, "function", "must return its result, not yield it: report progress with ctx.emit")
    documented = read_docstring(function)
    signature = read_signature(function, owner, ToolContext, localns, documented.parameters)
    description = given.pop("description", None) or documented.description
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
        description=description,
        input_schema=signature.schema,
        execute=execute_async if asynchronous else execute,
        uses_deps=signature.context is not None,
        function=function,
        **given,
    )


def create_finish_tool(schema: type[BaseModel]) -> Tool[BaseModel]:
    """Create the tool `__finish__`, whose input is the agent's output. It is never executed."""
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
    answer_timeout_s: float | None = None,
    on_answer_timeout: OnAnswerTimeout = "deny",
    remind_s: RemindS = None,
) -> Tool[Any]:
    """Create a tool that runs `agent` in its own session, on this run's stream, and returns its output. Without an output
    schema, it returns the text of its last answer.

    The model calls it `subagent__<agent name>`. The child's user message is the input field `message` if there is no
    other field, otherwise the validated input as JSON. Without `input_schema` the input is a single string, `message`.
    `require_approval` works as for `Tool`: the sub-agent does not start before the approval. `answer_timeout_s`,
    `on_answer_timeout` and `remind_s` are about that approval; the tools of the sub-agent have their own. Raises
    `DefinitionError` if the prefixed name exceeds 64 characters.
    """
    from helix.core.agents import Agent as AgentType

    if not isinstance(agent, AgentType):
        raise DefinitionError("sub-agent tool", "agent", f"{agent!r} is not an Agent")
    return Tool(
        name=SUBAGENT_TOOL_PREFIX + agent.name,
        description=description or agent.description or f"Delegate a task to the agent {agent.name!r}.",
        input_schema=input_schema or SubAgentInput,
        kind="subagent",
        agent=agent,
        timeout_s=timeout_s,
        require_approval=require_approval,
        answer_timeout_s=answer_timeout_s,
        on_answer_timeout=on_answer_timeout,
        remind_s=remind_s,
    )


class SubAgentInput(BaseModel):
    """The input of a sub-agent whose tool does not declare a schema."""

    message: str
    """The task for the sub-agent, which becomes its user message."""
