"""Telling people of budget alerts that nobody told yet.

Law: first published, then marked: a crash between the two tells an alert again, with the same `alert_id`. Where nobody is
there to be told, alerts stay untold, until somebody is.
"""

from __future__ import annotations

from helix.core.errors import StoreError
from helix.engine.engine import logger
from helix.fleet.alerts import mark_told, untold_alerts
from helix.ports.notifier import Notifier
from helix.ports.state_store import StateStore


async def tell_alerts(store: StateStore, notifier: Notifier, stage: str, *, at_most: int = 50) -> int:
    """The oldest first. Returns how many were told. One that cannot be published now is left to the next look, with those
    after it: they stay in order."""
    told = 0
    for alert in await untold_alerts(store, limit=at_most):
        subject = f"Helix {stage}: {alert.level}: budget {alert.scope}/{alert.period}"
        try:
            if not await notifier.publish(subject, {"stage": stage, **alert.model_dump(mode="json", exclude={"told"})}):
                return told
        except StoreError as error:
            logger.warning("budget alert %s is not told yet: %s", alert.alert_id, error)
            return told
        await mark_told(store, [alert])
        told += 1
    return told
