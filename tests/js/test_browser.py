"""An unmodified `useChat` in Chromium: cut off at several places the page ends as one that was not, with one run."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.js.conftest import CLIENT
from tests.support_gateway import WORDS, FaultySockets, executor_of, served
from tests.support_run import a_tool, agent, call, calls

from helix import ScriptedModel

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or ""
pytestmark = [pytest.mark.slow, pytest.mark.skipif(not CHROMIUM, reason="there is no Chromium here")]
PAGE = Path(__file__).with_name("page")
BIN = CLIENT / "node_modules" / ".bin"


@pytest.fixture(scope="module")
def page(npm: Any, package: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("page")
    modules = folder / "node_modules"
    (modules / "@helix-agents").mkdir(parents=True)
    (modules / "@helix-agents" / "client").symlink_to(package)
    for name in ("ai", "@ai-sdk", "react", "react-dom"):
        (modules / name).symlink_to(CLIENT / "node_modules" / name)
    shutil.copy(PAGE / "page.mjs", folder)
    bundle = [BIN / "esbuild", "page.mjs", "--bundle", "--format=iife", "--outfile=page.js"]
    subprocess.run([*bundle, '--define:process.env.NODE_ENV="production"'], cwd=folder, check=True, capture_output=True)
    shown = folder / "page.html"
    shown.write_text('<!doctype html><meta charset="utf-8"><body><script src="page.js"></script></body>')
    return shown


async def browsed(page: Path, cut_after: list[int]) -> tuple[str, str | None, list[Any]]:
    """The status, the error and the messages that the page shows at the end."""
    tool = a_tool("look", lambda args, ctx: "It rains.")
    model = ScriptedModel([calls(call("look"), content="Let me see. "), WORDS], delta_chars=20)
    executor = executor_of(model, agent("helper", tools=[tool]))
    async with served(executor, sockets=FaultySockets(cut_after=cut_after)) as (gateway, _):
        process = await asyncio.create_subprocess_exec(
            *(BIN / "node", PAGE / "browse.mjs", CLIENT, CHROMIUM, page, gateway.url),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        out, err = await asyncio.wait_for(process.communicate(), 90)
        assert process.returncode == 0, err.decode()
        assert len((await executor.sessions.list_runs("chat")).runs) == 1
    status, error, messages = json.loads(out)
    return status, error, messages


@pytest.mark.parametrize("cut", [1, 2, 3, 5, 8, 13])
async def test_a_page_whose_socket_is_cut_ends_as_one_whose_socket_is_not(cut: int, page: Path) -> None:
    (_, _, (_, whole)) = await browsed(page, [])
    status, error, (_, answer) = await browsed(page, [cut, cut, cut])
    assert (status, error) == ("ready", None)
    assert answer["parts"] == whole["parts"]
    assert answer["parts"][-1]["text"] == WORDS
