"""The stored size of a session with one turn. `bench/disk.py` measures the file; more or longer rows fail here first."""

from __future__ import annotations

from collections import Counter

from helix import Agent, LLMConfig, LocalExecutor, MemoryStateStore
from helix.adapters.models.scripted import ScriptedModel
from helix.core.json import size
from helix.ports.state_store import Key
from helix.testing.clocks import SetClock

AGENT = Agent(name="bench", system_prompt="Answer.", llm_config=LLMConfig(model="instant/none"))
ROWS = {"session": 1, "r": 1, "m": 2, "c": 2}
BYTES = {"session": 415, "r": 540, "m": 405, "c": 300, "index": 70, "facets": 75, "segment": 500}
"""The maximum for all rows of a kind together, or for each segment."""


async def test_rows_of_a_session_stay_few_and_short() -> None:
    store = MemoryStateStore()
    model = ScriptedModel(["The capital of France is Paris."])
    async with LocalExecutor(store, model=model, clock=SetClock(1_795_361_118.8642)) as executor:
        handle = await executor.execute(AGENT, "What is the capital of France?")
        assert (await handle.result()).status == "completed"
        rows = await store.query("sessions", handle.session_id)
        segments = await store.query("streams", handle.session_id)
        keys = [Key("sessions", f"{name}#", handle.session_id) for name in ("index", "facets")]
        listed, described = await store.get(keys)
    kinds = [(row.key.sort.partition("#")[0], row) for row in rows]
    assert Counter(kind for kind, _ in kinds) == ROWS
    taken = {kind: sum(size(row.value) for name, row in kinds if name == kind) for kind in ROWS}
    assert {kind: taken[kind] for kind in ROWS if taken[kind] > BYTES[kind]} == {}
    assert [size(row.value) for row in segments if size(row.value) > BYTES["segment"]] == []
    assert size(listed) <= BYTES["index"] and size(described) <= BYTES["facets"]
