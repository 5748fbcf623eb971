"""The console exports several sessions as one file, which `helix import` takes."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from tests.integration.test_console_find import titles
from tests.integration.test_console_page import page_of
from tests.support.browser import serious_problems
from tests.support.command_line import CommandLine
from tests.support.sample_files import png
from tests.support_run import Gate, call, calls, gated

from helix import Agent, Image, LLMConfig, LocalExecutor, ScriptedModel, create_sub_agent_tool
from helix.cli.sessions.files import _export
from helix.client import HelixClient
from helix.console.here import serve_console
from helix.core.json import JsonObject
from helix.sessions.exports import Export, read_exports

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("browser")]
NUMBERS: JsonObject = {"large": 12345678901234567890, "whole": 2.0}


class Place(BaseModel):
    place: str


async def shown(executor: LocalExecutor, session_id: str) -> Export:
    """What `helix export` writes."""
    async with serve_console(executor, "a test") as service:
        async with HelixClient(service.url, service.token) as client:
            return await _export(client, session_id)


def rows_of(export: Export) -> list[str]:
    return sorted(line for line in export.lines() if '"table"' in line)


async def test_several_sessions_are_exported_as_one_file_that_an_import_takes(tmp_path: Path) -> None:
    config = LLMConfig(model="x")
    clerk = Agent(name="clerk", system_prompt="Help.", llm_config=config)
    asks = create_sub_agent_tool(clerk, Place, description="Ask the clerk.")
    boss = Agent(name="boss", system_prompt="Ask.", tools=[asks], llm_config=config)
    gate = Gate()
    script: dict[str, list[Any]] = {
        "boss": [calls(call("subagent__clerk", place="hall")), "Well.", "Ök.", gated(gate, "Late.")],
        "clerk": ["A kettle."],
    }
    async with page_of(str(tmp_path / "a.db"), [boss, clerk], ScriptedModel(script)) as (browser, executor):
        await (await executor.execute(boss, "Ask it", session_id="s0", metadata=NUMBERS)).result()
        await (await executor.execute(boss, ["Look", Image(png(4, 4))], session_id="s1")).result()
        await executor.execute(boss, "Work", session_id="s2")
        await gate.reached()
        page = await browser.page()
        await titles(page, "Work", "Look", "Ask it")
        await page.keyboard.press("s")
        await page.get_by_role("button", name="Select the 3 listed").press("Enter")
        await page.get_by_role("region", name="Selected sessions").get_by_role("button", name="Export").press("Enter")
        await page.get_by_text("The bytes of their files are left out").wait_for()
        assert await serious_problems(page) == []
        dialog = page.get_by_role("dialog")
        async with page.expect_download() as saving:
            await dialog.get_by_role("button", name="Export").press("Enter")
        await dialog.get_by_text("3 of 3 done, 1 refused. 2 sessions in sessions.jsonl").wait_for()
        rows = dialog.get_by_role("listitem")
        assert "It is running" in await rows.filter(has_text="Work").inner_text()
        assert "without the bytes of 1 file" in await rows.filter(has_text="Look").inner_text()
        saved = tmp_path / "sessions.jsonl"
        await (await saving.value).save_as(saved)
        gate.open()
        found = {one.session_id: one for one in read_exports(saved.read_text("utf-8").splitlines())}
        assert found.keys() == {"s0", "s1"}
        for name, one in found.items():
            whole = await shown(executor, name)
            assert rows_of(one) == rows_of(whole), "as `helix export` writes them, with each number"
            assert one.header.keys() == whole.header.keys()
        assert json.dumps(NUMBERS)[1:-1] in saved.read_text("utf-8")
    helix = CommandLine(tmp_path)
    done = await asyncio.to_thread(helix, "import", "sessions.jsonl", "--db", "b.db")
    assert done.code == 0 and sorted(done.out.split()) == ["s0", "s1"], done
    async with LocalExecutor(tmp_path / "b.db", model=ScriptedModel([])) as other:
        assert (await other.sessions.get("s0")).metadata == NUMBERS
        assert (await other.sessions.list_sub_sessions("s0"))[0].status == "completed"


async def test_what_does_not_fit_into_the_file_is_left_out(tmp_path: Path) -> None:
    talker = Agent(name="talker", system_prompt="Talk.", llm_config=LLMConfig(model="x"))
    async with page_of(str(tmp_path / "a.db"), [talker], ["Yes.", "No."]) as (browser, executor):
        for n, size in enumerate((600_000, 10)):
            await (await executor.execute(talker, f"Number {n} {'x' * size}", session_id=f"s{n}")).result()
        page = await browser.page()
        await page.locator(".row").nth(1).wait_for()

        async def larger(route: Any) -> None:
            answer = await route.fetch()
            text = await answer.text()
            assert "1e8" in text or "100000000" in text
            await route.fulfill(response=answer, body=text.replace("1e8", "3e5").replace("100000000", "300000"))

        await page.route("**/console-find.js*", larger)
        await page.keyboard.press("s")
        await page.get_by_role("button", name="Select the 2 listed").click()
        await page.get_by_role("region", name="Selected sessions").get_by_role("button", name="Export").click()
        dialog = page.get_by_role("dialog")
        async with page.expect_download() as saving:
            await dialog.get_by_role("button", name="Export").click()
        await dialog.get_by_text("1 session in sessions.jsonl").wait_for()
        assert "Left out: the file would be larger" in await dialog.get_by_role("listitem").nth(1).inner_text()
        await (await saving.value).save_as(tmp_path / "one.jsonl")
        lines = (tmp_path / "one.jsonl").read_text("utf-8").splitlines()
        assert [one.session_id for one in read_exports(lines)] == ["s1"]
