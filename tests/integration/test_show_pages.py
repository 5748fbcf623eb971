"""`helix show` reads runs, messages and checkpoints page by page, and `--all` includes all of a long session."""

from __future__ import annotations

import pytest
from tests.support_run import agent

from helix import LocalExecutor, MemoryStateStore, ScriptedModel
from helix.cli.sessions import page as pages
from helix.cli.sessions.page import read_page
from helix.client import HelixClient
from helix.core.registry import AgentRegistry
from helix.gateway.loopback import LoopbackGateway

TURNS, PAGE = 7, 3


@pytest.mark.parametrize(("most", "shown"), [(None, TURNS), (5, 5), (2, 2), (TURNS, TURNS)])
async def test_a_page_has_as_many_runs_as_were_asked_for(
    most: int | None, shown: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "PAGE", PAGE)
    model = ScriptedModel([f"Answer {turn}." for turn in range(TURNS)])
    async with LocalExecutor(MemoryStateStore(), model=model, registry=AgentRegistry()) as executor:
        for turn in range(TURNS):
            await (await executor.execute(agent(), f"Question {turn}", session_id="dev:long")).result()
        async with LoopbackGateway(executor) as gateway, await HelixClient.connect(gateway.url) as client:
            page = await read_page(client, "dev:long", most)
    assert [run["turn"] for run in page.runs] == list(range(TURNS, TURNS - shown, -1))
    assert page.more_runs == (shown < TURNS) and len(page.checkpoints) == min(len(page.checkpoints), most or 99)
    assert len(page.messages) == min(2 * TURNS, most or 99)
