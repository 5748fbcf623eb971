"""Budget alerts as rows: reading them, and telling those that nobody told yet.

Law: an alert stays untold until somebody says that it was told. Whoever publishes does so before `mark_told`, so a crash
between the two tells it again, with the same `alert_id`: at least once.
"""

from __future__ import annotations

from collections.abc import Sequence

from helix.adapters.budget_rows import ALERTS, UNTOLD
from helix.core.budget import AlertLevel, TokenAlert
from helix.core.errors import ConditionFailedError
from helix.ports.state_store import Delete, Key, Operation, Row, StateStore, Update

_PAGE = 100


async def read_alerts(
    store: StateStore, *, level: AlertLevel | None = None, agent_id: str | None = None, limit: int = 100
) -> list[TokenAlert]:
    """The newest first, at most `limit`."""
    found: list[TokenAlert] = []
    end: str | None = None
    while len(found) < limit:
        rows = await store.query("control", ALERTS, end=end, limit=_PAGE, reverse=True)
        for alert in map(_alert, rows):
            if (level is None or alert.level == level) and (agent_id is None or alert.agent_id == agent_id):
                found.append(alert)
        if len(rows) < _PAGE:
            break
        end = rows[-1].key.sort
    return found[:limit]


async def untold_alerts(store: StateStore, limit: int = 100) -> list[TokenAlert]:
    """Those that nobody told yet, the oldest first."""
    return [_alert(row) for row in await store.query("control", UNTOLD, limit=limit)]


async def mark_told(store: StateStore, alerts: Sequence[TokenAlert]) -> None:
    """They were published. Again changes nothing."""
    for alert in alerts:
        untold = Delete(Key("control", UNTOLD, alert.alert_id))
        ops: list[Operation] = [Update(Key("control", ALERTS, alert.alert_id), set={"told": True}), untold]
        try:
            await store.transact("alert_told", ops)
        except ConditionFailedError:  # its row has expired
            await store.transact("alert_told", [untold])


def _alert(row: Row) -> TokenAlert:
    return TokenAlert.model_validate({name: value for name, value in row.value.items() if name != "ttl"})
