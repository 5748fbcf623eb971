"""Helix: durable, resumable, streaming AI agents.

    from helix import Agent, LLMConfig, LocalExecutor, tool

Names are loaded when first used, so that `import helix` stays quick.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from helix._version import __version__
from helix.core.lazy import LazyNames

if TYPE_CHECKING:
    from helix.adapters.mcp import MCPServer as MCPServer
    from helix.adapters.memory import MemoryStateStore as MemoryStateStore
    from helix.adapters.models.adapter import ModelAdapter as ModelAdapter
    from helix.adapters.models.demo import DemonstrationModel as DemonstrationModel
    from helix.adapters.models.litellm import LiteLLMAdapter as LiteLLMAdapter
    from helix.adapters.models.scripted import ScriptedModel as ScriptedModel
    from helix.adapters.sqlite import SQLiteStateStore as SQLiteStateStore
    from helix.core.agents import Agent as Agent
    from helix.core.agents import define_agent as define_agent
    from helix.core.caching import ResponseCacheConfig as ResponseCacheConfig
    from helix.core.chunks import StreamChunk as StreamChunk
    from helix.core.config import LLMConfig as LLMConfig
    from helix.core.context import ToolContext as ToolContext
    from helix.core.context import create_tool_context as create_tool_context
    from helix.core.context_policy import Clear as Clear
    from helix.core.context_policy import ClearResults as ClearResults
    from helix.core.context_policy import Context as Context
    from helix.core.context_policy import Hide as Hide
    from helix.core.context_policy import KeepLast as KeepLast
    from helix.core.context_policy import ShownContext as ShownContext
    from helix.core.context_policy import Summarise as Summarise
    from helix.core.context_policy import Summary as Summary
    from helix.core.elsewhere import CallEndedError as CallEndedError
    from helix.core.elsewhere import InvalidCallTokenError as InvalidCallTokenError
    from helix.core.errors import AgentAlreadyRunningError as AgentAlreadyRunningError
    from helix.core.errors import AgentNotFoundError as AgentNotFoundError
    from helix.core.errors import BudgetExceededError as BudgetExceededError
    from helix.core.errors import CallNotPendingError as CallNotPendingError
    from helix.core.errors import CannotResumeError as CannotResumeError
    from helix.core.errors import CheckpointNotFoundError as CheckpointNotFoundError
    from helix.core.errors import DefinitionError as DefinitionError
    from helix.core.errors import DependencyError as DependencyError
    from helix.core.errors import FatalToolError as FatalToolError
    from helix.core.errors import HelixError as HelixError
    from helix.core.errors import InvalidInputError as InvalidInputError
    from helix.core.errors import ModelError as ModelError
    from helix.core.errors import SessionExistsError as SessionExistsError
    from helix.core.errors import SessionNotFoundError as SessionNotFoundError
    from helix.core.errors import StoreError as StoreError
    from helix.core.errors import ToolError as ToolError
    from helix.core.files import Audio as Audio
    from helix.core.files import Document as Document
    from helix.core.files import File as File
    from helix.core.files import FilePart as FilePart
    from helix.core.files import Image as Image
    from helix.core.files import Text as Text
    from helix.core.frontend_tools import FrontendTool as FrontendTool
    from helix.core.functions import AgentClient as AgentClient
    from helix.core.guards import Guard as Guard
    from helix.core.guards import GuardContext as GuardContext
    from helix.core.handles import AgentExecutionHandle as AgentExecutionHandle
    from helix.core.handles import AgentResult as AgentResult
    from helix.core.handles import CanResumeResult as CanResumeResult
    from helix.core.handles import Confirmation as Confirmation
    from helix.core.handles import SessionState as SessionState
    from helix.core.handoffs import Handoff as Handoff
    from helix.core.hooks import Hooks as Hooks
    from helix.core.initial import AgentInput as AgentInput
    from helix.core.output_checks import OutputContext as OutputContext
    from helix.core.partial_output import OutputDiscarded as OutputDiscarded
    from helix.core.partial_output import OutputItem as OutputItem
    from helix.core.questions import Question as Question
    from helix.core.questions import ask_user as ask_user
    from helix.core.registry import AgentRegistry as AgentRegistry
    from helix.core.registry import default_registry as default_registry
    from helix.core.reminders import ReminderContext as ReminderContext
    from helix.core.routes import Route as Route
    from helix.core.routes import RouteOption as RouteOption
    from helix.core.run_settings import RunSettings as RunSettings
    from helix.core.server_tools import CodeExecution as CodeExecution
    from helix.core.server_tools import FileSearch as FileSearch
    from helix.core.server_tools import RemoteMcp as RemoteMcp
    from helix.core.server_tools import WebSearch as WebSearch
    from helix.core.tools import FINISH_TOOL_NAME as FINISH_TOOL_NAME
    from helix.core.tools import SUBAGENT_TOOL_PREFIX as SUBAGENT_TOOL_PREFIX
    from helix.core.tools import Tool as Tool
    from helix.core.tools import create_finish_tool as create_finish_tool
    from helix.core.tools import create_sub_agent_tool as create_sub_agent_tool
    from helix.core.tools import define_tool as define_tool
    from helix.core.tools import is_finish_tool as is_finish_tool
    from helix.core.tools import is_sub_agent_tool as is_sub_agent_tool
    from helix.core.tools import tool as tool
    from helix.core.usage import Usage as Usage
    from helix.core.verdicts import Allow as Allow
    from helix.core.verdicts import Ask as Ask
    from helix.core.verdicts import Block as Block
    from helix.core.verdicts import Replace as Replace
    from helix.core.verdicts import Retry as Retry
    from helix.runtime.local import LocalExecutor as LocalExecutor
    from helix.runtime.plain import run as run
    from helix.sessions.read import Sessions as Sessions
    from helix.sessions.recovery import recover_conversation as recover_conversation

_NAMES = LazyNames(
    __name__,
    {
        "helix.adapters.mcp": "MCPServer",
        "helix.adapters.memory": "MemoryStateStore",
        "helix.adapters.models.demo": "DemonstrationModel",
        "helix.adapters.models.adapter": "ModelAdapter",
        "helix.adapters.models.litellm": "LiteLLMAdapter",
        "helix.adapters.models.scripted": "ScriptedModel",
        "helix.adapters.sqlite": "SQLiteStateStore",
        "helix.core.agents": "Agent define_agent",
        "helix.core.caching": "ResponseCacheConfig",
        "helix.core.chunks": "StreamChunk",
        "helix.core.config": "LLMConfig",
        "helix.core.context": "ToolContext create_tool_context",
        "helix.core.context_policy": "Clear ClearResults Context Hide KeepLast ShownContext Summarise Summary",
        "helix.core.elsewhere": "CallEndedError InvalidCallTokenError",
        "helix.core.errors": "AgentAlreadyRunningError AgentNotFoundError BudgetExceededError CallNotPendingError "
        "CannotResumeError CheckpointNotFoundError DefinitionError DependencyError FatalToolError HelixError "
        "InvalidInputError ModelError SessionExistsError SessionNotFoundError StoreError ToolError",
        "helix.core.files": "Audio Document File FilePart Image Text",
        "helix.core.functions": "AgentClient",
        "helix.core.frontend_tools": "FrontendTool",
        "helix.core.run_settings": "RunSettings",
        "helix.core.guards": "Guard GuardContext",
        "helix.core.handles": "AgentExecutionHandle AgentResult CanResumeResult Confirmation SessionState",
        "helix.core.handoffs": "Handoff",
        "helix.core.hooks": "Hooks",
        "helix.core.initial": "AgentInput",
        "helix.core.output_checks": "OutputContext",
        "helix.core.partial_output": "OutputDiscarded OutputItem",
        "helix.core.questions": "Question ask_user",
        "helix.core.registry": "AgentRegistry default_registry",
        "helix.core.reminders": "ReminderContext",
        "helix.core.routes": "Route RouteOption",
        "helix.core.server_tools": "CodeExecution FileSearch RemoteMcp WebSearch",
        "helix.core.tools": "FINISH_TOOL_NAME SUBAGENT_TOOL_PREFIX Tool create_finish_tool create_sub_agent_tool "
        "define_tool is_finish_tool is_sub_agent_tool tool",
        "helix.core.usage": "Usage",
        "helix.core.verdicts": "Allow Ask Block Replace Retry",
        "helix.sessions.read": "Sessions",
        "helix.sessions.recovery": "recover_conversation",
        "helix.runtime.local": "LocalExecutor",
        "helix.runtime.plain": "run",
    },
)
__all__ = ["__version__", *_NAMES.names()]
__getattr__, __dir__ = _NAMES.load, _NAMES.names
