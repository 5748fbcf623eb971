"""What every verb is given: the ports, the agents, and who is acting."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from helix.core.agents import AnyAgent
from helix.core.budget import TokenAlert
from helix.core.rows import Pending
from helix.engine.history import History
from helix.engine.hooks import HookManager
from helix.engine.rollup import Counters
from helix.engine.step_view import StepView
from helix.ports.budgets import Budgets
from helix.ports.cache import ResponseCache
from helix.ports.catalog import ModelCatalog
from helix.ports.clock import Clock
from helix.ports.ids import Ids
from helix.ports.launcher import Launcher
from helix.ports.metrics import Metrics, NoMetrics
from helix.ports.model import LLMAdapter, LLMGenerateInput
from helix.ports.slots import Slots
from helix.ports.state_store import StateStore
from helix.ports.streams import StreamManager
from helix.ports.tracing import NoTracer, Tracer

logger = logging.getLogger("helix")
AlertListener = Callable[[TokenAlert], Awaitable[None] | None]


@dataclass(frozen=True, slots=True)
class Settings:
    """Times in seconds. `lease_s`: how long a silent worker keeps its run. `stop_poll_s`: how late an interrupt is seen
    during a model call. `margin_s`: added to a tool's timeout for its claim's deadline. `roll_over_events`: how long the
    history of an execution may get before the run goes on in the next one. `start_grace_s`: how old a claim, and how long
    ago its run's last write, is before a sweep asks whether that is executed. Where budgets bound a call:
    `worst_case_micros_per_token` is taken where no price is known (millionths of a US dollar), `default_output_tokens` is
    how long its answer may be where its agent does not say, and `least_output_tokens` to how many it is cut near the line
    before it is refused."""

    lease_s: float = 15
    stop_poll_s: float = 0.5
    margin_s: float = 5
    max_depth: int = 5
    roll_over_events: int = 20_000
    start_grace_s: float = 20
    worst_case_micros_per_token: int = 100
    default_output_tokens: int = 4096
    least_output_tokens: int = 256


@dataclass(frozen=True, slots=True)
class Worst:
    """The most a model call can use."""

    tokens: int
    micros: int


@dataclass(slots=True)
class Engine:
    """One per process (or Lambda). `models` chooses the adapter of an agent; `agents` resolves a name. `telling` are the
    run-level hooks that are being called. `latencies`: what this process saw of routed models, in milliseconds. With a
    `launcher`, runs are executed by deliveries, and open runs are indexed."""

    store: StateStore
    streams: StreamManager
    clock: Clock
    ids: Ids
    models: Callable[[AnyAgent], LLMAdapter]
    agents: Callable[[str], AnyAgent]
    hooks: HookManager
    budgets: Budgets
    worst_case: Callable[[LLMGenerateInput], Worst] | None = None
    on_alert: list[AlertListener] = field(default_factory=list)
    launcher: Launcher | None = None
    slots: Slots | None = None
    metrics: Metrics = field(default_factory=NoMetrics)
    catalog: ModelCatalog | None = None
    cache: ResponseCache | None = None
    tracer: Tracer = field(default_factory=NoTracer)
    settings: Settings = field(default_factory=Settings)
    history: History = field(init=False)
    counters: Counters = field(init=False)
    telling: set[str] = field(init=False, default_factory=set)
    latencies: dict[str, float] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.history = History(self.store)
        self.counters = Counters(self.store, self.clock)


@dataclass(frozen=True, slots=True)
class Over:
    """The run goes no further. `status` is the run's."""

    status: str


@dataclass(frozen=True, slots=True)
class Tools:
    """Execute these calls of step `step` (possibly none), then call the model for step + 1. `view` is the step as it was
    just written, for a worker that goes on at once."""

    step: int
    calls: Sequence[str]
    view: StepView | None = None


Outcome = Over | Tools


@dataclass(frozen=True, slots=True)
class ChildWaits:
    """A sub-agent is paused or interrupted: its parent cannot go on."""

    pending: Pending
