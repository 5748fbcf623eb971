"""An event source that starts again from the beginning. Records that the log has are skipped, and missing ones are
projected."""

from __future__ import annotations

from typing import Any

import pytest
from tests.integration.test_projecting import Pipe

from helix.core.errors import StoreError
from helix.gateway.projector import REPOST_S
from helix.testing.contracts.streams import ended, started, text

pytestmark = pytest.mark.asyncio


@pytest.fixture
def pipe() -> Pipe:
    made = Pipe()
    made.shard.age_s = REPOST_S + 1
    return made


async def test_a_replay_costs_one_read_of_each_stream(pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    for stream in ("ses_1", "ses_2"):
        pipe.shard.put(stream, started(), *(text(n, "word") for n in range(30)))
        pipe.shard.put(stream, ended())
    await pipe.projector().project(pipe.shard.records)
    await pipe.watch("reader", "ses_1")
    reads: list[str] = []
    query = pipe.store.query

    async def counted(table: Any, partition: str, **more: Any) -> Any:
        reads.append(partition)
        return await query(table, partition, **more)

    monkeypatch.setattr(pipe.store, "query", counted)
    unreadable = [record._replace(data=b"would be set aside") for record in pipe.shard.records]
    projector = pipe.projector()
    for _ in range(3):
        assert await projector.project(unreadable) is None
    assert sorted(reads) == ["ses_1", "ses_2"]
    assert pipe.got("reader") == [] and pipe.shelf.kept == {}


async def test_what_the_log_does_not_have_is_projected_however_old(pipe: Pipe) -> None:
    pipe.shard.put("ses_1", started(), text(0, "known"))
    await pipe.projector().project(pipe.shard.records)
    await pipe.watch("reader", "ses_1")
    pipe.shard.put("ses_1", text(1, "missed"))
    await pipe.projector().project(pipe.shard.records)
    assert pipe.got("reader") == ["missed"]


async def test_a_store_that_does_not_answer_fails_the_replay(pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    pipe.shard.put("ses_1", started(), text(0, "known"))
    await pipe.projector().project(pipe.shard.records)

    async def silent(*_: Any, **__: Any) -> Any:
        raise StoreError("no answer")

    monkeypatch.setattr(pipe.store, "query", silent)
    failed = await pipe.projector().project(pipe.shard.records)
    assert failed == pipe.shard.records[0].position
