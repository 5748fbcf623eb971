"""Runs in notebooks, in IPython's own shell with its display publisher."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("IPython")

from IPython.core.displaypub import CapturingDisplayPublisher
from IPython.core.interactiveshell import InteractiveShell
from tests.support_gateway import executor_of, served
from tests.support_run import Gate, agent, call, calls, gated

from helix.core import chunks as c
from helix.core.errors import InvalidInputError
from helix.stream.notebook import Panel, show

HOSTILE = '<script>alert(1)</script><img src=x onerror="alert(2)">\x1b[2J\u202e'


class Shell:
    """A notebook's shell, which runs cells of Python with `await` and records their output."""

    def __init__(self) -> None:
        self.shell = InteractiveShell.instance()
        self.shell.display_pub = self.shown = CapturingDisplayPublisher(parent=self.shell)

    async def cell(self, code: str, **names: Any) -> Any:
        self.shell.push(names)
        done = await self.shell.run_cell_async(code, transformed_cell=code)
        done.raise_error()
        return done.result

    @property
    def updates(self) -> list[dict[str, Any]]:
        return list(self.shown.outputs)

    def newest(self) -> str:
        html: str = self.updates[-1]["data"]["text/html"]
        return html


@pytest.fixture
def notebook() -> Iterator[Shell]:
    yield Shell()
    InteractiveShell.clear_instance()


async def test_a_handle_in_a_cell_shows_its_run_to_the_end(notebook: Shell) -> None:
    gate = Gate()
    async with executor_of([gated(gate, "It is tea.")]) as executor:
        handle = await executor.execute(agent("helper"), "hi")
        await notebook.cell("handle", handle=handle)  # the cell ends here, and the run continues
        await gate.reached()
        gate.open()
        async with asyncio.timeout(10):
            while "completed" not in (notebook.updates and notebook.newest()):
                await asyncio.sleep(0.01)
    assert "It is tea." in notebook.newest()
    assert {update["update"] for update in notebook.updates[1:]} == {True}
    assert len({update["transient"]["display_id"] for update in notebook.updates}) == 1


async def test_show_waits_and_returns_the_result(notebook: Shell) -> None:
    async with executor_of(["It is tea."]) as executor:
        handle = await executor.execute(agent("helper"), "hi")
        result = await notebook.cell("await show(handle)", handle=handle, show=show)
    assert result.output == "It is tea."
    assert "completed" in notebook.newest()


async def test_a_run_elsewhere_is_shown_alike(notebook: Shell) -> None:
    async with served(executor_of(["It is tea."])) as (_, client):
        handle = await client.run("helper", "hi")
        result = await notebook.cell("await show(handle)", handle=handle, show=show)
    assert result.output == "It is tea."
    assert "It is tea." in notebook.newest()


async def test_hostile_words_are_text(notebook: Shell) -> None:
    """The hostile texts come from the model, from a tool's arguments, and from its failure."""
    script = [calls(call("nothing", text=HOSTILE), content=HOSTILE), HOSTILE]
    async with executor_of(script) as executor:
        handle = await executor.execute(agent("helper"), "hi")
        await notebook.cell("await show(handle)", handle=handle, show=show)
    for update in notebook.updates:
        html = update["data"]["text/html"]
        assert not {"<script", "<img", "\x1b", "\u202e"} & {
            found for found in ("<script", "<img", "\x1b", "\u202e") if found in html
        }
        assert "\x1b" not in update["data"]["text/plain"]
    assert notebook.newest().count("&lt;script&gt;") >= 2


async def test_outside_of_a_notebook_nothing_is_shown() -> None:
    async with executor_of(["It is tea."]) as executor:
        handle = await executor.execute(agent("helper"), "hi")
        with pytest.raises(InvalidInputError, match="in a notebook only"):
            await show(handle)


def test_a_panel_shows_what_is_left_of_a_run() -> None:
    panel = Panel("ses_1")
    here = {"agent_id": "ses_1", "step": 1}
    panel.add(c.TextDeltaChunk(**here, attempt=1, delta="wro"))
    panel.add(c.ToolStartChunk(**here, attempt=1, tool_call_id="1", tool_name="look", arguments={"a": 1}))
    panel.add(c.StepDiscardedChunk(**here, attempt=1))
    panel.add(c.TextDeltaChunk(**here, attempt=2, delta="ri"))
    panel.add(c.TextDeltaChunk(**here, attempt=2, delta="ght"))
    panel.add(c.ToolEndChunk(**here, attempt=2, tool_call_id="2", tool_name="look", result="x" * 10_000))
    shown = panel.text()
    assert shown.startswith("attempt 1 of step 1 was discarded\nright\nlook → ")
    assert ("wro" in shown, len(shown) < 3_000, shown.endswith("running · ses_1")) == (False, True, True)
    panel.add(c.StreamResyncChunk(reason="rewound"))
    assert panel.text() == "running · ses_1"
