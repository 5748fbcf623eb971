"""Users' model adapters.

Law: this is the only module that probes an adapter for its members. The documented minimum of an adapter is
`generate_step`, so a user's class need not derive from `BaseAdapter` or know which capabilities exist.
`complete_adapter` adds the missing members once, before the engine sees the adapter. All other modules use declared
members, which the type checker verifies.
"""

from __future__ import annotations

from typing import Any

from typing_extensions import TypeIs

from helix.core.config import LLMConfig
from helix.core.steps import AnyStepResult
from helix.ports.catalog import ModelCatalog
from helix.ports.model import BaseAdapter, LLMAdapter, LLMGenerateInput


def is_adapter(value: Any) -> TypeIs[LLMAdapter]:
    """Return whether the value is an adapter, and not a function from an agent to one."""
    return isinstance(value, BaseAdapter) or hasattr(value, "generate_step")


def complete_adapter(adapter: LLMAdapter) -> BaseAdapter:
    """Return the adapter with all members of `BaseAdapter`: its own, and defaults for those that it lacks."""
    return adapter if isinstance(adapter, BaseAdapter) else _Declared(adapter)


class _Declared(BaseAdapter):
    """A user's adapter with all members."""

    def __init__(self, adapter: LLMAdapter) -> None:
        self._adapter = adapter
        self.batches = getattr(adapter, "batches", None)
        self.repeats_failures = bool(getattr(adapter, "repeats_failures", False))
        self._configured = getattr(adapter, "configured", super().configured)
        self._prepare = getattr(adapter, "prepare", super().prepare)
        self._refused_setting = getattr(adapter, "refused_setting", super().refused_setting)
        self._unsupported = getattr(adapter, "unsupported", super().unsupported)

    def configured(self, config: LLMConfig) -> LLMConfig:
        found: LLMConfig = self._configured(config)
        return found

    def prepare(self, config: LLMConfig) -> None:
        self._prepare(config)

    def refused_setting(self, config: LLMConfig) -> str | None:
        found: str | None = self._refused_setting(config)
        return found

    def unsupported(self, request: LLMGenerateInput, catalog: ModelCatalog | None) -> str | None:
        found: str | None = self._unsupported(request, catalog)
        return found

    async def generate_step(self, request: LLMGenerateInput) -> AnyStepResult:
        return await self._adapter.generate_step(request)
