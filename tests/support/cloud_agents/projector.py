"""`project_stream` with crash points: `Handler=cloud_agents.projector.handler` in place of the function's own.

Law: the deployed handler runs, and only at its writes and posts can it be killed.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from helix.adapters.aws.dynamodb import DynamoDBStateStore
from helix.gateway import projector
from helix.ports.state_store import Operation

from .crashes import CRASHES, Points

_points = Points(Path(os.environ[CRASHES]), "project_stream")
_transact, _post = DynamoDBStateStore.transact, projector.post_messages


async def _armed_transact(store: DynamoDBStateStore, name: str, operations: Sequence[Operation]) -> None:
    stream_id = operations[0].key.partition
    await _points.around(stream_id, name, lambda: _transact(store, name, operations))


async def _armed_post(connections: Any, sockets: Any, stream_id: str, *more: Any) -> Any:
    return await _points.around(stream_id, "post", lambda: _post(connections, sockets, stream_id, *more))


DynamoDBStateStore.transact = _armed_transact  # type: ignore[assignment, method-assign]
projector.post_messages = _armed_post  # type: ignore[assignment]

from handler import handler  # type: ignore[import-not-found]  # noqa: E402  the function's own

__all__ = ["handler"]
