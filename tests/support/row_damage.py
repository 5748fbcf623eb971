"""Damage to stored rows, one field at a time, and a session that has rows of each kind."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from tests.support_gateway import executor_of
from tests.support_run import Text, a_tool, agent, call, calls, play
from tests.support_sub_agents import Notes, ask, child, finish, write

from helix import LocalExecutor, MemoryStateStore, create_sub_agent_tool
from helix.core.errors import ModelError
from helix.ports.state_store import Key, Put, Row, Value

GONE = object()
OTHERS: tuple[Any, ...] = (GONE, None, "x", "", 7, -1, 2.5, True, 10**30, float("nan"), [], ["x"], {}, {"x": 1})
"""The replacements of a field: missing, null, another type, outside its range, a reference to a missing object."""


class Damage(NamedTuple):
    key: Key
    path: tuple[str | int, ...]
    other: object
    value: Value

    def __str__(self) -> str:
        other = "GONE" if self.other is GONE else repr(self.other)
        return f"{self.key.table}/{self.key.partition}/{self.key.sort} {'.'.join(map(str, self.path))} = {other}"


def damages(row: Row, depth: int = 3) -> Iterator[Damage]:
    """Yield each field of the row with each other value, and each row of another kind."""
    for path in _paths(row.value, depth):
        before = _at(row.value, path)
        for other in OTHERS:
            if type(other) is type(before) and other == before:
                continue
            value = copy.deepcopy(row.value)
            holder = _at(value, path[:-1])
            if other is GONE:
                del holder[path[-1]]
            else:
                holder[path[-1]] = other
            yield Damage(row.key, path, other, value)


def _paths(value: Any, depth: int) -> Iterator[tuple[str | int, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, item in items:
        yield (name,)
        if depth > 1:
            yield from ((name, *rest) for rest in _paths(item, depth - 1))


def _at(value: Any, path: tuple[str | int, ...]) -> Any:
    for part in path:
        value = value[part]
    return value


APPROVE = a_tool("approve", lambda given, ctx: f"approved {given.text}", input_schema=Text, require_approval=True)
FINDER = child()
BOSS = agent(
    "boss",
    tools=[create_sub_agent_tool(FINDER), a_tool("write", write, input_schema=Text), APPROVE],
    state_schema=Notes,
)


def script() -> dict[str, list[Any]]:
    """Return the answers of the session's models, and of what is done with it afterwards."""
    first = [calls(ask(), call("write", text="a"), content="Asking.") | {"thinking": [{"text": "Hm."}]}, "One."]
    boss = [
        *first,
        ModelError("busy", retryable=True, retry_after_s=0.01),
        "Two.",
        calls(call("approve", text="b"), call("write", text="c")),
    ]
    return {"boss": boss, "finder": [calls(call("write", text="f")), finish("blue")]}


async def play_session(store: MemoryStateStore) -> list[Row]:
    """Play session `s` with a sub-agent, a rewind, a failed attempt, and a step that waits for approval. Return its rows,
    and those of the sub-agent and the stream. Session `other` exists beside it."""
    async with executor_of(script(), BOSS, FINDER, store=store) as executor:
        await play(executor, BOSS, session_id="s", user_id="u", tags=["t"], metadata={"m": 1}, key="k")
        point = (await executor.sessions.list_checkpoints("s", limit=10)).items[-2]
        rewound = await executor.resume(BOSS, "s", mode="from_checkpoint", checkpoint_id=point.id, message="again")
        assert (await rewound.result()).status == "completed"
        _, result, _ = await play(executor, BOSS, session_id="s")
        assert result.status == "paused"
    async with executor_of(["Hello."], store=store) as executor:
        await play(executor, agent("helper"), session_id="other")
    rows = await store.query("sessions", "s")
    children = [ref.session_id for ref in await executor.sessions.list_sub_sessions("s")]
    for session_id in children or [row.value["child"]["session_id"] for row in rows if row.value.get("child")]:
        rows += await store.query("sessions", session_id)
    return rows + await store.query("streams", "s")


async def put(store: MemoryStateStore, row: Row | Damage) -> None:
    await store.transact("damage", [Put(row.key, copy.deepcopy(row.value))])


def new_executor(store: MemoryStateStore, answers: Any = ("Done.",) * 4) -> LocalExecutor:
    """Return an executor of another process, without any cache. Each agent answers the same."""
    return executor_of(
        {"boss": list(answers), "finder": [finish("green")] * 4, "helper": ["Hi."]}, BOSS, FINDER, store=store
    )


def copy_of(store: MemoryStateStore) -> MemoryStateStore:
    copied = MemoryStateStore()
    copied._rows, copied._sorts = dict(store._rows), {key: list(sorts) for key, sorts in store._sorts.items()}
    return copied


def storable(damage: Damage) -> bool:
    """Return whether a store accepts the value. No store accepts a number that is not JSON."""
    return "NaN" not in json.dumps(damage.value)
