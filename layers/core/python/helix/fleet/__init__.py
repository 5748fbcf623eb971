"""The fleet: agents as a production service, on worker processes or on the deployed functions.

    from helix.fleet import AgentRuntime, RuntimeConfig, ResourceConfig

Names are loaded when first used. `helix.fleet.functions` has the module-level helpers under these names too.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from helix.adapters.models.token_count import TokenCounter
    from helix.core.budget import BudgetDefinition, TokenAlert
    from helix.core.caching import CacheEvictionPolicy, CacheStrategy, ResponseCacheConfig
    from helix.core.errors import (
        AgentError,
        AgentStoppedError,
        ContextTooLargeError,
        DuplicateAgentError,
        InvalidScaleError,
        ProcessFailedError,
        ProcessNotFoundError,
        QueueFullError,
        RunFailedError,
    )
    from helix.core.functions import AgentClient, TeleonClient
    from helix.core.health import CheckType, HealthCheck, HealthResult, HealthStatus, OverallHealth
    from helix.core.llm_metrics import LLMMetrics
    from helix.core.llm_scaling import CostAwareScalingPolicy, TokenAwareScalingPolicy
    from helix.core.periods import TokenPeriod
    from helix.core.resources import ResourceConfig
    from helix.core.routes import Route, RouteOption
    from helix.core.routing import InstanceInfo, ModelVariant, RoutingDecision
    from helix.core.scaling import ScalingDecision, ScalingMetrics, ScalingPolicy
    from helix.fleet.batching import BatchConfig, BatchProcessor, get_batch_processor
    from helix.fleet.budgets import BudgetManager, get_token_budget_manager
    from helix.fleet.cache import AnswerCache, CacheWarmer, create_cache, get_response_cache
    from helix.fleet.child import Command
    from helix.fleet.config import RuntimeConfig
    from helix.fleet.current import get_runtime
    from helix.fleet.deployed import DeployedRuntime
    from helix.fleet.desk import FleetDesk
    from helix.fleet.endpoints import HealthEndpointManager, get_health_manager, setup_health_endpoints
    from helix.fleet.functions import (
        HelixAgent,
        get_agent_status,
        register_agent_with_helix,
        restart_agent,
        scale_agent,
        stop_agent,
    )
    from helix.fleet.health import HealthChecker
    from helix.fleet.process_info import ProcessInfo, ProcessStatus
    from helix.fleet.processes import ProcessManager
    from helix.fleet.reporter import AgentReporter, get_agent_reporter, init_agent_reporter, shutdown_agent_reporter
    from helix.fleet.restarting import RestartPolicy
    from helix.fleet.routing import ContextWindowManager, ModelVariantRouter, RequestRouter, get_request_router
    from helix.fleet.runtime import AgentRuntime
    from helix.fleet.scaling import LLMScaler, Scaler, create_llm_scaler, get_llm_scaler
    from helix.fleet.tokens import TokenBreakdown, TokenTracker, get_token_tracker
    from helix.fleet.tracking import LLMResourceTracker, TokenThroughputMonitor, get_throughput_monitor
    from helix.fleet.watching import FileWatcher, WatcherConfig

_HOME = {
    "helix.adapters.models.token_count": "TokenCounter",
    "helix.core.budget": "BudgetDefinition TokenAlert",
    "helix.core.caching": "CacheEvictionPolicy CacheStrategy ResponseCacheConfig",
    "helix.core.errors": "AgentError AgentStoppedError ContextTooLargeError DuplicateAgentError InvalidScaleError"
    " ProcessFailedError ProcessNotFoundError QueueFullError RunFailedError",
    "helix.core.functions": "AgentClient TeleonClient",
    "helix.core.health": "CheckType HealthCheck HealthResult HealthStatus OverallHealth",
    "helix.core.llm_metrics": "LLMMetrics",
    "helix.core.llm_scaling": "CostAwareScalingPolicy TokenAwareScalingPolicy",
    "helix.core.periods": "TokenPeriod",
    "helix.core.resources": "ResourceConfig",
    "helix.core.routes": "Route RouteOption",
    "helix.core.routing": "InstanceInfo ModelVariant RoutingDecision",
    "helix.core.scaling": "ScalingDecision ScalingMetrics ScalingPolicy",
    "helix.fleet.batching": "BatchConfig BatchProcessor get_batch_processor",
    "helix.fleet.budgets": "BudgetManager get_token_budget_manager",
    "helix.fleet.cache": "AnswerCache CacheWarmer create_cache get_response_cache",
    "helix.fleet.child": "Command",
    "helix.fleet.config": "RuntimeConfig",
    "helix.fleet.current": "get_runtime",
    "helix.fleet.deployed": "DeployedRuntime",
    "helix.fleet.desk": "FleetDesk",
    "helix.fleet.endpoints": "HealthEndpointManager get_health_manager setup_health_endpoints",
    "helix.fleet.functions": "HelixAgent get_agent_status register_agent_with_helix restart_agent scale_agent stop_agent",
    "helix.fleet.health": "HealthChecker",
    "helix.fleet.process_info": "ProcessInfo ProcessStatus",
    "helix.fleet.processes": "ProcessManager",
    "helix.fleet.reporter": "AgentReporter get_agent_reporter init_agent_reporter shutdown_agent_reporter",
    "helix.fleet.restarting": "RestartPolicy",
    "helix.fleet.routing": "ContextWindowManager ModelVariantRouter RequestRouter get_request_router",
    "helix.fleet.runtime": "AgentRuntime",
    "helix.fleet.scaling": "LLMScaler Scaler create_llm_scaler get_llm_scaler",
    "helix.fleet.tokens": "TokenBreakdown TokenTracker get_token_tracker",
    "helix.fleet.tracking": "LLMResourceTracker TokenThroughputMonitor get_throughput_monitor",
    "helix.fleet.watching": "FileWatcher WatcherConfig",
}
_MODULES = {name: module for module, names in _HOME.items() for name in names.split()}
__all__ = [
    "AgentClient",
    "AgentError",
    "AgentReporter",
    "AgentRuntime",
    "AgentStoppedError",
    "AnswerCache",
    "BatchConfig",
    "BatchProcessor",
    "BudgetDefinition",
    "BudgetManager",
    "CacheEvictionPolicy",
    "CacheStrategy",
    "CacheWarmer",
    "CheckType",
    "Command",
    "ContextTooLargeError",
    "ContextWindowManager",
    "CostAwareScalingPolicy",
    "DeployedRuntime",
    "DuplicateAgentError",
    "FileWatcher",
    "FleetDesk",
    "HealthCheck",
    "HealthChecker",
    "HealthEndpointManager",
    "HealthResult",
    "HealthStatus",
    "HelixAgent",
    "InstanceInfo",
    "InvalidScaleError",
    "LLMMetrics",
    "LLMResourceTracker",
    "LLMScaler",
    "ModelVariant",
    "ModelVariantRouter",
    "OverallHealth",
    "ProcessFailedError",
    "ProcessInfo",
    "ProcessManager",
    "ProcessNotFoundError",
    "ProcessStatus",
    "QueueFullError",
    "RequestRouter",
    "ResourceConfig",
    "ResponseCacheConfig",
    "RestartPolicy",
    "Route",
    "RouteOption",
    "RoutingDecision",
    "RunFailedError",
    "RuntimeConfig",
    "Scaler",
    "ScalingDecision",
    "ScalingMetrics",
    "ScalingPolicy",
    "TeleonClient",
    "TokenAlert",
    "TokenAwareScalingPolicy",
    "TokenBreakdown",
    "TokenCounter",
    "TokenPeriod",
    "TokenThroughputMonitor",
    "TokenTracker",
    "WatcherConfig",
    "create_cache",
    "create_llm_scaler",
    "get_agent_reporter",
    "get_agent_status",
    "get_batch_processor",
    "get_health_manager",
    "get_llm_scaler",
    "get_request_router",
    "get_response_cache",
    "get_runtime",
    "get_throughput_monitor",
    "get_token_budget_manager",
    "get_token_tracker",
    "init_agent_reporter",
    "register_agent_with_helix",
    "restart_agent",
    "scale_agent",
    "setup_health_endpoints",
    "shutdown_agent_reporter",
    "stop_agent",
]


def __getattr__(name: str) -> Any:
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module 'helix.fleet' has no attribute {name!r}")
    value = getattr(importlib.import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
