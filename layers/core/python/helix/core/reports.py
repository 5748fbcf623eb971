"""Replies of the WebSocket protocol about agents, steps and money (`core.replies` has the others)."""

from __future__ import annotations

from typing import Literal

from pydantic import ConfigDict

from helix.core.json import JsonObject
from helix.core.messages import Edit, Record
from helix.core.usage import Usage


class Attempt(Record):
    """One try to buy a step. `outcome` is `open` while it goes on; else as in `helix.services.session_calls.ModelCall`.
    `text` is what readers of the stream were shown; `discarded`: they were told to drop it, for `reason`; `dropped`: texts
    of failed tries at the model before it, which they dropped too. `taken_over_by`:
    the run that went on after its worker's death. Of `cancelled` and `dead` attempts only what they may have used is
    known: `assumed_*`."""

    attempt: int
    run_id: str
    turn: int
    outcome: Literal["open", "answered", "failed", "lost", "cancelled", "dead"]
    model: str | None
    usage: Usage
    assumed_usd: float
    assumed_tokens: int
    error: str | None
    at: float
    text: str
    dropped: list[str]
    discarded: bool
    reason: str | None
    taken_over_by: str | None


class StepCall(Record):
    """`state` and `by` as in `helix.core.entries.CallRow`; `waiting`: nobody took the call. `starts`: how often readers of
    the stream saw it begin. `ruling`: what became of an unknown outcome; None where the outcome was known."""

    call_id: str
    tool_name: str
    state: Literal["waiting", "asked", "approved", "claimed", "done"]
    by: str | None
    success: bool | None
    starts: int
    edited: Edit | None
    ruling: Literal["asked", "executed_again", "reported", "unknown"] | None


class StepFound(Record):
    """`complete`: the stream of the step was read to its end; else texts are what its first messages have."""

    session_id: str
    step: int
    attempts: list[Attempt]
    calls: list[StepCall]
    complete: bool


class CostLine(Record):
    """A field that is empty is left out."""

    model_config = ConfigDict(json_schema_serialization_defaults_required=False)

    service: str
    what: str
    session_id: str
    quantity: float
    unit: str = ""
    basis: Literal["measured", "counted", "estimated"]
    how: str = ""
    run_id: str | None = None
    step: int | None = None
    attempt: int | None = None
    usd: float


class CostFound(Record):
    """`usd` is the sum of the lines. `agrees`: the lines of the models are what the runs' rows say. `left_out`: what costs
    money and is in no line."""

    session_id: str
    usd: float
    services: dict[str, float]
    agrees: bool
    prices: str
    left_out: list[str]
    lines: list[CostLine]


class RunMoney(Record):
    spent: float
    reserved: float


class BudgetFound(Record):
    """`budget` is `<scope>/<period>/<unit>`; amounts are in `unit`. `used`: what all its runs have spent and set aside in
    this window. `resets_at`: Unix seconds, None for a total. `run`: of the session's current run."""

    budget: str
    scope: str
    period: str
    unit: Literal["usd", "tokens"]
    window: str
    resets_at: float | None
    limit: float | None
    used: float | None
    exhausted: bool
    on_exceeded: Literal["fail", "pause"] | None
    run: RunMoney


class BudgetList(Record):
    session_id: str
    budgets: list[BudgetFound]


class BudgetChanged(Record):
    budget: str
    unit: Literal["usd", "tokens"]
    limit: float


class WaitingRun(Record):
    """`since`: when it was claimed; after `expires_at` it is ended. Unix seconds."""

    run_id: str
    session_id: str
    priority: int
    since: float
    expires_at: float


class FleetProcess(Record):
    """As `helix.fleet.ProcessInfo`. Where functions execute the runs there are none."""

    process_id: str
    status: str
    pid: int | None
    cpu_percent: float
    memory_mb: float
    started_at: float | None
    restart_count: int
    last_error: str | None


class FleetCheck(Record):
    """The newest result of a health check. The check `llm` judges the agent's model calls."""

    check: str
    check_type: str
    status: str
    message: str
    checked_at: float | None


class FleetDecision(Record):
    """What moved a limit, or would have: `blocked_by` says what stood in the way of `wanted`. `rule`: as in
    `helix.core.scaling`, `operator` being a person. `trigger`: what made `govern` look. `metrics`: the numbers it judged.
    `applied`: it is in force, or was."""

    at: float
    before: int
    after: int
    action: Literal["up", "down", "hold"]
    rule: str
    reason: str
    trigger: str
    blocked_by: str | None
    wanted: int | None
    metrics: dict[str, float]
    applied: bool


class FleetAgent(Record):
    """`limit`: how many runs may be at work, None for any number; then `running` is not counted. `wanted`: instances that
    an operator or the registration asks for, of `min_instances` to `max_instances`. `waiting`: the first in line.
    `decisions`: newest first. `stopped_by`: the budget, where one stopped it: `budget agent:poet/day/micros`."""

    agent: str
    status: Literal["running", "stopped"]
    stopped_by: str | None
    limit: int | None
    running: int | None
    queued: int
    wanted: int | None
    min_instances: int | None
    max_instances: int | None
    waiting: list[WaitingRun]
    processes: list[FleetProcess]
    checks: list[FleetCheck]
    decisions: list[FleetDecision]


class FleetFound(Record):
    """`limit`, `running`, `queued`: of all agents together. `ready`: False where an operator has closed the service, for
    `reason`. `swept_at`: when the sweep last ran. `cursor`: the next page's `after`. Times in Unix seconds."""

    now: float
    limit: int | None
    running: int | None
    queued: int
    ready: bool
    reason: str
    swept_at: float | None
    agents: list[FleetAgent]
    cursor: str | None


class UsageLine(Record):
    """`input` includes `cached`. `usd` is without the `unpriced` calls. `assumed_*`: what calls of which nobody heard again
    may have used."""

    agent: str
    model: str
    operation: str
    input: int
    output: int
    cached: int
    calls: int
    runs: int
    failed: int
    unpriced: int
    assumed_tokens: int
    usd: float
    assumed_usd: float


class UsageFound(Record):
    """`since`: the first hour that counts, UTC (`2026-11-21T14`)."""

    user: str
    since: str | None
    usd: float
    lines: list[UsageLine]


class AgentFound(Record):
    name: str
    description: str
    kind: Literal["chat", "function"]
    input: JsonObject
    output: JsonObject


class AgentList(Record):
    agents: list[AgentFound]
    cursor: str | None
