"""Calls hooks in order and isolated from each other, with a timeout of five seconds each. A hook never affects the
run."""

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
    """The context of an event that is passed to its hook."""

    session_id: str
    """The session of the run."""
    run_id: str
    """The run in which the event happened."""
    agent_type: str
    """The agent of the session."""
    stream_id: str
    """The stream of the root session, to which `emit_custom` writes."""
    step_count: int
    """The number of the last step in the session's history."""
    event_id: str
    """The id of the event. It is the same if the event is delivered again."""
    parent_session_id: str | None = None
    """For a sub-agent: the session that called it. None for a root session."""
    user_id: str | None = None
    """The owner of the session. None for a session without an owner."""
    tags: list[str] = field(default_factory=list)
    """The labels from the session's creator."""
    metadata: JsonObject = field(default_factory=dict)
    """The JSON object from the session's creator."""
    state: JsonObject = field(default_factory=dict)
    """The committed custom state. Use `get_state` for a copy that may be changed."""
    _emit: Callable[[str, JsonValue], None] | None = None

    def get_state(self) -> JsonObject:
        """Return a copy of the committed custom state."""
        copy: JsonObject = json_copy(self.state)
        return copy

    def emit_custom(self, name: str, data: JsonValue = None) -> None:
        """Put a `custom` chunk on the stream. Do nothing if the run has ended."""
        if self._emit is not None:
            self._emit(name, data)


class HookManager:
    """A manager that calls the executor's hooks first, then the agent's."""

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
        """Call every hook with that name. If a hook raises, the exception is logged and the next hook is still
        called."""
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
