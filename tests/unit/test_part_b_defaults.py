"""Defaults and names of the fleet are those of the sources, or differ for the reason beside them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from enum import Enum
from typing import Any

import pytest

import helix.compat.teleon as fleet
from helix.compat import reporter_posting, reporter_settings
from helix.compat.reporter import AgentReporter
from helix.compat.reporter_settings import ReporterSettings
from helix.compat.teleon import (
    BatchConfig,
    BatchProcessor,
    CacheStrategy,
    ContextWindowManager,
    HealthEndpointManager,
    LLMResourceTracker,
    LLMScaler,
    RequestRouter,
    Scaler,
    TokenTracker,
)
from helix.fleet import (
    AgentRuntime,
    BudgetManager,
    HealthChecker,
    LLMMetrics,
    ResourceConfig,
    RuntimeConfig,
    TokenPeriod,
    WatcherConfig,
)

METRICS = {
    "tokens_per_second": 0,
    "input_tokens_per_second": 0,
    "output_tokens_per_second": 0,
    "requests_per_minute": 0,
    "queue_depth": 0,
    "avg_wait_time_ms": 0,
    "avg_ttft_ms": 0,
    "avg_completion_time_ms": 0,
    "p50_latency_ms": 0,
    "p95_latency_ms": 0,
    "p99_latency_ms": 0,
    "concurrent_llm_calls": 0,
    "max_concurrent_calls": 10,
    "cost_per_hour": 0,
    "cost_per_request": 0,
    "total_cost": 0,
    "avg_context_tokens": 0,
    "max_context_tokens": 0,
    "avg_response_tokens": 0,
    "timestamp": 0,
}


@pytest.mark.parametrize(
    ("made", "defaults"),
    [
        (
            RuntimeConfig(),
            {
                "environment": "development",
                "debug": False,
                "hot_reload": True,
                "watch_paths": ["teleon", "agents"],
                "max_workers": 10,
                "log_level": "INFO",
                "default_resources": ResourceConfig(),
            },
        ),
        (RuntimeConfig(environment="production"), {"hot_reload": False}),
        (
            ResourceConfig(),
            {
                "cpu_limit": None,
                "memory_limit_mb": None,
                "min_instances": 1,
                "max_instances": 1,  # one sample of the sources shows 10, which is the default of scaling policies
                "startup_timeout": 30,
                "shutdown_timeout": 30,
                "health_check_enabled": True,
                "health_check_interval": 30,
                "auto_start": False,  # False in the sources, but True in one of their parsers
            },
        ),
        (
            WatcherConfig(),
            {
                "watch_paths": [],
                "ignore_patterns": ["__pycache__", "*.pyc", ".git", "venv"],
                "debounce_seconds": 1.0,
            },
        ),
        (LLMMetrics(), METRICS),
        (
            BatchConfig(),
            {
                "max_batch_size": 10,
                "max_wait_time_ms": 1000,
                "min_batch_size": 2,
                "enable_priority": True,
                "priority_boost_threshold": 5,
                "timeout_s": 60,
            },
        ),
        (
            reporter_posting,
            {
                "RETRIES": 3,
                "RETRY_S": 1,
                "BREAKER_FAILURES": 5,
                "BREAKER_S": 60,
                "MAX_BATCHES": 100,
                "MAX_BYTES": 10 * 1024 * 1024,
            },
        ),
        (reporter_settings, {"MAX_BUFFER": 10_000}),
        (
            ReporterSettings(),
            {"flush_interval": 10, "batch_size": 100, "agent_id": "default", "enabled": True, "url": ""},
        ),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, dict) else "",
)
def test_fields_have_the_defaults_of_the_sources(made: Any, defaults: dict[str, Any]) -> None:
    assert {name: getattr(made, name) for name in defaults} == defaults


@pytest.mark.parametrize(
    ("call", "defaults"),
    [
        (AgentRuntime.register_agent, {"resources": None, "health_check": None}),
        (AgentRuntime.register_llm_agent, {"max_tokens": 2000, "cost_budget": None, "resources": None}),
        (AgentRuntime.stop_agent, {"force": False}),
        (fleet.stop_agent, {"force": False}),
        (HealthChecker.check_health, {"run": False}),
        (HealthChecker.check_llm_health, {"cost_budget": None}),
        (HealthEndpointManager.add_check, {"critical": False}),
        (fleet.setup_health_endpoints, {"prefix": ""}),
        (Scaler.scaling_history, {"limit": 10}),
        (LLMScaler.get_scaling_history, {"limit": 10}),
        (LLMResourceTracker, {"window_size": 300}),
        (LLMResourceTracker.record_request, {"ttft_ms": None, "cost": None, "wait_time_ms": 0}),
        (TokenTracker.record_tokens, {"operation": "completion", "metadata": None}),
        (TokenTracker.get_tokens, {"agent_id": None, "period": None, "period_key": None}),
        (BudgetManager.set_budget, {"agent_id": None, "unit": "tokens", "warning": 0.8, "critical": 0.95}),
        (BudgetManager.check_budget, {"agent_id": None, "period": None}),
        (BudgetManager.get_alerts, {"level": None, "agent_id": None, "limit": 100}),
        (
            fleet.create_llm_scaler,
            {"target_tokens_per_second": 1000, "max_cost_per_hour": None, "min_instances": 1, "max_instances": 10},
        ),
        (ContextWindowManager.get_best_instance, {"prefer_model": None, "prefer_cost": True}),
        (RequestRouter.route, {"max_tokens": None, "prefer_cost": True, "prefer_speed": False}),
        (BatchProcessor.process_request, {"priority": 0}),
        (
            fleet.create_cache,
            {
                "max_size": 1000,
                "strategy": CacheStrategy.EXACT,
                "eviction_policy": fleet.CacheEvictionPolicy.LRU,
                "default_ttl": None,
            },
        ),
        (fleet.AnswerCache.start_cleanup_task, {"interval": 300}),
        (AgentReporter.report_request, {"cost": None, "error_type": None}),
    ],
    ids=lambda value: getattr(value, "__qualname__", ""),
)
def test_parameters_have_the_defaults_of_the_sources(call: Callable[..., Any], defaults: dict[str, Any]) -> None:
    parameters = inspect.signature(call).parameters
    assert {name: parameters[name].default for name in defaults} == defaults


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (fleet.ProcessStatus, "STARTING RUNNING STOPPING STOPPED FAILED CRASHED"),
        (fleet.HealthStatus, "HEALTHY UNHEALTHY DEGRADED UNKNOWN"),
        (fleet.CheckType, "READINESS LIVENESS CUSTOM"),
        (TokenPeriod, "HOURLY DAILY WEEKLY MONTHLY TOTAL"),
        (fleet.ModelVariant, "SMALL MEDIUM LARGE XLARGE"),
        (CacheStrategy, "EXACT SEMANTIC PREFIX HYBRID"),
        (fleet.CacheEvictionPolicy, "LRU LFU COST_BASED TTL"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_words_are_the_sources(words: type[Enum], names: str) -> None:
    assert [word.name for word in words] == names.split()


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"cpu_limit": 0.09}, "cpu_limit"),
        ({"cpu_limit": 32.1}, "cpu_limit"),
        ({"memory_limit_mb": 63}, "memory_limit_mb"),
        ({"max_instances": 0}, "max_instances"),
        ({"max_instances": 101}, "max_instances"),
        ({"startup_timeout": 4.9}, "startup_timeout"),
        ({"shutdown_timeout": 4.9}, "shutdown_timeout"),
        ({"health_check_interval": 4.9}, "health_check_interval"),
    ],
    ids=str,
)
def test_resources_have_the_bounds_of_the_sources(wrong: dict[str, float], field: str) -> None:
    with pytest.raises(ValueError, match=field):
        ResourceConfig(**wrong)  # type: ignore[arg-type]
