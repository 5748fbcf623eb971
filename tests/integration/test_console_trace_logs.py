"""The trace of a run on a stage leads operators to its execution and shows its log lines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.integration.test_console_page import page_of
from tests.integration.test_console_trace import helper, visits
from tests.support.browser import go, serious_problems

from helix.core.errors import StoreError
from helix.gateway import loopback
from helix.gateway.backend import OperatorBackend
from helix.ports.function_logs import LogEvent, LogPage

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("browser")]


class StageLogs:
    """The log of a stage: `lines` by the function that wrote them, two of them on a page. `asked` has the searches."""

    def __init__(self) -> None:
        self.lines: list[LogEvent] = []
        self.asked: list[tuple[str, float, float | None]] = []
        self.fails = False

    async def functions(self) -> list[str]:
        return []

    async def read(self, functions: Any, word: str, *, since: float, until: Any = None, after: Any, limit: int) -> Any:
        self.asked.append((word, since, until))
        if self.fails:
            raise StoreError("reading the log of call_model: Rate exceeded")
        found = [line for line in self.lines if since <= line.at and (until is None or line.at <= until)]
        start = int(after or 0)
        return LogPage(found[start : start + 2], str(start + 2) if start + 2 < len(found) else None)


LOGS = StageLogs()


class OnStage(OperatorBackend):
    """The backend of a stage: it knows its name, the ARN of its state machines and its logs."""

    def __init__(self, *parts: Any, **settings: Any) -> None:
        machine = "arn:aws:states:eu-west-1:123456789012:stateMachine:helix-blue-{profile}"
        super().__init__(*parts, **{**settings, "stage": "blue", "machine": machine, "logs": LOGS})


@pytest.fixture
def logs(monkeypatch: pytest.MonkeyPatch) -> StageLogs:
    """The console's service is that of a stage, whose log is empty."""
    monkeypatch.setattr(loopback, "OperatorBackend", OnStage)
    LOGS.__init__()  # type: ignore[misc]
    return LOGS


async def test_an_operator_gets_from_a_run_to_its_execution_and_its_log(tmp_path: Path, logs: StageLogs) -> None:
    async with page_of(str(tmp_path / "a.db"), [helper()], ["Done."]) as (browser, executor):
        handle = await executor.execute(helper(), "Visit")
        await handle.result()
        page = await browser.page(f"sessions/{handle.session_id}/timeline/{handle.run_id}")
        await page.locator(".run-row.target").click()
        detail = page.locator(".trace-detail")
        link = detail.get_by_role("link", name=f":execution:helix-blue-default:{handle.run_id}")
        assert (await link.get_attribute("href")).startswith("https://eu-west-1.console.aws.amazon.com/states/home")
        await detail.get_by_text(f"helix logs {handle.session_id} --stage blue").wait_for()
        assert await serious_problems(page) == []
        assert logs.asked == [], "the log is read when someone asks for it"


async def test_an_operator_reads_the_log_lines_of_a_run_and_of_a_step(tmp_path: Path, logs: StageLogs) -> None:
    async with page_of(str(tmp_path / "a.db"), [helper()], [visits("hall"), "Done."]) as (browser, executor):
        handle = await executor.execute(helper(), "Visit")
        await handle.result()
        run = await executor.sessions.get_run(handle.session_id, handle.run_id)
        said: dict[str, Any] = {"run_id": handle.run_id, "session_id": handle.session_id}
        lines: list[tuple[str, dict[str, Any], float]] = [
            ("start_run", {"level": "INFO", "message": "started"}, -20.0),
            ("call_model", {"level": "INFO", "message": "done", "took_ms": 12}, 0.0),
            ("call_tool", {"level": "ERROR", "message": "<b>broke</b>", "exception": "Traceback\nKeyError: 'x'"}, 0.1),
            ("fail_run", {"level": "WARNING", "message": "late"}, -10.0),
        ]
        logs.lines = [LogEvent(run.started_at + at, of, json.dumps(line | said)) for of, line, at in lines]
        page = await browser.page(f"sessions/{handle.session_id}/timeline/{handle.run_id}")
        await page.locator(".run-row.target").click()
        detail = page.locator(".trace-detail")
        await detail.get_by_role("button", name="Show log lines").click()
        rows = detail.get_by_label("Log lines").get_by_role("listitem")
        await rows.nth(1).wait_for()
        assert await rows.count() == 2
        await detail.get_by_role("button", name="More log lines").click()
        await rows.nth(3).wait_for()
        shown = [" ".join((await row.inner_text()).split()[1:]) for row in await rows.all()]
        assert shown == [
            "start_run started",
            "fail_run WARNING late",
            "call_model done took_ms=12",
            "call_tool ERROR <b>broke</b> (KeyError: 'x')",
        ], "sorted by time, although each function has its own log"
        for scheme in ("light", "dark"):
            await page.emulate_media(color_scheme=scheme)
            assert await serious_problems(page) == [], scheme
        logs.fails = True
        await detail.get_by_role("button", name="Read the log again").click()
        await detail.get_by_role("alert").get_by_text("try again").wait_for()
        assert await rows.count() == 4
        logs.fails = False
        await page.locator(".step-row").first.click()
        await detail.get_by_role("button", name="Show log lines").click()
        await rows.nth(1).wait_for()
        shown = [" ".join((await row.inner_text()).split()[1:3]) for row in await rows.all()]
        assert shown == ["call_model done", "call_tool ERROR"], "only those of the step's time"
        logs.lines.clear()
        await detail.get_by_role("button", name="Read the log again").click()
        await detail.get_by_text("No log line names this run at that time.").wait_for()
        assert {word for word, _, _ in logs.asked} == {handle.run_id}


async def test_without_a_stage_no_log_is_offered(tmp_path: Path) -> None:
    async with page_of(str(tmp_path / "a.db"), [helper()], ["Done."]) as (browser, executor):
        handle = await executor.execute(helper(), "Visit")
        await handle.result()
        page, replies = await browser.context.new_page(), list[str]()
        page.on("websocket", lambda socket: socket.on("framereceived", lambda frame: replies.append(str(frame))))
        await page.goto(browser.console.address)
        await page.wait_for_selector(".app")
        await go(page, f"sessions/{handle.session_id}/timeline/{handle.run_id}")
        await page.locator(".run-row.target").click()
        while not any('"get_executions"' in frame for frame in replies):
            await page.wait_for_timeout(50)
        await page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
        assert await page.get_by_text("On AWS").count() == 0
        assert await page.get_by_role("button", name="Show log lines").count() == 0
