"""Hooks: functions that observe a run. They cannot influence it; to block a call, use approvals."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any

from helix.core.checks import require

Hook = Callable[[Any, Any], Any]


@dataclass(frozen=True, kw_only=True)
class Hooks:
    """The functions that observe the runs of an agent, or of all agents of an executor.

    Each field is a function `(payload, context) -> None`, sync or async, or a list of them. A hook that raises or takes
    longer than 5 s is logged and otherwise ignored. `payload` is a mapping with the fields named in
    docs/guide/hooks.md; `context` is a `HookContext`.
    """

    on_agent_start: Hook | tuple[Hook, ...] = ()
    """Called when a run begins, including a resumed run."""
    on_agent_complete: Hook | tuple[Hook, ...] = ()
    """Called when a run has completed."""
    on_agent_fail: Hook | tuple[Hook, ...] = ()
    """Called when a run has failed, including after a crash. Not called for an interrupt or a pause."""
    before_llm_call: Hook | tuple[Hook, ...] = ()
    """Called before each model call."""
    after_llm_call: Hook | tuple[Hook, ...] = ()
    """Called after each answer of a model."""
    before_tool: Hook | tuple[Hook, ...] = ()
    """Called before each execution of a tool. `__finish__` and the calls of sub-agents do not count as tools."""
    after_tool: Hook | tuple[Hook, ...] = ()
    """Called after each execution of a tool, including failures and timeouts."""
    before_sub_agent: Hook | tuple[Hook, ...] = ()
    """Called before a sub-agent runs."""
    after_sub_agent: Hook | tuple[Hook, ...] = ()
    """Called after a sub-agent has run."""
    on_reminder: Hook | tuple[Hook, ...] = ()
    """Called for each reminder of a call that waits for a person or the client."""
    on_state_change: Hook | tuple[Hook, ...] = ()
    """Called when a commit has changed the custom state."""
    on_message: Hook | tuple[Hook, ...] = ()
    """Called once for each message that a commit adds to history, in order."""

    @classmethod
    def of(cls, value: Hooks | Mapping[str, Any], owner: str) -> Hooks:
        if isinstance(value, Hooks):
            value = {f.name: getattr(value, f.name) for f in fields(value)}
        require(isinstance(value, Mapping), owner, "hooks", "must be Hooks(...), or a mapping from name to function")
        known = {f.name for f in fields(cls)}
        clean: dict[str, tuple[Hook, ...]] = {}
        for name, hook in value.items():
            require(name in known, owner, f"hooks.{name}", f"no such hook; the hooks are {', '.join(sorted(known))}")
            chain = hook if isinstance(hook, (list, tuple)) else () if hook is None else (hook,)
            problem = "must be a function of (payload, context), or a list of them"
            require(all(callable(h) for h in chain), owner, f"hooks.{name}", problem)
            clean[name] = tuple(chain)
        return cls(**clean)

    def named(self, name: str) -> tuple[Hook, ...]:
        chain = getattr(self, name)
        return (chain,) if callable(chain) else tuple(chain)

    def __iter__(self) -> Iterator[tuple[str, tuple[Hook, ...]]]:
        for f in fields(self):
            yield f.name, self.named(f.name)
