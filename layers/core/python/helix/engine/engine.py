"""What every verb is given: the ports, the agents, and who is acting."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from helix.core.agents import AnyAgent
from helix.core.rows import Pending, SessionRow
from helix.engine.history import History
from helix.engine.hooks import HookManager
from helix.engine.step_view import StepView
from helix.ports.budgets import Budgets, Unit
from helix.ports.catalog import ModelCatalog
from helix.ports.clock import Clock
from helix.ports.ids import Ids
from helix.ports.launcher import Launcher
from helix.ports.metrics import Metrics, NoMetrics
from helix.ports.model import LLMAdapter, LLMGenerateInput
from helix.ports.state_store import StateStore
from helix.ports.streams import StreamManager

logger = logging.getLogger("helix")


@dataclass(frozen=True, slots=True)
class AppliedBudget:
    """A budget that bounds a session, by the name the Budgets port knows it under."""

    budget: str
    unit: Unit


def no_budgets(session: SessionRow) -> Sequence[AppliedBudget]:
    return ()


@dataclass(frozen=True, slots=True)
class Settings:
    """Times in seconds. `lease_s`: how long a silent worker keeps its run. `stop_poll_s`: how late an interrupt is seen
    during a model call. `margin_s`: added to a tool's timeout for its claim's deadline. `roll_over_events`: how long the
    history of an execution may get before the run goes on in the next one. `start_grace_s`: how old a claim is before a
    sweep looks whether its execution was started."""

    lease_s: float = 15
    stop_poll_s: float = 0.5
    margin_s: float = 5
    max_depth: int = 5
    roll_over_events: int = 20_000
    start_grace_s: float = 20
    worst_case_micros_per_token: int = 100
    default_output_tokens: int = 4096


@dataclass(frozen=True, slots=True)
class Worst:
    """The most a model call can use."""

    tokens: int
    micros: int


@dataclass(slots=True)
class Engine:
    """One per process (or Lambda). `models` chooses the adapter of an agent; `agents` resolves a name. `telling` are the
    run-level hooks that are being called. With a `launcher`, runs are executed by deliveries, and open runs are indexed."""

    store: StateStore
    streams: StreamManager
    clock: Clock
    ids: Ids
    models: Callable[[AnyAgent], LLMAdapter]
    agents: Callable[[str], AnyAgent]
    hooks: HookManager
    budgets: Budgets
    applied_budgets: Callable[[SessionRow], Sequence[AppliedBudget]] = no_budgets
    worst_case: Callable[[LLMGenerateInput], Worst] | None = None
    launcher: Launcher | None = None
    metrics: Metrics = field(default_factory=NoMetrics)
    catalog: ModelCatalog | None = None
    settings: Settings = field(default_factory=Settings)
    history: History = field(init=False)
    telling: set[str] = field(init=False, default_factory=set)

    def __post_init__(self) -> None:
        self.history = History(self.store)


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
