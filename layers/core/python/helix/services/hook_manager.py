"""Calling hooks: in order, isolated, each within five seconds, never with an effect on the run."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from helix._log import get_logger
from helix.core.hooks import Hooks
from helix.core.json import JsonObject, JsonValue
from helix.core.patches import json_copy

logger = get_logger("helix.hooks")
TIMEOUT_S = 5.0
NO_HOOKS = Hooks()


@dataclass(frozen=True, slots=True)
class HookContext:
    """Where a hook is called. `event_id` names the event: the same if it is delivered again."""

    session_id: str
    run_id: str
    agent_type: str
    stream_id: str
    step_count: int
    event_id: str
    parent_session_id: str | None = None
    user_id: str | None = None
    tags: list[str] = field(default_factory=list)
    metadata: JsonObject = field(default_factory=dict)
    state: JsonObject = field(default_factory=dict)
    _emit: Callable[[str, JsonValue], None] | None = None

    def get_state(self) -> JsonObject:
        """A copy of the committed custom state."""
        copy: JsonObject = json_copy(self.state)
        return copy

    def emit_custom(self, name: str, data: JsonValue = None) -> None:
        """Put a `custom` chunk on the stream; nothing where the run has ended."""
        if self._emit is not None:
            self._emit(name, data)


class HookManager:
    """Hooks of the executor first, then the agent's."""

    def __init__(self, hooks: Hooks | Mapping[str, Any] | None = None) -> None:
        self._own = Hooks.of(hooks or {}, "executor")
        self._has_own = self._own != NO_HOOKS

    def any_wanted(self, agent_hooks: Hooks | Mapping[str, Any]) -> bool:
        return self._has_own or (isinstance(agent_hooks, Hooks) and agent_hooks != NO_HOOKS)

    def wanted(self, name: str, agent_hooks: Hooks | Mapping[str, Any]) -> bool:
        return bool(self._own.named(name)) or (isinstance(agent_hooks, Hooks) and bool(agent_hooks.named(name)))

    async def invoke(
        self, name: str, agent_hooks: Hooks | Mapping[str, Any], payload: Mapping[str, Any], context: HookContext
    ) -> None:
        """Call every hook of that name. What one raises is logged; the next is called all the same."""
        chain = [*self._own.named(name), *(agent_hooks.named(name) if isinstance(agent_hooks, Hooks) else ())]
        for hook in chain:
            try:
                async with asyncio.timeout(TIMEOUT_S):
                    await _call(hook, payload, context)
            except asyncio.CancelledError:
                task = asyncio.current_task()
                if task is None or task.cancelling():
                    raise
                logger.warning("hook %s was cancelled from inside for %s", name, context.event_id)
            except Exception:
                logger.warning("hook %s failed for %s", name, context.event_id, exc_info=True)


async def _call(hook: Callable[[Any, Any], Any], payload: Mapping[str, Any], context: HookContext) -> None:
    if inspect.iscoroutinefunction(hook):
        await hook(payload, context)
        return
    result = await asyncio.to_thread(hook, payload, context)
    if inspect.isawaitable(result):
        await result
