"""Reports of calls that end elsewhere."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from helix.core.json import JsonObject, JsonValue
from helix.core.replies import CallReported


class CallReports:
    """The base of `HelixClient` that reports calls. The token is the only credential, so the caller need not own the
    session."""

    ask: Callable[[str, JsonObject], Awaitable[JsonObject]]

    async def complete_call(self, token: str, value: JsonValue = None) -> None:
        """End a call that ends elsewhere with its result. See `LocalExecutor.complete_call`."""
        await self.ask("report_call", {"token": token, "data": value})

    async def fail_call(self, token: str, error: str) -> None:
        """End a call that ends elsewhere with an error message for the model. See `LocalExecutor.fail_call`."""
        await self.ask("report_call", {"token": token, "error": error})

    async def prolong_call(self, token: str) -> float | None:
        """Record a heartbeat of a call that ends elsewhere. See `LocalExecutor.prolong_call`."""
        return CallReported.model_validate(
            await self.ask("report_call", {"token": token, "heartbeat": True})
        ).expires_at
