"""Functions that read the budget alerts in the store, and publish those that are not published yet.

Law: an alert is first published and then marked, so delivery is at least once. After a crash between the two, it is
published again with the same `alert_id`. Without a listener, alerts remain unpublished until one is registered.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from helix.core.budget import AlertLevel, TokenAlert
from helix.core.errors import StoreError
from helix.engine.engine import logger
from helix.ports.state_store import Delete, Key, Operation, StateStore, Update
from helix.services.budget_rows import ALERTS, UNPUBLISHED
from helix.services.committing import refused

Publish = Callable[[str, Mapping[str, Any]], Awaitable[bool]]
"""A function that sends a subject and a message to people. It returns False if there is no receiver, and raises
`StoreError` if the message may be lost."""
_PAGE = 100


async def read_alerts(
    store: StateStore, *, level: AlertLevel | None = None, agent_name: str | None = None, limit: int = 100
) -> list[TokenAlert]:
    """Return at most `limit` alerts, newest first."""
    found: list[TokenAlert] = []
    end: str | None = None
    while len(found) < limit:
        rows = await store.query("control", ALERTS, end=end, limit=_PAGE, reverse=True)
        for alert in (TokenAlert.model_validate(row.value) for row in rows):
            if level in (None, alert.level) and agent_name in (None, alert.agent_id):
                found.append(alert)
        if len(rows) < _PAGE:
            break
        end = rows[-1].key.sort
    return found[:limit]


async def unpublished_alerts(store: StateStore, limit: int = 100) -> list[TokenAlert]:
    """Return unpublished alerts, oldest first."""
    rows = await store.query("control", UNPUBLISHED, limit=limit)
    return [TokenAlert.model_validate(row.value) for row in rows]


async def mark_published(store: StateStore, alerts: Sequence[TokenAlert]) -> None:
    """Mark alerts as published. Idempotent."""
    for alert in alerts:
        done = Delete(Key("control", UNPUBLISHED, alert.alert_id))
        ops: list[Operation] = [Update(Key("control", ALERTS, alert.alert_id), set={"published": True}), done]
        if await refused(store, "alert_told", ops) is not None:  # its row has expired
            await store.transact("alert_told", [done])


async def publish_alerts(store: StateStore, publish: Publish, stage: str, *, at_most: int = 50) -> int:
    """Publish alerts, oldest first, and return their number. If one cannot be published now, it and those after it wait for
    the next call, so that they stay in order."""
    done = 0
    for alert in await unpublished_alerts(store, limit=at_most):
        subject = f"Helix {stage}: {alert.level}: budget {alert.scope}/{alert.period}"
        try:
            if not await publish(subject, {"stage": stage, **alert.model_dump(mode="json", exclude={"published"})}):
                break
        except StoreError as error:
            logger.warning("budget alert %s is not published yet: %s", alert.alert_id, error)
            break
        await mark_published(store, [alert])
        done += 1
    return done
