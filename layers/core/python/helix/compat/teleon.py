"""The names of Teleon Helix. Each is an alias of its counterpart in Helix.

    from helix.compat.teleon import AgentRuntime, TokenTracker, create_cache

The table of names (docs/appendix/names.md) says where each counterpart is and how it differs.
"""

from __future__ import annotations

from helix.core.lazy import LazyNames

_NAMES = LazyNames(
    __name__,
    {
        "helix": "AgentClient QuotaExceededError=BudgetExceededError TeleonClient=AgentClient",
        "helix.adapters.models.token_count": "TokenCounter",
        "helix.compat.batching": "BatchConfig BatchProcessor RequestBatcher get_batch_processor",
        "helix.compat.cache": "AnswerCache CacheWarmer create_cache get_response_cache",
        "helix.compat.endpoints": "HealthEndpointManager get_health_manager setup_health_endpoints",
        "helix.compat.functions": "HelixAgent get_agent_status register_agent_with_helix restart_agent "
        "scale_agent stop_agent",
        "helix.compat.reporter": "AgentReporter get_agent_reporter init_agent_reporter shutdown_agent_reporter",
        "helix.compat.routing": "ContextWindowManager ModelVariantRouter RequestRouter get_request_router",
        "helix.compat.scaling": "LLMScaler Scaler create_llm_scaler get_llm_scaler",
        "helix.compat.token_tracker": "TokenBreakdown TokenTracker get_token_tracker",
        "helix.compat.tracking": "LLMResourceTracker TokenThroughputMonitor get_throughput_monitor",
        "helix.core.caching": "CacheEvictionPolicy CacheStrategy",
        "helix.core.routing": "InstanceInfo ModelVariant RoutingDecision",
        "helix.fleet": "AgentRuntime BudgetManager CheckType CostAwareScalingPolicy FileWatcher HealthCheck "
        "HealthChecker HealthResult HealthStatus LLMMetrics OverallHealth ProcessInfo ProcessManager ProcessStatus "
        "ResourceConfig RuntimeConfig ScalingDecision ScalingMetrics ScalingPolicy TokenAlert "
        "TokenAwareScalingPolicy TokenPeriod WatcherConfig get_runtime get_token_budget_manager",
        "helix.services.row_cache": "CacheEntry",
    },
)
__all__ = _NAMES.names()
__getattr__, __dir__ = _NAMES.load, _NAMES.names
