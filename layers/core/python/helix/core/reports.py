"""Replies of the WebSocket protocol about agents, steps and money. `core.replies` has the other replies."""

from __future__ import annotations

from typing import Literal

from pydantic import ConfigDict

from helix.core.json import JsonObject
from helix.core.messages import Edit, Record
from helix.core.usage import Usage


class Attempt(Record):
    """An attempt to buy a step: one call of the model, with what readers of the stream saw of it."""

    attempt: int
    """The number of the attempt within its step, from 1 on."""
    run_id: str
    """The run that made the attempt."""
    turn: int
    """The number of that run in its session."""
    outcome: Literal["open", "answered", "failed", "lost", "cancelled", "dead"]
    """`open` while the attempt goes on, otherwise as in `helix.services.session_calls.ModelCall`."""
    model: str | None
    """The model that answered, or that the agent names. None if it is not known."""
    usage: Usage
    """The usage that the provider reported. Zero for `open`, `cancelled` and `dead` attempts: see `assumed_usd`."""
    assumed_usd: float
    """The US dollars that were reserved for an attempt whose usage is not known. They count as spent. Otherwise 0."""
    assumed_tokens: int
    """The tokens that were reserved for an attempt whose usage is not known. They count as used. Otherwise 0."""
    error: str | None
    """The error of a `failed` attempt."""
    at: float
    """The time when the outcome was recorded, in Unix seconds. 0 while the attempt is `open`."""
    text: str
    """The text that readers of the stream were shown, at most its first 20,000 characters."""
    dropped: list[str]
    """The texts of earlier, failed model calls within this attempt. Readers were shown them and told to drop them."""
    discarded: bool
    """Whether readers were told to drop `text`."""
    reason: str | None
    """The reason that readers were given when `text` was discarded."""
    taken_over_by: str | None
    """The run that continued after the worker of this attempt died. None if no run took over."""


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
    """The number of times that readers of the stream saw the call begin."""
    edited: Edit | None
    """The author and the time of a change to the arguments. None if the model's arguments were executed."""
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
    """The session that was asked about."""
    step: int
    """The number of the step that was asked about."""
    attempts: list[Attempt]
    """All attempts to buy the step, oldest first."""
    calls: list[StepCall]
    """The calls of the answer, in the model's order. Empty if no attempt was answered."""
    complete: bool
    """Whether the stream of the step was read to its end. If not, texts and `starts` cover its first messages only."""


class CostLine(Record):
    """A line of a session's cost. A field that is empty is left out."""

    model_config = ConfigDict(json_schema_serialization_defaults_required=False)

    service: str
    """The service that is paid: `Model`, `Tool`, or a service of AWS. `Books` is a difference to the runs' rows."""
    what: str
    """The item: for a model its name and the outcome, for a tool its name, for AWS a function or a kind of request."""
    session_id: str
    """The session that the line belongs to: the one that was asked about, or a sub-agent's."""
    quantity: float
    """The amount that was used, in `unit`."""
    unit: str = ""
    """The unit of `quantity`: `tokens`, `requests`, `GB-seconds` and others."""
    basis: Literal["measured", "counted", "estimated"]
    """The source of `quantity`. `measured`: a provider or a tool reported it. `counted`: the stored rows were counted.
    `estimated`: `how` explains the estimate."""
    how: str = ""
    """An explanation of the numbers, where they need one."""
    run_id: str | None = None
    """The run that the line is about. None if it is about the whole session."""
    step: int | None = None
    """The step that the line is about. None if it is about more than one."""
    attempt: int | None = None
    """The attempt at `step` that the line is about. None if it is not about one attempt."""
    usd: float
    """The cost of this line, in US dollars."""


class CostFound(Record):
    """The result of `get_cost`: the cost of a session and of its sub-agents' sessions."""

    session_id: str
    """The session that was asked about."""
    usd: float
    """The sum of all lines, in US dollars."""
    services: dict[str, float]
    """The sum of the lines of each service, in US dollars."""
    agrees: bool
    """Whether the lines of the models add up to the amounts in the rows of the runs."""
    prices: str
    """The price list that the lines of AWS are computed with: its region and date."""
    left_out: list[str]
    """Items that cost money and appear in no line, in words."""
    lines: list[CostLine]
    """The lines of the models and tools, then those of AWS, if the session ran there."""


class RunMoney(Record):
    """The share of one run in a budget, in the budget's unit."""

    spent: float
    """The amount that the run has spent. Calls whose usage is not known count with their reservation."""
    reserved: float
    """The amount that the run has drawn from the budget and not spent. 0 once the run has ended."""


class BudgetFound(Record):
    """A budget that binds a session, in its current window. All amounts are in `unit`."""

    budget: str
    """The name of the budget: `<scope>/<period>/<unit>`, where the unit of money is `micros`."""
    scope: str
    """The scope: `global`, `agent:<root agent>`, `tenant:<user id>` or `session:<root session id>`."""
    period: str
    """The length of a window: `hour`, `day`, `week`, `month` or `total`."""
    unit: Literal["usd", "tokens"]
    """The unit of the amounts here: US dollars or tokens."""
    window: str
    """The key of the current window, in UTC: `2026-11-21` for a day, `2026-W47` for a week, `total` for a total."""
    resets_at: float | None
    """The end of the window, in Unix seconds. None for a total, which never ends."""
    limit: float | None
    """The limit of the window. None if others share the budget and the caller is not an operator."""
    used: float | None
    """The amount that all runs have spent and set aside in this window. None where `limit` is hidden."""
    exhausted: bool
    """Whether nothing remains in this window."""
    on_exceeded: Literal["fail", "pause"] | None
    """The end of a run that finds no room. None: the agent's `on_budget` decides."""
    run: RunMoney
    """The share of the session's current run."""


class BudgetList(Record):
    """The result of `get_budgets`."""

    session_id: str
    """The session that was asked about."""
    budgets: list[BudgetFound]
    """All budgets that bind the session."""


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
    """The priority of the run, from -999 to 999. A higher one gets the next free slot."""
    since: float
    """The time when the run was claimed. Among runs of the same priority, the oldest goes first."""
    expires_at: float
    """The time after which the run is ended, because it has waited too long."""


class FleetProcess(Record):
    """A worker process, as in `helix.fleet.ProcessInfo`. Where functions execute the runs, there are no processes."""

    process_id: str
    """The id of the process. It stays the same when the process is started again."""
    status: str
    """`starting`, `running`, `stopping`, `stopped`, `failed` (given up) or `crashed` (about to be started again)."""
    pid: int | None
    """The process id of the operating system. None while no process runs."""
    cpu_percent: float
    """The processor usage, in percent of one core: 200 is two cores."""
    memory_mb: float
    """The memory of the process and of its children, in MiB."""
    started_at: float | None
    """The time of the last start, in Unix seconds. None if the process was never started."""
    restart_count: int
    """The number of starts after the first."""
    last_error: str | None
    """The reason for the last crash. None if the process never crashed, or was started by hand since."""


class FleetCheck(Record):
    """The newest result of a health check. The check `llm` judges the agent's model calls."""

    check: str
    """The name of the check."""
    check_type: str
    """`readiness` (no new work while it fails), `liveness` (a failure calls for a restart) or `custom`."""
    status: str
    """`healthy`, `degraded`, `unhealthy` or `unknown`."""
    message: str
    """The message that the check returned. It may be empty."""
    checked_at: float | None
    """The time of the result, in Unix seconds. None before the first."""


class FleetDecision(Record):
    """A scaling decision: a limit that was changed, or that a rule wanted to change."""

    at: float
    """The time of the decision, in Unix seconds."""
    before: int
    """The number of instances before the decision."""
    after: int
    """The number of instances that the decision sets."""
    action: Literal["up", "down", "hold"]
    """The direction from `before` to `after`. `hold`: both are equal."""
    rule: str
    """The rule that decided, as in `helix.core.scaling`. `operator` is a person."""
    reason: str
    """An explanation for people."""
    trigger: str
    """The event that made `govern` look: an alarm's name, `schedule` or `monitor`. Empty if `govern` did not decide."""
    blocked_by: str | None
    """The obstacle to `wanted`, as in `helix.core.scaling`. None if nothing stood in the way."""
    wanted: int | None
    """The number of instances that the rules asked for, where `blocked_by` prevented it."""
    metrics: dict[str, float]
    """The numbers that the rules judged."""
    applied: bool
    """Whether the decision is, or was, in force."""


class FleetAgent(Record):
    """An agent in the fleet: its limit, its runs and processes, its health, and its newest scaling decisions."""

    agent: str
    """The name of the agent."""
    status: Literal["running", "stopped"]
    """`stopped`: an operator or a budget has stopped the agent. It starts no new runs."""
    stopped_by: str | None
    """The budget that stopped the agent, such as `budget agent:poet/day/micros`. None if no budget did."""
    limit: int | None
    """The number of runs that may be at work at once. None: any number."""
    running: int | None
    """The number of runs at work. None without a `limit`: such runs are not counted."""
    queued: int
    """The number of runs that wait for a slot."""
    wanted: int | None
    """The instances that an operator or the registration asks for. None if the fleet does not manage the agent."""
    min_instances: int | None
    """The lower bound of `wanted`. None if the agent does not set one."""
    max_instances: int | None
    """The upper bound of `wanted`. None if the agent does not set one."""
    waiting: list[WaitingRun]
    """The first runs in the queue, at most as many as the request asked for."""
    processes: list[FleetProcess]
    """The worker processes of the agent, oldest first."""
    checks: list[FleetCheck]
    """The newest result of each health check."""
    decisions: list[FleetDecision]
    """The last scaling decisions, newest first, at most as many as the request asked for."""


class FleetFound(Record):
    """The result of `get_fleet`. Times are in Unix seconds."""

    now: float
    """The time of the service."""
    limit: int | None
    """The number of runs of all agents together that may be at work at once. None: any number."""
    running: int | None
    """The number of runs of all agents that are at work. None without a `limit`."""
    queued: int
    """The number of runs of all agents that wait for a slot."""
    ready: bool
    """Whether the service accepts work. False if an operator has closed it."""
    reason: str
    """The operator's reason for the value of `ready`. Empty if no operator has set it."""
    swept_at: float | None
    """The time of the last sweep. None before the first."""
    agents: list[FleetAgent]
    """A page of agents, sorted by name."""
    cursor: str | None
    """The `after` of the next page. None on the last page."""


class UsageLine(Record):
    """The usage of one agent with one model and operation."""

    agent: str
    """The type of the agent that used it."""
    model: str
    """The model. `-` if it is not known, and for tools."""
    operation: str
    """`completion` for model calls, `tool` for usage that tools reported."""
    input: int
    """Tokens of prompts, `cached` ones included."""
    output: int
    """Tokens of answers."""
    cached: int
    """Tokens of prompts that the provider had in its cache."""
    calls: int
    """The number of model calls."""
    runs: int
    """The number of runs that have ended."""
    failed: int
    """The number of those `runs` that ended in an error of their own. Aborted runs do not count."""
    unpriced: int
    """The number of calls without a known price. One such call makes all calls of its run to that model count."""
    assumed_tokens: int
    """The most tokens that calls without a known outcome may have used."""
    usd: float
    """The cost in US dollars, without the `unpriced` calls."""
    assumed_usd: float
    """The most US dollars that calls without a known outcome may have cost."""


class UsageFound(Record):
    """The result of `get_usage`."""

    user: str
    """The user whose usage this is."""
    since: str | None
    """The first hour that is counted, in UTC (`2026-11-21T14`). None: all hours are counted."""
    usd: float
    """The sum of all lines, in US dollars."""
    lines: list[UsageLine]
    """The usage by agent, model and operation, sorted by these."""


class AgentFound(Record):
    """An agent that `run` accepts."""

    name: str
    """The name to give to `run` as `agent`."""
    description: str
    """The description from the agent's definition."""
    kind: Literal["chat", "function"]
    """`chat`: a model answers a message. `function`: a Python function is called with `input`."""
    input: JsonObject
    """The JSON schema of the fields that `run` takes besides `agent`: `message` and `state`, or `input`."""
    output: JsonObject
    """The JSON schema of the result's output. Empty if a function agent does not declare one."""


class AgentList(Record):
    """The result of `list_agents`."""

    agents: list[AgentFound]
    """A page of agents, sorted by name."""
    cursor: str | None
    """The `after` of the next page. None on the last page."""
