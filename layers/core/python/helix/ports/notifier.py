"""Telling people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol


class Notifier(Protocol):
    async def publish(self, subject: str, message: Mapping[str, Any]) -> bool:
        """Hand the message on, as JSON. True: it will be delivered at least once. False: nobody is there to be told. Raises
        `StoreError` when it may not have been taken; publish it again then."""
        ...


class NoNotifier:
    async def publish(self, subject: str, message: Mapping[str, Any]) -> bool:
        return False
