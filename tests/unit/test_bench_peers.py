"""The bench's reports on peers: outcomes of crashes and races, ratios, and a reason for each missing number."""

from __future__ import annotations

import base64
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

BENCH = Path(__file__).parents[2] / "bench"
CALL = ["assistant", "", ["call_1"]]
SOUND = [["user", "go"], CALL, ["tool", "call_1"], ["assistant", "done", []]]
IN_A_TOOL: dict[str, Any] = {"steps": 3, "kill": ["tool", 2]}
DIED = ["asked 1", "model 1", "tool 1.0", "asked 2", "model 2", "tool 2.0", "killed"]


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.syspath_prepend(str(BENCH))
    monkeypatch.syspath_prepend(str(BENCH / "peers"))
    yield SimpleNamespace(**{name: importlib.import_module(name) for name in ("contenders", "measures", "outcomes")})


@pytest.mark.parametrize(
    ("after", "history", "said"),
    [
        (["tool 2.0", "asked 3", "model 3"], SOUND, "goes on"),
        (["tool 1.0", "tool 2.0"], SOUND, "1 finished tool again"),
        (["asked 2", "model 2", "tool 2.0"], SOUND, "1 answer bought again"),
        (["tool 2.0"], [SOUND[0], *SOUND], "2 user messages"),
        (["tool 2.0"], [*SOUND[:2], SOUND[3]], "a call without its result"),
        (["tool 2.0"], [*SOUND[:3], SOUND[2], SOUND[3]], "a result twice"),
        (["tool 2.0"], SOUND[:3], "no last answer"),
    ],
)
def test_a_crash_is_judged_by_trace_and_history(bench: Any, after: list[str], history: list[Any], said: str) -> None:
    assert bench.outcomes.after_crash(IN_A_TOOL, DIED, after, {"history": history}) == said


def test_a_crash_that_did_not_happen_or_cannot_be_resumed_is_named(bench: Any) -> None:
    assert bench.outcomes.after_crash(IN_A_TOOL, DIED[:-1], [], {"history": SOUND}) == "was not killed"
    assert "KeyError" in bench.outcomes.after_crash(IN_A_TOOL, DIED, [], {"error": "KeyError: 'x'"})


def test_a_race_names_what_was_lost(bench: Any) -> None:
    both = [["user", "one"], ["assistant", "A", []], ["user", "two"], ["assistant", "B", []]]
    judge = bench.outcomes.after_race
    assert judge({}, {}, both) == "both kept"
    assert judge({}, {}, [both[0], *both[2:]]) == "LOST: the first's answer"
    assert judge({}, {"refused": "Busy"}, both[:2]) == "second refused, the caller told, nothing lost"


def test_a_ratio_is_taken_within_a_round(bench: Any) -> None:
    """The machine was ten times slower in the second round, for both sides."""
    found = bench.measures.Samples()
    for ours, theirs in ((1.0, 2.0), (10.0, 20.0), (1.0, 2.0)):
        found.add("row", "helix", ours)
        found.add("row", "peer", theirs)
        found.add("row", "absent", None, "no stream")
    assert list(found.rows()) == [("row", {"helix": "1.0", "peer": "2.0 (2×)", "absent": "no stream"})]


def test_a_batch_of_writes_is_counted_item_by_item(bench: Any) -> None:
    """The request is as a peer sends it over HTTP, with its own key names, binary values in base64, maps and lists."""
    wire, server = importlib.import_module("aws.wire"), importlib.import_module("aws_server")
    counter = wire.Wire(lambda table, key: None, ("PK", "SK"))
    keys = {"PK": {"S": "p"}, "SK": {"S": "s"}}
    items = [
        {**keys, "data": {"B": base64.b64encode(bytes(1500)).decode()}},
        {**keys, "SK": {"S": "t"}, "map": {"M": {"a": {"L": [{"S": "é"}, {"BOOL": True}]}}}},
    ]
    requests = [{"PutRequest": {"Item": item}} for item in items]
    sent = server.with_bytes({"RequestItems": {"checkpoints": requests}})
    counter.count("dynamodb", "BatchWriteItem", sent, {})
    (call,) = counter.calls
    assert call.writes
    assert not call.reads
    assert [size for _, _, size in call.rows] == [6 + 4 + 1500, 6 + 3 + 3 + (1 + 1) + 3 + (1 + 2) + (1 + 1)]
    assert call.write_units == 2 + 1


def test_a_job_ends_after_its_time(bench: Any, tmp_path: Path) -> None:
    contenders = bench.contenders
    process = contenders.start([sys.executable, "-c", "import time; time.sleep(60)"], str(tmp_path))
    with pytest.raises(contenders.Failed, match=r"over 0\.1 s"):
        contenders.finish(process, 0.1)
    assert process.poll() is not None


def test_a_peer_that_is_not_there_is_named(bench: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench.contenders, "ENVIRONMENTS", tmp_path)
    monkeypatch.setattr(bench.contenders.Contender, "python", Path(sys.executable))
    peer = bench.contenders.Contender("nobody", "Nobody", ("no-such-package",), "", "")
    assert peer.versions() == ""
    assert "no-such-package" in peer.broken
    rows = dict(bench.measures.crashes([peer], bench.measures.Options(1, 10, 1, 1.0)))
    assert all("no-such-package" in cells["nobody"] for cells in rows.values())


@pytest.mark.slow
def test_helix_does_the_work_that_peers_do(bench: Any) -> None:
    helix, options = bench.contenders.chosen(["helix"]), bench.measures.Options(1, 20, 5, 60.0)
    assert {row: cells["helix"] for row, cells in bench.measures.crashes(helix, options)} == dict.fromkeys(
        bench.outcomes.CRASHES, "goes on"
    )
    assert [cells["helix"] for _, cells in bench.measures.races(helix, options)] == [
        "second refused, the caller told, nothing lost"
    ]
    assert len(list(bench.measures.first_words(helix, options))) == 4
    assert len(list(bench.measures.disk(helix, options))) == 1
