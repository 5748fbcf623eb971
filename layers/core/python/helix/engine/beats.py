"""The schedule's heartbeat: when `sweep` last ran, for whoever asks whether anybody still looks.

Law: the beat is a row of the target `app` in the health partitions; it says nothing of what was found.
"""

from __future__ import annotations

from helix.core.errors import StoreError
from helix.engine.engine import Engine, logger
from helix.ports.state_store import Key, Put

SWEEP = "sweep"
BEAT = Key("control", "health#app", SWEEP)


async def note_sweep(engine: Engine) -> None:
    try:
        await engine.store.transact("note_sweep", [Put(BEAT, {"at": engine.clock.now()})])
    except StoreError as error:
        logger.warning("the sweep's heartbeat could not be written: %s", error)
