"""The fleet: run agents as a production service, on worker processes or on the deployed functions.

    from helix.fleet import AgentRuntime, RuntimeConfig, ResourceConfig

Names are imported lazily. Names that exist only for compatibility with the original projects are in `helix.compat.teleon`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from helix.core.lazy import LazyNames

if TYPE_CHECKING:
    from helix.core.budget import BudgetDefinition as BudgetDefinition
    from helix.core.budget import TokenAlert as TokenAlert
    from helix.core.errors import AgentError as AgentError
    from helix.core.errors import AgentStoppedError as AgentStoppedError
    from helix.core.errors import ContextTooLargeError as ContextTooLargeError
    from helix.core.errors import DuplicateAgentError as DuplicateAgentError
    from helix.core.errors import InvalidScaleError as InvalidScaleError
    from helix.core.errors import ProcessFailedError as ProcessFailedError
    from helix.core.errors import ProcessNotFoundError as ProcessNotFoundError
    from helix.core.errors import QueueFullError as QueueFullError
    from helix.core.errors import RunFailedError as RunFailedError
    from helix.core.health import CheckType as CheckType
    from helix.core.health import HealthCheck as HealthCheck
    from helix.core.health import HealthResult as HealthResult
    from helix.core.health import HealthStatus as HealthStatus
    from helix.core.health import OverallHealth as OverallHealth
    from helix.core.llm_metrics import LLMMetrics as LLMMetrics
    from helix.core.llm_scaling import CostAwareScalingPolicy as CostAwareScalingPolicy
    from helix.core.llm_scaling import TokenAwareScalingPolicy as TokenAwareScalingPolicy
    from helix.core.periods import TokenPeriod as TokenPeriod
    from helix.core.resources import ResourceConfig as ResourceConfig
    from helix.core.scaling import ScalingDecision as ScalingDecision
    from helix.core.scaling import ScalingMetrics as ScalingMetrics
    from helix.core.scaling import ScalingPolicy as ScalingPolicy
    from helix.fleet.budgets import BudgetManager as BudgetManager
    from helix.fleet.budgets import get_token_budget_manager as get_token_budget_manager
    from helix.fleet.control import FleetControl as FleetControl
    from helix.fleet.deployed import DeployedRuntime as DeployedRuntime
    from helix.fleet.health import HealthChecker as HealthChecker
    from helix.fleet.process_info import ProcessInfo as ProcessInfo
    from helix.fleet.process_info import ProcessStatus as ProcessStatus
    from helix.workers.child import Command as Command
    from helix.workers.config import RuntimeConfig as RuntimeConfig
    from helix.workers.current import get_runtime as get_runtime
    from helix.workers.manager import ProcessManager as ProcessManager
    from helix.workers.manager import RestartPolicy as RestartPolicy
    from helix.workers.runtime import AgentRuntime as AgentRuntime
    from helix.workers.watcher import FileWatcher as FileWatcher
    from helix.workers.watcher import WatcherConfig as WatcherConfig

_NAMES = LazyNames(
    __name__,
    {
        "helix.core.budget": "BudgetDefinition TokenAlert",
        "helix.core.errors": "AgentError AgentStoppedError ContextTooLargeError DuplicateAgentError InvalidScaleError"
        " ProcessFailedError ProcessNotFoundError QueueFullError RunFailedError",
        "helix.core.health": "CheckType HealthCheck HealthResult HealthStatus OverallHealth",
        "helix.core.llm_metrics": "LLMMetrics",
        "helix.core.llm_scaling": "CostAwareScalingPolicy TokenAwareScalingPolicy",
        "helix.core.periods": "TokenPeriod",
        "helix.core.resources": "ResourceConfig",
        "helix.core.scaling": "ScalingDecision ScalingMetrics ScalingPolicy",
        "helix.fleet.budgets": "BudgetManager get_token_budget_manager",
        "helix.fleet.deployed": "DeployedRuntime",
        "helix.fleet.control": "FleetControl",
        "helix.fleet.health": "HealthChecker",
        "helix.fleet.process_info": "ProcessInfo ProcessStatus",
        "helix.workers.child": "Command",
        "helix.workers.config": "RuntimeConfig",
        "helix.workers.current": "get_runtime",
        "helix.workers.manager": "ProcessManager RestartPolicy",
        "helix.workers.runtime": "AgentRuntime",
        "helix.workers.watcher": "FileWatcher WatcherConfig",
    },
)
__all__ = _NAMES.names()
__getattr__, __dir__ = _NAMES.load, _NAMES.names
