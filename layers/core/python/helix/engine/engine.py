"""The engine's ports, agents and settings, and the outcome types that its verbs share."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

from helix._log import get_logger
from helix.core.agents import AnyAgent
from helix.core.budget import TokenAlert
from helix.core.context import NO_SECRETS, Secrets
from helix.core.errors import InvalidInputError
from helix.core.model_limits import Limit
from helix.core.rows import Pending
from helix.engine.history import History
from helix.engine.placement import Placement
from helix.engine.step_view import StepView
from helix.engine.stops import Stops
from helix.ports.batches import MAX_CALLS
from helix.ports.catalog import ModelCatalog
from helix.ports.clock import Clock
from helix.ports.ids import Ids
from helix.ports.launcher import Launcher
from helix.ports.metrics import Metrics, NoMetrics
from helix.ports.model import BaseAdapter, LLMGenerateInput
from helix.ports.state_store import StateStore
from helix.ports.streams import StreamManager
from helix.ports.tracing import NoTracer, Tracer
from helix.services.dependencies import Dependencies
from helix.services.hook_manager import HookManager
from helix.services.model_limits import ModelLimits
from helix.services.request_heads import RequestHeads
from helix.services.row_budgets import RowBudgets
from helix.services.row_cache import RowCache
from helix.services.row_slots import RowSlots
from helix.services.session_files import SessionFiles
from helix.services.usage_counters import Counters

logger = get_logger("helix")
AlertListener = Callable[[TokenAlert], Awaitable[None] | None]


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of an engine. Times are in seconds."""

    claim_s: float = 30
    """The time for which a silent worker keeps its claims. A worker renews a claim after a third of this time."""
    skew_s: float = 5
    """The clock skew that is allowed between two machines."""
    stop_poll_s: float = 0.5
    """The maximum delay before a worker sees an interrupt, even during a model call."""
    steps_per_invocation: int | None = None
    """The maximum number of steps that one invocation of a function buys. None: as many as its time allows."""
    step_time_s: float = 600
    """The time that an invocation must have left to begin another step. It must be enough for a whole model call and
    its staging."""
    max_depth: int = 5
    """The maximum number of levels of sub-agents below a root session."""
    roll_over_events: int = 12_000
    """The length of an execution's history, in events, at which the run continues in its next part. Step Functions
    allows 25,000; the difference leaves room for one more delivery and its calls."""
    calls_at_once: int = 80
    """The number of call rows that one transaction writes, from 1 to 80. A step with more calls is wide and takes
    several transactions."""
    start_grace_s: float = 20
    """The age at which a sweep begins to check whether a run has an execution. It is measured from the run's claim, its
    last write of the session, or its end."""
    worst_case_micros_per_token: int = 100
    """The price that a reservation assumes for a model without a known price, in micro-dollars per token."""
    worst_case_margin_percent: int = 10
    """The percentage that is reserved in addition to a call's worst case, for providers that bill more than a request
    allows."""
    default_output_tokens: int = 4096
    """The output token limit, excluding thinking, for a call that a budget bounds and whose agent sets no limit."""
    least_output_tokens: int = 256
    """The shortest limit, in tokens, to which an answer may be cut when a budget is nearly used up. If not even this
    fits, the call is refused."""
    batch_gather_s: float = 60
    """The time for which calls are gathered before a batch is sent."""
    batch_calls: int = 1_000
    """The number of gathered calls at which a batch is sent at once, from 1 to 10,000."""
    batch_poll_s: float = 60
    """The time between two looks at a batch that the provider works on."""
    calls_url: str = ""
    """The URL at which other systems report results of calls, such as `https://example.com/agents/calls`. Empty if it is
    not known."""
    keep_checkpoints: int | None = None
    """The number of newest checkpoints to keep for each session. None: all are kept."""
    session_ttl_s: float | None = None
    """The time after its last write at which a session is deleted if it neither runs nor waits (`sessions.deletion`).
    None: sessions are kept forever."""
    own_profiles: frozenset[str] = frozenset()
    """Digests (`core.resources.profile_digest`) of the agents that have their own Lambda functions without asking for
    resources."""

    def __post_init__(self) -> None:
        if self.keep_checkpoints is not None and self.keep_checkpoints < 1:
            raise InvalidInputError(f"keep_checkpoints is {self.keep_checkpoints}; it must be 1 or more, or None")
        if not 1 <= self.calls_at_once <= 80:
            raise InvalidInputError(f"calls_at_once is {self.calls_at_once}; it must be 1 to 80")
        if not 1 <= self.batch_calls <= MAX_CALLS:
            raise InvalidInputError(f"batch_calls is {self.batch_calls}; it must be 1 to {MAX_CALLS}")
        if self.session_ttl_s is not None and self.session_ttl_s <= 0:
            raise InvalidInputError(f"session_ttl_s is {self.session_ttl_s}; it must be above 0, or None")

    @property
    def margin_s(self) -> float:
        """The safety margin before a claim's deadline. A holder that cannot extend the deadline stops work this many
        seconds before it."""
        return min(self.skew_s, self.claim_s / 4)


@dataclass(frozen=True, slots=True)
class Worst:
    """The maximum usage of a model call."""

    tokens: int
    """The number of tokens, prompt and answer together."""
    micros: int
    """The cost in micro-dollars."""


@dataclass(slots=True)
class Engine:
    """The ports, agents and settings that all verbs use. There is one per process, or per Lambda function."""

    store: StateStore
    """The rows of sessions and of the control table."""
    streams: StreamManager
    """The log to which chunks are written."""
    clock: Clock
    """The clock for all times that are written or compared."""
    ids: Ids
    """The source of new ids."""
    models: Callable[[AnyAgent], BaseAdapter]
    """The function that chooses the model adapter of an agent."""
    agents: Callable[[str], AnyAgent]
    """The function that resolves an agent's name. It raises `AgentNotFoundError` for an unknown one."""
    hooks: HookManager
    """The manager that calls the hooks of this process and of agents."""
    budgets: RowBudgets
    """The definitions, windows and draws of budgets."""
    placement: Placement
    """The rules that depend on where runs are executed."""
    worst_case: Callable[[LLMGenerateInput], Worst] | None = None
    """A function that computes a call's worst case in place of the engine's estimate. None: the engine estimates it."""
    on_alert: list[AlertListener] = field(default_factory=list)
    """Listeners to budget alerts. They are called in order, and one that raises is logged and skipped."""
    launcher: Launcher | None = None
    """The port that starts executions of runs outside this process. None: this process executes its runs."""
    slots: RowSlots | None = None
    """The admission of runs under concurrency limits. None: every run is admitted immediately."""
    metrics: Metrics = field(default_factory=NoMetrics)
    """The destination of metrics."""
    catalog: ModelCatalog | None = None
    """The context windows and list prices of models. None: nothing is known about any model."""
    files: SessionFiles | None = None
    """The files of messages and tool results. None: there is no storage for their bytes."""
    cache: RowCache | None = None
    """The response cache. None: no answer is cached, even if an agent's policy asks for it."""
    tracer: Tracer = field(default_factory=NoTracer)
    """The destination of spans."""
    declared_limits: Mapping[str, Limit] = field(default_factory=dict)
    """The limits of models that the project declares, by model."""
    secrets: Secrets = NO_SECRETS
    """The secrets that tools may read."""
    settings: Settings = field(default_factory=Settings)
    """The times and limits."""
    history: History = field(init=False)
    """The reader of sessions, with a cache of immutable rows."""
    heads: RequestHeads = field(init=False)
    """The request heads of this process's model calls."""
    limits: ModelLimits = field(init=False)
    """The limits of models, which all workers share."""
    counters: Counters = field(init=False)
    """The counters of usage."""
    stops: Stops = field(init=False)
    """The poller of interrupts and aborts for the runs that this process executes."""
    calling_hooks: set[str] = field(init=False, default_factory=set)
    """The run-level hooks that are being called, as `<run id>/<hook>`, so that two finishers in this process call each
    hook once."""
    dependencies: Dependencies = field(init=False)
    """The open dependencies of agents' tools. The owner of the engine closes them."""
    known_queues: set[str] = field(init=False, default_factory=set)
    """The names of the batch queues that this process knows to be stored. They are never deleted."""
    latencies: dict[str, float] = field(init=False, default_factory=dict)
    """The moving average of each routed model's latency in this process, in milliseconds, keyed by model."""

    def __post_init__(self) -> None:
        self.history = History(self.store)
        self.heads = RequestHeads()
        self.dependencies = Dependencies(self.secrets)
        self.stops = Stops(self.store, self.settings.stop_poll_s)
        self.limits = ModelLimits(self.store, self.clock, self.declared_limits)
        self.counters = Counters(self.store, self.clock, shards=self.placement.counter_shards)

    def find_agent(self, own: AnyAgent, name: str) -> AnyAgent:
        """Return the agent with that name that is active in a session of `own`. An empty name is the session's own.
        Raises `AgentNotFoundError`."""
        return own if not name else own.find_agent(name) or self.agents(name)


@dataclass(frozen=True, slots=True)
class Over:
    """The outcome of a step after which the run stops."""

    status: str
    """The run's status."""


@dataclass(frozen=True, slots=True)
class Staged:
    """The outcome of a step that has been bought."""

    step: int
    """The number of the step."""
    calls: Sequence[str]
    """The ids of the step's calls that are still to be executed, possibly none."""
    view: StepView | None = None
    """The step as this worker has just written it, which saves another read. None: another worker wrote it, or it has
    no calls."""


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """The outcome of a step that other functions have to buy, because they are those of the agent that makes it."""

    agent: str
    """The name of that agent."""


@dataclass(frozen=True, slots=True)
class Waits:
    """The outcome of a step whose model call waits for a provider's batch. No worker waits with it."""


@dataclass(frozen=True, slots=True)
class Later:
    """The outcome of a step whose model call has to wait longer than this worker does."""

    until: float
    """The time at which the call may be made, in Unix seconds."""


Outcome = Over | Staged | Elsewhere | Waits | Later


@dataclass(frozen=True, slots=True)
class ChildWaits:
    """A sub-agent that is paused or interrupted, so that its parent cannot continue."""

    pending: Pending
    """The parent's call that waits for the sub-agent."""
