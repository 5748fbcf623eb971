"""Helix: durable, resumable, streaming AI agents.

    from helix import Agent, LLMConfig, LocalExecutor, tool

Names are loaded when first used, so that `import helix` stays quick.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from helix._version import __version__

if TYPE_CHECKING:
    from helix.adapters.mcp import MCPServer
    from helix.adapters.memory import MemoryStateStore
    from helix.adapters.models.demo import DemonstrationModel
    from helix.adapters.models.litellm import LiteLLMAdapter
    from helix.adapters.models.scripted import ScriptedModel
    from helix.adapters.sqlite import SQLiteStateStore
    from helix.core.agents import Agent, define_agent
    from helix.core.caching import ResponseCacheConfig
    from helix.core.chunks import StreamChunk
    from helix.core.config import LLMConfig
    from helix.core.context import ToolContext, create_tool_context
    from helix.core.errors import (
        AgentAlreadyRunningError,
        AgentNotFoundError,
        BudgetExceededError,
        CallNotPendingError,
        CannotResumeError,
        CheckpointNotFoundError,
        DefinitionError,
        FatalToolError,
        HelixError,
        InvalidInputError,
        ModelError,
        SessionExistsError,
        SessionNotFoundError,
        StoreError,
        ToolError,
    )
    from helix.core.functions import AgentClient
    from helix.core.handles import AgentExecutionHandle, AgentResult, CanResumeResult, Confirmation, SessionState
    from helix.core.hooks import Hooks
    from helix.core.initial import AgentInput
    from helix.core.registry import AgentRegistry, default_registry
    from helix.core.routes import Route, RouteOption
    from helix.core.tools import (
        FINISH_TOOL_NAME,
        SUBAGENT_TOOL_PREFIX,
        Tool,
        create_finish_tool,
        create_sub_agent_tool,
        define_tool,
        is_finish_tool,
        is_sub_agent_tool,
        tool,
    )
    from helix.core.usage import Usage
    from helix.runtime.local import LocalExecutor
    from helix.sessions.read import Sessions, recover_conversation

_HOME = {
    "adapters.mcp": "MCPServer",
    "adapters.memory": "MemoryStateStore",
    "adapters.models.demo": "DemonstrationModel",
    "adapters.models.litellm": "LiteLLMAdapter",
    "adapters.models.scripted": "ScriptedModel",
    "adapters.sqlite": "SQLiteStateStore",
    "core.agents": "Agent define_agent",
    "core.caching": "ResponseCacheConfig",
    "core.chunks": "StreamChunk",
    "core.config": "LLMConfig",
    "core.context": "ToolContext create_tool_context",
    "core.errors": "AgentAlreadyRunningError AgentNotFoundError BudgetExceededError CallNotPendingError CannotResumeError"
    " CheckpointNotFoundError DefinitionError FatalToolError HelixError InvalidInputError ModelError SessionExistsError"
    " SessionNotFoundError StoreError ToolError",
    "core.functions": "AgentClient",
    "core.handles": "AgentExecutionHandle AgentResult CanResumeResult Confirmation SessionState",
    "core.hooks": "Hooks",
    "core.initial": "AgentInput",
    "core.registry": "AgentRegistry default_registry",
    "core.routes": "Route RouteOption",
    "core.tools": "FINISH_TOOL_NAME SUBAGENT_TOOL_PREFIX Tool create_finish_tool create_sub_agent_tool define_tool"
    " is_finish_tool is_sub_agent_tool tool",
    "core.usage": "Usage",
    "sessions.read": "Sessions recover_conversation",
    "runtime.local": "LocalExecutor",
}
_MODULES = {name: module for module, names in _HOME.items() for name in names.split()}
__all__ = [
    "__version__",
    "Agent",
    "AgentAlreadyRunningError",
    "AgentClient",
    "AgentExecutionHandle",
    "AgentInput",
    "AgentNotFoundError",
    "AgentRegistry",
    "AgentResult",
    "BudgetExceededError",
    "CallNotPendingError",
    "CanResumeResult",
    "CannotResumeError",
    "CheckpointNotFoundError",
    "Confirmation",
    "DefinitionError",
    "DemonstrationModel",
    "FINISH_TOOL_NAME",
    "FatalToolError",
    "HelixError",
    "Hooks",
    "InvalidInputError",
    "LLMConfig",
    "LiteLLMAdapter",
    "LocalExecutor",
    "MCPServer",
    "MemoryStateStore",
    "ModelError",
    "ResponseCacheConfig",
    "Route",
    "RouteOption",
    "SQLiteStateStore",
    "SUBAGENT_TOOL_PREFIX",
    "ScriptedModel",
    "SessionExistsError",
    "SessionNotFoundError",
    "SessionState",
    "Sessions",
    "StoreError",
    "StreamChunk",
    "Tool",
    "ToolContext",
    "ToolError",
    "Usage",
    "create_finish_tool",
    "create_sub_agent_tool",
    "create_tool_context",
    "default_registry",
    "define_agent",
    "define_tool",
    "is_finish_tool",
    "is_sub_agent_tool",
    "recover_conversation",
    "tool",
]


def __getattr__(name: str) -> Any:
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module 'helix' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"helix.{module}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
