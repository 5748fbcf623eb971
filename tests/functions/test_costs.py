"""Upper limits of a tool step's cost, counted on the wire: deployed handlers on moto, driven by the deployed state machine.

The counters are those of the bench (`bench/aws_calls.py`, which prints them up to step 1,000). A step with one more write,
or with more than 3 KB, fails here.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import boto3
import pytest
from moto import mock_aws
from tests.support.aws_resources import make_tables

from helix.core.registry import default_registry
from helix.ports.state_store import Key, Put
from helix.runtime import lambdas

BENCH = Path(__file__).parents[2] / "bench"
STEPS = range(1, 7)
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(str(BENCH))
    made = importlib.import_module("aws_calls")
    for agent in (made.PLAIN, made.INLINE):
        default_registry.replace(agent)
    yield made
    default_registry.clear()


def measured(bench: ModuleType, run: Any, name: str) -> list[float]:
    return [bench.MEASURES[name](run, step) for step in STEPS]


def test_a_tool_step_keeps_to_its_limits(bench: ModuleType) -> None:
    run = bench.Run(bench.PLAIN, STEPS[-1] + 1)
    first, *later = measured(bench, run, "write calls")
    assert max(later) <= 4 and first <= 5, "the first step of a deployment stores the head of its requests"
    assert max(measured(bench, run, "transitions")) <= 3
    assert max(measured(bench, run, "invocations")) <= 2
    written = measured(bench, run, "KB written")
    assert all(1 < size <= 3.6 for size in written), (
        "1 KB of it is the result, and what `session` packs is written with it"
    )
    assert max(written[1:]) <= 1.15 * min(written[1:]), "`session` has at most 1 KB, whatever it packs"
    units = [sum(call.write_units for call in run.calls(step, bench.ENGINE)) for step in STEPS]
    assert max(units) <= 14


def test_budgets_add_no_call_to_a_step(bench: ModuleType) -> None:
    """Two budgets add no call, because the session's row has their blocks and limits, and a block lasts for many steps."""
    run = bench.Run(bench.PLAIN, STEPS[-1] + 1, bound=True)
    first, *later = measured(bench, run, "write calls")
    assert first <= 11, "the budgets are bound, their windows divided, the first blocks drawn, and the head stored"
    *usual, _, most = sorted(later)
    assert max(usual) <= 4 and most <= 7, "packed rows move out at two steps at most"
    assert max(measured(bench, run, "KB written")[1:]) <= 4


def test_steps_with_an_inline_tool_share_an_invocation(bench: ModuleType) -> None:
    """Ten steps, the last of them the answer, run in one invocation. A tool step writes its claim, its answer and its
    result. It reads what others may write: a stop, and whether a budget was defined. The first step of a process reads the
    session, its state and its messages, and whether the head of its requests is stored."""
    run = bench.Run(bench.INLINE, bench.SHORT - 1)
    found = run.averages(bench.SHORT)
    assert (9 * 3 + 2) / bench.SHORT <= found["write calls"] <= (9 * 3 + 2 + 4) / bench.SHORT, (
        "4: packed rows that moved out, and the head"
    )
    assert found["read calls"] == (4 + 9) / bench.SHORT
    assert run.execution.states == ["CallModel", "Route", "FinishRun"] and found["transitions"] == 0.3
    assert found["invocations"] == 0.2
    assert 2 < found["KB written"] <= 3.5, "1 KB of it is the result"
    assert sum(bench.dollars(run, [], inline=bench.SHORT).values()) <= 0.05


def test_a_resumed_session_is_there_after_three_reads(bench: ModuleType) -> None:
    _, reads = bench.resumed(8)
    assert 1 <= len(reads) <= 3


def spent(short: ModuleType, calls: Any) -> int:
    """Return the write units without those of the stream, whose number of segments depends on time."""
    return sum(units for kind, units in short.units_by_row(calls).items() if kind != "stream segments")


def test_a_short_run_keeps_to_its_limits(bench: ModuleType) -> None:
    """A run takes at most 16 write units without a tool and 26 with one tool step. The stream takes 2, or 3 to 4, of
    them."""
    short = importlib.import_module("aws_short")
    runs = short.short_runs(0)
    assert spent(short, runs["new"]) == 13, "1 of them for the head, once per deployment, and 2 for the facets"
    assert spent(short, runs["next"]) <= 13
    assert spent(short, runs["third"]) <= 18, "its claim moves what the runs before it packed"
    assert spent(short, short.short_runs(1)["new"]) <= 22
    assert short.units_by_row(runs["new"])["session"] == 5, "claim, claim of the step, end, and effects, which are two"


@pytest.mark.parametrize("steps", [2, 25])
def test_a_turn_in_a_new_process_is_five_reads(bench: ModuleType, steps: int) -> None:
    """The reads are the session with its newest runs, the end of the stream, rows that others may write, the messages, and
    then the counter. Their number does not depend on the session's length, and no row is read twice."""
    short = importlib.import_module("aws_short")
    calls = short.short_runs(steps, ("new", "cold"))["cold"]
    assert short.reads_before(calls) == 4
    about = [call.about.split(":")[0] for call in calls if call.reads]
    assert [rows.split("#")[0] for rows in about] == ["r", "the newest", "x", "m", "total"]
    assert "session" not in about[2] and about[3].endswith(f"m#000000#{2 * steps + 3:08d}")


def test_reads_of_turns(bench: ModuleType) -> None:
    """Reads are counted in total and before the model call, for a new session and for one that the process knows. The
    first run of a process also reads whether the head of its requests is stored."""
    short = importlib.import_module("aws_short")
    found = {
        tools: {name: (sum(c.reads for c in calls), short.reads_before(calls)) for name, calls in runs.items()}
        for tools in (0, 1)
        for runs in [short.short_runs(tools, ("new", "next"))]
    }
    assert found == {0: {"new": (4, 3), "next": (4, 4)}, 1: {"new": (5, 3), "next": (5, 4)}}


def test_a_list_of_sessions_is_three_reads(bench: ModuleType) -> None:
    """The reads are the index, the sessions and their states."""
    calls = importlib.import_module("aws_short").listed(50)
    assert len([call for call in calls if call.reads]) <= 3


def test_one_more_write_of_a_step_is_seen(bench: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(arguments: Any, context: Any) -> str:
        row = Put(Key("control", "more", f"{arguments.n}"), {"text": bench.text(3000)})
        await lambdas.application().store.transact("more", [row])  # type: ignore[attr-defined]
        return bench.text(bench.RESULT_BYTES, arguments.n)

    monkeypatch.setattr(bench, "work", work)
    who = bench.agent("plain")
    default_registry.replace(who)
    run = bench.Run(who, 3)
    assert bench.MEASURES["write calls"](run, 2) == 5
    assert sum(call.written("control") for call in run.calls(2, bench.ENGINE)) > 2000


def test_sizes_and_units_are_dynamodbs(bench: ModuleType) -> None:
    """See https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/CapacityUnitCalculations.html."""
    wire = importlib.import_module("aws.wire")
    with mock_aws():
        session = boto3.Session("test", "test", region_name="us-east-1")
        client = session.client("dynamodb")
        make_tables(client)
        counter = wire.Wire(lambda table, key: client.get_item(TableName=table, Key=key)["Item"])
        listened = boto3.Session("test", "test", region_name="us-east-1")
        counter.listen(listened._session)
        counted = listened.client("dynamodb")
        item = {
            "pk": {"S": "p"},
            "sk": {"S": "s"},
            "n": {"N": "-12.50"},
            "text": {"S": "é" * 600},
            "no": {"NULL": True},
        }
        size = len("pk") + 1 + len("sk") + 1 + len("n") + 3 + len("text") + 1200 + len("no") + 1
        put = {"TableName": "test-sessions", "Item": item}
        counted.put_item(**put)
        counted.put_item(**put, ConditionExpression="attribute_exists(pk)")
        counted.transact_write_items(TransactItems=[{"Put": put}])
        key = {"pk": item["pk"], "sk": item["sk"]}
        check = {"TableName": "test-sessions", "Key": key, "ConditionExpression": "attribute_exists(pk)"}
        counted.transact_write_items(TransactItems=[{"ConditionCheck": check}])
        counted.get_item(TableName="test-sessions", Key=key)
        for made in (client, counted):
            made.close()
    assert [call.written("sessions") for call in counter.calls] == [size, size, size, 0, 0]
    assert [call.write_units for call in counter.calls] == [2, 2, 4, 4, 0]
    assert [(call.reads, call.read_units, call.read_bytes) for call in counter.calls][-1] == (True, 1, size)
