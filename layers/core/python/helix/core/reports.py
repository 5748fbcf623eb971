"""Replies of the WebSocket protocol about agents, steps and costs. `core.replies` has the table of all replies."""

from __future__ import annotations

from typing import Literal

from pydantic import ConfigDict

from helix.core.messages import Edit, Record
from helix.core.usage import Usage


class Attempt(Record):
    """An attempt to buy a step: one model call, and what readers of the stream saw of it."""

    attempt: int
    """The number of the attempt within its step, starting at 1."""
    run_id: str
    """The run that made the attempt."""
    turn: int
    """The number of that run in its session."""
    outcome: Literal["open", "answered", "summary", "failed", "lost", "cancelled", "dead"]
    """`open` while the attempt is in progress, otherwise as in `helix.services.session_calls.ModelCall`."""
    model: str | None
    """The model that answered, or else the agent's configured model. None if not known."""
    head: str | None
    """The id of the request head that was sent (`get_context` returns the head of a step). None if not recorded."""
    output_limit: int | None
    """The maximum number of tokens in the answer, if budgets set it. None if they did not."""
    usage: Usage
    """The usage that the provider reported. Zero for `open`, `cancelled` and `dead` attempts: see `assumed_usd`."""
    assumed_usd: float
    """The US dollars reserved for an attempt whose usage is not known, which count as spent. Otherwise 0."""
    assumed_tokens: int
    """The tokens reserved for an attempt whose usage is not known, which count as used. Otherwise 0."""
    error: str | None
    """The error of a `failed` attempt."""
    at: float
    """The time when the outcome was recorded, in Unix seconds. 0 while the attempt is `open`."""
    text: str
    """The text that readers of the stream saw, up to 20,000 characters."""
    dropped: list[str]
    """The texts of earlier failed model calls within this attempt, which readers saw and were told to discard."""
    discarded: bool
    """Whether readers were told to discard `text`."""
    reason: str | None
    """The reason that readers were given when `text` was discarded."""
    taken_over_by: str | None
    """The run that took over after the worker of this attempt died. None if no run took over."""


class StepCall(Record):
    """A tool call of a step, and its result."""

    call_id: str
    """The id of the call, unique in its session."""
    tool_name: str
    """The name by which the model called the tool."""
    state: Literal["waiting", "asked", "approved", "claimed", "done"]
    """The state as in `helix.core.entries.CallRow`. `waiting`: no worker has claimed the call yet."""
    by: str | None
    """The source of the result, as in `helix.core.entries.CallRow`. None until there is a result."""
    success: bool | None
    """Whether the call succeeded. None until there is a result."""
    starts: int
    """The number of times that the stream shows the start of the call."""
    edited: Edit | None
    """The edit of the arguments. None if the model's arguments were executed."""
    ruling: Literal["asked", "executed_again", "reported", "unknown"] | None
    """The decision about a call whose outcome was unknown. None if the outcome was known.

    asked: a person has been asked and has not answered yet.
    executed_again: the tool was started once more.
    reported: a person gave the result.
    unknown: the model was told that the outcome is unknown.
    """


class StepFound(Record):
    """The result of `get_step`."""

    session_id: str
    """The requested session."""
    step: int
    """The number of the requested step."""
    attempts: list[Attempt]
    """All attempts to buy the step, oldest first."""
    calls: list[StepCall]
    """The calls of the answer, in the model's order. Empty if no attempt was answered."""
    complete: bool
    """Whether the stream of the step was read completely. If not, texts and `starts` cover only its first messages."""


class CostLine(Record):
    """A line of a session's cost. Empty fields are left out."""

    model_config = ConfigDict(json_schema_serialization_defaults_required=False)

    service: str
    """The service that charges: `Model`, `Tool`, or an AWS service. `Books` is a difference from the run rows."""
    what: str
    """The billed item: a model's name and the outcome, a tool's name, or an AWS function or kind of request."""
    session_id: str
    """The session that the line belongs to: the requested session, or a sub-agent's."""
    quantity: float
    """The billed quantity, in `unit`."""
    unit: str = ""
    """The unit of `quantity`: `tokens`, `requests`, `GB-seconds` and others."""
    basis: Literal["measured", "counted", "estimated"]
    """The source of `quantity`. `measured`: a provider or a tool reported it. `counted`: the stored rows were counted.
    `estimated`: `how` explains the estimate."""
    how: str = ""
    """The derivation of the numbers. Empty if it is obvious."""
    run_id: str | None = None
    """The run that caused the cost. None for the whole session."""
    step: int | None = None
    """The step that caused the cost. None for more than one step."""
    attempt: int | None = None
    """The attempt at `step` that caused the cost. None if it is not about one attempt."""
    usd: float
    """The cost of this line, in US dollars."""


class CostFound(Record):
    """The result of `get_cost`: the cost of a session and of its sub-agents' sessions."""

    session_id: str
    """The requested session."""
    usd: float
    """The sum of all lines, in US dollars."""
    services: dict[str, float]
    """The sum of the lines of each service, in US dollars."""
    agrees: bool
    """Whether the model lines add up to the amounts in the run rows."""
    prices: str
    """The region and date of the price list behind the AWS lines."""
    left_out: list[str]
    """Descriptions of the costs that no line covers."""
    lines: list[CostLine]
    """The lines for models and tools, then those for AWS if the session ran there."""


class RunMoney(Record):
    """One run's use of a budget, in the budget's unit."""

    spent: float
    """The amount that the run has spent. A call whose usage is not known counts with its reservation."""
    reserved: float
    """The amount that the run has drawn from the budget but not spent. 0 after the run has ended."""


class BudgetFound(Record):
    """A budget that applies to a session, in its current window. All amounts are in `unit`."""

    budget: str
    """The name of the budget: `<scope>/<period>/<unit>`, where `micros` is the unit of money."""
    scope: str
    """The scope: `global`, `agent:<root agent>`, `tenant:<user id>` or `session:<root session id>`."""
    period: str
    """The length of a window: `hour`, `day`, `week`, `month` or `total`."""
    unit: Literal["usd", "tokens"]
    """The unit of the amounts here: US dollars or tokens."""
    window: str
    """The key of the current window, in UTC: `2026-11-21` for a day, `2026-W47` for a week, `total` for a total."""
    resets_at: float | None
    """The time when the window ends, in Unix seconds. None for `total`, which never ends."""
    limit: float | None
    """The limit of the window. None if others share the budget and the caller is not an operator."""
    used: float | None
    """The amount that all runs have spent or reserved in this window. None if `limit` is hidden."""
    exhausted: bool
    """Whether nothing remains in this window."""
    on_exceeded: Literal["fail", "pause"] | None
    """Whether a run fails or pauses when the budget has no room. None: the agent's `on_budget` decides."""
    run: RunMoney
    """The use by the session's current run."""


class BudgetList(Record):
    """The result of `get_budgets`."""

    session_id: str
    """The requested session."""
    budgets: list[BudgetFound]
    """All budgets that apply to the session."""


class BudgetChanged(Record):
    """The result of `change_budget`."""

    budget: str
    """The name of the budget."""
    unit: Literal["usd", "tokens"]
    """The unit of `limit`: US dollars or tokens."""
    limit: float
    """The new limit."""


class WaitingRun(Record):
    """A run that waits for a slot. Times are in Unix seconds."""

    run_id: str
    """The run that waits."""
    session_id: str
    """The session of the run."""
    priority: int
    """The priority of the run, from -999 to 999. The highest priority gets the next free slot."""
    since: float
    """The time when the run was claimed. Among runs of the same priority, the oldest goes first."""
    expires_at: float
    """The time when the wait times out and the run is ended."""


class FleetProcess(Record):
    """A worker process, as in `helix.fleet.ProcessInfo`. There are none if functions execute the runs."""

    process_id: str
    """The id of the process. It stays the same across restarts."""
    status: str
    """`starting`, `running`, `stopping`, `stopped`, `failed` (given up) or `crashed` (about to be restarted)."""
    pid: int | None
    """The operating system's process id. None while no process runs."""
    cpu_percent: float
    """The CPU usage in percent of one core: 200 means two cores."""
    memory_mb: float
    """The memory of the process and its children in MiB."""
    started_at: float | None
    """The time of the last start, in Unix seconds. None if the process was never started."""
    restart_count: int
    """The number of restarts."""
    last_error: str | None
    """The reason for the last crash. None if the process never crashed, or was started manually since."""


class FleetCheck(Record):
    """The latest result of a health check. The check `llm` evaluates the agent's model calls."""

    check: str
    """The name of the check."""
    check_type: str
    """`readiness` (no new work while it fails), `liveness` (restart on failure) or `custom`."""
    status: str
    """`healthy`, `degraded`, `unhealthy` or `unknown`."""
    message: str
    """The message that the check returned. It may be empty."""
    checked_at: float | None
    """The time of the result in Unix seconds. None before the first check."""


class FleetDecision(Record):
    """A scaling decision: a change of an agent's limit, or a change that a rule asked for but that was blocked."""

    at: float
    """The time of the decision, in Unix seconds."""
    before: int
    """The number of instances before the decision."""
    after: int
    """The number of instances that the decision sets."""
    action: Literal["up", "down", "hold"]
    """The direction from `before` to `after`. `hold`: both are equal."""
    rule: str
    """The rule that decided, as in `helix.core.scaling`. `operator` means a person."""
    reason: str
    """A human-readable explanation."""
    trigger: str
    """The event that triggered `govern`: an alarm's name, `schedule` or `monitor`. Empty if `govern` did not decide."""
    blocked_by: str | None
    """The reason why `wanted` was not applied, as in `helix.core.scaling`. None if it was."""
    wanted: int | None
    """The number of instances that the rules asked for, if `blocked_by` prevented it."""
    metrics: dict[str, float]
    """The metrics that the decision was based on."""
    applied: bool
    """Whether the decision took effect."""


class FleetAgent(Record):
    """An agent in the fleet: its limit, its runs and processes, its health, and its newest scaling decisions."""

    agent: str
    """The name of the agent."""
    status: Literal["running", "stopped"]
    """`stopped`: an operator or a budget has stopped the agent, and no new runs start."""
    stopped_by: str | None
    """The budget that stopped the agent, such as `budget agent:poet/day/micros`. None if no budget did."""
    limit: int | None
    """The maximum number of concurrent runs. None: no limit."""
    running: int | None
    """The number of active runs. None without a `limit`, because such runs are not counted."""
    queued: int
    """The number of runs that wait for a slot."""
    wanted: int | None
    """The number of instances that an operator or the registration requested. None if the fleet does not manage the
    agent."""
    min_instances: int | None
    """The lower bound of `wanted`. None if the agent does not set one."""
    max_instances: int | None
    """The upper bound of `wanted`. None if the agent does not set one."""
    waiting: list[WaitingRun]
    """The first runs in the queue, at most as many as the request asked for."""
    processes: list[FleetProcess]
    """The worker processes of the agent, oldest first."""
    checks: list[FleetCheck]
    """The latest result of each health check."""
    decisions: list[FleetDecision]
    """The latest scaling decisions, newest first, at most as many as the request asked for."""


class FleetFound(Record):
    """The result of `get_fleet`. Times are in Unix seconds."""

    now: float
    """The service's current time."""
    limit: int | None
    """The maximum number of concurrent runs of all agents together. None: no limit."""
    running: int | None
    """The number of active runs of all agents. None without a `limit`."""
    queued: int
    """The number of runs of all agents that wait for a slot."""
    ready: bool
    """Whether the service accepts work. False if an operator closed it."""
    reason: str
    """The operator's reason for `ready`. Empty if no operator has set it."""
    swept_at: float | None
    """The time of the last sweep. None before the first."""
    agents: list[FleetAgent]
    """A page of agents, sorted by name."""
    cursor: str | None
    """The value of `after` for the next page. None on the last page."""


class UsageLine(Record):
    """The usage of one agent with one model and operation."""

    agent: str
    """The name of the agent."""
    model: str
    """The model. `-` if not known, and for tools."""
    operation: str
    """`completion` for model calls, `tool` for usage that tools reported."""
    input: int
    """The prompt tokens, including `cached` tokens."""
    output: int
    """The answer tokens."""
    cached: int
    """The prompt tokens that the provider read from its cache."""
    lost: int = 0
    """The prompt tokens that the provider's cache should have had and did not."""
    calls: int
    """The number of model calls."""
    runs: int
    """The number of runs that have ended."""
    failed: int
    """The number of those `runs` that failed with an error. Aborted runs do not count."""
    unpriced: int
    """The number of calls without a known price. A single such call makes all of its run's calls to that model
    count."""
    assumed_tokens: int
    """The maximum number of tokens that calls with an unknown outcome may have used."""
    usd: float
    """The cost in US dollars, without the `unpriced` calls."""
    assumed_usd: float
    """The maximum cost in US dollars of calls with an unknown outcome."""


class UsageFound(Record):
    """The result of `get_usage`."""

    user: str
    """The user."""
    since: str | None
    """The first hour that is included, in UTC (`2026-11-21T14`). None: all hours."""
    usd: float
    """The sum of all lines, in US dollars."""
    lines: list[UsageLine]
    """The usage by agent, model and operation, sorted by these."""
