"""The deletion of a user's files (`helix forget`), with rows that cannot be read among them."""

from __future__ import annotations

from typing import Any

import pytest
from tests.integration.test_blob_holders import ADA, BOB, SHA, World
from tests.properties.blob_walk import DAY_S
from tests.support.sample_files import png

from helix import Agent, LocalExecutor, MemoryStateStore, ScriptedModel
from helix.adapters.memory_blobs import MemoryBlobs
from helix.adapters.system import SystemClock
from helix.core.file_checks import describe
from helix.fleet.forgetting import UserDataDeletion
from helix.ports.objects import NoObjects
from helix.ports.state_store import Put
from helix.services.blob_rows import blob_key, blob_owner
from helix.services.owner_blobs import OwnerBlobs

DAMAGED: list[dict[str, Any]] = [{"state": "odd"}, {"state": 7, "key": [], "size": "x"}, {"state": "live"}]


@pytest.fixture
def world() -> World:
    return World(MemoryStateStore(), MemoryBlobs())


def files_of(world: World) -> OwnerBlobs:
    return OwnerBlobs(world.store, world.blobs, world.clock, ADA)


async def damage(world: World, value: dict[str, Any]) -> None:
    await world.store.transact("damage", [Put(blob_key(ADA, SHA), value)])


@pytest.mark.parametrize("value", DAMAGED)
async def test_a_user_with_a_damaged_row_is_forgotten(value: dict[str, Any]) -> None:
    store, blobs = MemoryStateStore(), MemoryBlobs()
    desk = Agent(name="desk", system_prompt="Look.", model="scripted")
    async with LocalExecutor(store, model=ScriptedModel(["done"], repeat=True), blobs=blobs) as executor:
        handle = await executor.execute(desk, ["Look", png(), png(note=b"other")], user_id="ada")
        await handle.result()
        await store.transact("damage", [Put(blob_key(blob_owner("ada", ""), SHA), value)])
        deletion = UserDataDeletion(store, NoObjects(), blobs, "ada", SystemClock())
        found = await deletion.find_data()
        assert found.files == 2
        await deletion.note(found)
        await executor.delete(handle.session_id)
        await deletion.delete(await deletion.find_data())
        assert (await deletion.find_data()).files == 0 and await blobs.list("") == []
        assert await store.get([blob_key(blob_owner("ada", ""), SHA)]) == [None]
        await (await executor.execute(desk, ["Again", png()], user_id="ada")).result()
        assert len(await blobs.list("")) == 1, "the same bytes can be stored again"


@pytest.mark.parametrize("value", DAMAGED)
async def test_a_damaged_blob_that_a_branch_of_another_user_holds_stays(world: World, value: dict[str, Any]) -> None:
    await world.send("s1", png())
    await world.holders.share("s1", "s2")
    await world.send("s2", owner=BOB)
    await damage(world, value)
    assert await files_of(world).count({"s1", "s2"}) == 1
    await world.release("s1")
    assert await files_of(world).count(set()) == 0
    await files_of(world).delete()
    (blob,) = (await world.holders.held("s2")).values()
    assert await world.blobs.get(blob.key) == png()
    await world.release("s2")
    await files_of(world).delete()
    assert await world.left() == []


async def test_bytes_that_no_row_names_are_deleted_with_their_user_alone(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sweep does not look for them: the rows may have been restored, and sessions may hold the bytes."""
    monkeypatch.setattr("helix.services.owner_blobs.PAGE", 1)
    await world.send("s1", png())
    (key,) = await world.blobs.list("")
    theirs, others = f"blobs/{ADA}/{SHA}.AAAA", [f"blobs/{BOB}/{SHA}.BBBB", "blobs/not-ours", "other/file"]
    for other in (theirs, *others):
        await world.blobs.put(other, b"x", "text/plain")
    assert await world.collect(DAY_S) == 0 and len(await world.blobs.list("")) == 5
    await files_of(world).delete()
    assert await world.blobs.list("") == sorted([*others, key])


async def test_a_damaged_row_without_bytes_goes_too(world: World) -> None:
    """The upload never came. Its due row names the blob."""
    await world.uploads.begin(ADA, SHA, len(png()), "image/png", 60)
    await damage(world, {"state": "odd"})
    await files_of(world).delete()
    assert await world.left() == [] and await files_of(world).count(set()) == 0


async def test_a_row_that_replaced_a_damaged_one_stays(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two commands find the damaged row. When the second deletes it, an upload has written a new one."""
    await world.send("s1", png())
    await damage(world, {"state": "odd"})
    await world.release("s1")
    transact = world.store.transact

    async def late(name: str, operations: Any) -> None:
        if name == "delete_damaged_blob":
            monkeypatch.undo()
            await files_of(world).delete()
            await world.send("s2", png())
        await transact(name, operations)

    monkeypatch.setattr(world.store, "transact", late)
    await files_of(world).delete()
    (blob,) = (await world.holders.held("s2")).values()
    assert await world.blobs.get(blob.key) == png() and await world.collect(DAY_S) == 0
    assert (await world.holders.hold(ADA, "s2", [describe(png())])).owners == {SHA: ADA}
