"""Sixteen processes send a message to one session at once. One wins, fifteen are refused, and no turn is lost."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.journal import Journal
from tests.support_processes import Worker

from helix import LocalExecutor

SIXTEEN, ROUNDS = 16, 4


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    made = Worker("race_worker")
    yield made
    made.close()


async def test_exactly_one_wins_each_round(worker: Worker, tmp_path: Path) -> None:
    """The first round is on a file that does not exist yet, so that sixteen processes create it at once."""
    db, journal, winners = tmp_path / "helix.db", Journal(), []
    for round_ in range(1, ROUNDS + 1):
        found = worker.race("execute", db, SIXTEEN, round=round_)
        won = [me for me, outcome in enumerate(found) if outcome != "refused"]
        assert len(won) == 1, found
        assert found[won[0]] == f"completed: heard message of {won[0]} in round {round_}"
        winners.append(won[0])
        async with LocalExecutor(db) as readers:
            await journal.check(readers.store, readers.streams, "ses", at_rest=True)
            state = await readers.sessions.get("ses")
            assert (state.turn, state.step_count, state.status) == (round_, round_, "completed")
            messages = await readers.sessions.load_conversation_messages("ses")
            said = [m.content for m in messages if m.role == "user"]
            assert said == [f"message of {me} in round {n}" for n, me in enumerate(winners, 1)]
            runs = (await readers.sessions.list_runs("ses")).runs
            assert [run.status for run in runs] == ["completed"] * round_


async def test_sixteen_open_a_fresh_file(worker: Worker, tmp_path: Path) -> None:
    """All find it usable, whichever process creates it."""
    for n in range(3):
        won = worker.race("increment", tmp_path / f"{n}" / "deeper" / "h.db", SIXTEEN)
        assert sum(won) == 20
