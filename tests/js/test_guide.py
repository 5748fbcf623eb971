"""The TypeScript blocks of the guide form one program. Its types are correct, and it prints what the guide says. The types
of the pages in the guide to front ends are correct too."""

from __future__ import annotations

import asyncio
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from tests.docs.documents import DOCUMENTS, ROOT, blocks_of
from tests.js.conftest import CLIENT
from tests.support_gateway import executor_of, key_for, keyed
from tests.support_run import a_tool, agent, call, calls

from helix.gateway.loopback import LoopbackGateway

pytestmark = pytest.mark.slow
GUIDE = ROOT / "docs" / "guide" / "typescript.md"
FRONT_ENDS = ROOT / "docs" / "guide" / "front-ends.md"
BIN = CLIENT / "node_modules" / ".bin"
TYPES = "--strict --noEmit --skipLibCheck --target es2022 --module nodenext --types node --jsx preserve"


class Order(BaseModel):
    order: str


class Menu(BaseModel):
    title: str
    dishes: list[str]


class Thanks(BaseModel):
    thanked: int = 0


def thank(args: Any, ctx: Any) -> str:
    def change(state: Thanks) -> None:
        state.thanked += 1

    ctx.update_state(change)
    return "You are welcome."


def laid_out(folder: Path, package: Path) -> tuple[Path, Path]:
    """Write the program and its page into a project that depends on the package."""
    (folder / "package.json").write_text('{"type": "module"}')
    modules = folder / "node_modules"
    (modules / "@helix-agents").mkdir(parents=True)
    (modules / "@helix-agents" / "client").symlink_to(package)
    for name in ("ai", "@types", "@ai-sdk", "@ag-ui", "rxjs"):
        (modules / name).symlink_to(CLIENT / "node_modules" / name)
    found = {language: [b.text for b in blocks_of(GUIDE) if b.language == language] for language in ("ts", "tsx")}
    program, page = folder / "guide.ts", folder / "page.tsx"
    program.write_text("\n".join(found["ts"]))
    page.write_text("\n".join(found["tsx"]))
    (folder / "front_ends.tsx").write_text("\n".join(b.text for b in blocks_of(FRONT_ENDS) if b.language == "tsx"))
    return program, page


def test_all_typescript_in_documents_is_checked() -> None:
    found = {path for path in DOCUMENTS for block in blocks_of(path) if block.language in ("ts", "tsx")}
    assert found == {GUIDE, FRONT_ENDS}


def test_the_program_has_the_right_types(npm: Any, package: Path, tmp_path: Path) -> None:
    files = [*laid_out(tmp_path, package), tmp_path / "front_ends.tsx"]
    done = subprocess.run([BIN / "tsc", *TYPES.split(), *files], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


async def test_the_program_prints_what_the_guide_says(npm: Any, package: Path, tmp_path: Path) -> None:
    program, _ = laid_out(tmp_path, package)
    refund = a_tool("refund", lambda args, ctx: "refunded", input_schema=Order, require_approval=True)
    script = [
        "Hello! How can I help?",
        calls(call("refund", order="A7")),
        "It is done.",
        calls(call("__finish__", title="Today", dishes=["tea", "soup"])),
        calls(call("show_map", place="Oslo")),
        "There it is.",
        "On 9 November.",
        calls(call("thank")),
        "Bye.",
        "Goodbye!",
    ]
    tools = [refund, a_tool("thank", thank)]
    cook = agent("cook", output_schema=Menu)
    guide = agent("guide", frontend_tools=["show_map"])
    executor = executor_of(script, agent("support", tools=tools, state_schema=Thanks), cook, guide)
    async with executor, LoopbackGateway(executor, authoriser=keyed(executor)) as gateway:
        variables = {**os.environ, "HELIX_URL": gateway.url, "HELIX_KEY": await key_for(executor, "ada")}
        process = await asyncio.create_subprocess_exec(
            BIN / "node", program, cwd=tmp_path, env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        out, err = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 0, err.decode()
    assert out.decode() == "".join(block.text for block in blocks_of(GUIDE) if block.language == "text")
