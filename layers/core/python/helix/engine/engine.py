"""What every verb is given: the ports, the agents, and who is acting."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from helix._log import get_logger
from helix.core.agents import AnyAgent
from helix.core.budget import TokenAlert
from helix.core.context import NO_SECRETS, Secrets
from helix.core.errors import InvalidInputError
from helix.core.rows import Pending
from helix.core.tools import AnyTool
from helix.engine.history import History
from helix.engine.step_view import StepView
from helix.engine.stops import Stops
from helix.ports.catalog import ModelCatalog
from helix.ports.clock import Clock
from helix.ports.ids import Ids
from helix.ports.launcher import Launcher
from helix.ports.metrics import Metrics, NoMetrics
from helix.ports.model import LLMAdapter, LLMGenerateInput
from helix.ports.state_store import StateStore
from helix.ports.streams import StreamManager
from helix.ports.tracing import NoTracer, Tracer
from helix.services.hook_manager import HookManager
from helix.services.row_budgets import RowBudgets
from helix.services.row_cache import RowCache
from helix.services.row_slots import RowSlots
from helix.services.usage_counters import SHARDS, Counters

logger = get_logger("helix")
Executes = Literal["everything", "tools", "inline"]
AlertListener = Callable[[TokenAlert], Awaitable[None] | None]


@dataclass(frozen=True, slots=True)
class Settings:
    """Times in seconds. `claim_s`: how long a silent worker keeps what it claimed; it renews a claim each third of it.
    `skew_s`: how far two machines' clocks may differ. `stop_poll_s`: how late an interrupt is seen during a model call.
    `steps_per_invocation`: how many steps a function takes at most (None: as many as fit); it begins another one while it
    has `step_time_s` left. `roll_over_events`: how long the history of an execution may get before the run goes on in the
    next one. `calls_at_once`: how many calls' rows one transaction writes; a step with more takes several. `start_grace_s`:
    how old a claim, and how long ago its run's last write, is before a sweep asks whether that is executed. Where
    budgets bound a call:
    `worst_case_micros_per_token` is taken where no price is known (millionths of a US dollar), `worst_case_margin_percent`
    is reserved on top for providers that bill more than a request allows, `default_output_tokens` is
    how long its answer may be where its agent does not say, and `least_output_tokens` to how many it is cut near the line
    before it is refused. `keep_checkpoints`: how many of a session's newest checkpoints stay, and `session_ttl_s`: how long
    after its last write a session that neither runs nor waits is deleted (`sessions.deletion`; None: for ever).
    `own_profiles`: digests (`core.resources.profile_digest`) of the agents with functions of their own, beside those that
    ask for resources."""

    claim_s: float = 30
    skew_s: float = 5
    stop_poll_s: float = 0.5
    steps_per_invocation: int | None = None
    step_time_s: float = 600
    max_depth: int = 5
    roll_over_events: int = 12_000
    calls_at_once: int = 80
    start_grace_s: float = 20
    worst_case_micros_per_token: int = 100
    worst_case_margin_percent: int = 10
    default_output_tokens: int = 4096
    least_output_tokens: int = 256
    keep_checkpoints: int | None = None
    session_ttl_s: float | None = None
    own_profiles: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        if self.keep_checkpoints is not None and self.keep_checkpoints < 1:
            raise InvalidInputError(f"keep_checkpoints is {self.keep_checkpoints}; it must be 1 or more, or None")
        if not 1 <= self.calls_at_once <= 80:
            raise InvalidInputError(f"calls_at_once is {self.calls_at_once}; it must be 1 to 80")
        if self.session_ttl_s is not None and self.session_ttl_s <= 0:
            raise InvalidInputError(f"session_ttl_s is {self.session_ttl_s}; it must be above 0, or None")

    @property
    def margin_s(self) -> float:
        """How long before its deadline a holder that could not move it stops acting."""
        return min(self.skew_s, self.claim_s / 4)


@dataclass(frozen=True, slots=True)
class Worst:
    """The most a model call can use."""

    tokens: int
    micros: int


@dataclass(slots=True)
class Engine:
    """One per process (or Lambda). `models` chooses the adapter of an agent; `agents` resolves a name. `calling_hooks` are
    the run-level hooks that are being called. `latencies`: what this process saw of routed models, in milliseconds. With a
    `launcher`, runs are executed by deliveries, and open runs are indexed. `executes`: which calls of a step the worker
    that bought it executes itself; default everything, with a launcher the inline tools. `secrets`: what tools read."""

    store: StateStore
    streams: StreamManager
    clock: Clock
    ids: Ids
    models: Callable[[AnyAgent], LLMAdapter]
    agents: Callable[[str], AnyAgent]
    hooks: HookManager
    budgets: RowBudgets
    worst_case: Callable[[LLMGenerateInput], Worst] | None = None
    on_alert: list[AlertListener] = field(default_factory=list)
    launcher: Launcher | None = None
    executes: Executes | None = None
    slots: RowSlots | None = None
    metrics: Metrics = field(default_factory=NoMetrics)
    catalog: ModelCatalog | None = None
    cache: RowCache | None = None
    tracer: Tracer = field(default_factory=NoTracer)
    secrets: Secrets = NO_SECRETS
    settings: Settings = field(default_factory=Settings)
    history: History = field(init=False)
    counters: Counters = field(init=False)
    stops: Stops = field(init=False)
    calling_hooks: set[str] = field(init=False, default_factory=set)
    latencies: dict[str, float] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.history = History(self.store)
        self.stops = Stops(self.store, self.settings.stop_poll_s)
        if self.executes is None:
            self.executes = "everything" if self.launcher is None else "inline"
        self.counters = Counters(self.store, self.clock, shards=1 if self.in_process else SHARDS)

    @property
    def in_process(self) -> bool:
        """Whether this process executes runs from claim to end, so that the run itself is claimed."""
        return self.executes == "everything"

    def executes_tool(self, agent: AnyAgent, tool: AnyTool | None) -> bool:
        """Whether the worker that bought a step executes this tool's call itself."""
        return self.executes != "inline" or agent.is_inline(tool)


@dataclass(frozen=True, slots=True)
class Over:
    """The run goes no further. `status` is the run's."""

    status: str


@dataclass(frozen=True, slots=True)
class Staged:
    """Step `step` is bought; `calls` of it are to be executed (possibly none). `view` is the step as it was just written,
    for a worker that goes on at once."""

    step: int
    calls: Sequence[str]
    view: StepView | None = None


Outcome = Over | Staged


@dataclass(frozen=True, slots=True)
class ChildWaits:
    """A sub-agent is paused or interrupted: its parent cannot go on."""

    pending: Pending
