"""Every documented block runs, every link has a target, and every name exists.

`documents.py` beside this file defines how blocks are marked. They run in a new directory with the project's `examples` in
it. The provider that the environment names is a server on loopback with the demonstration model: litellm and HTTP are real,
and no credentials are needed. Commands run without a provider, as on a new machine.
"""

from __future__ import annotations

import asyncio
import dataclasses
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from tests.docs.documents import (
    DOCUMENTS,
    PROVIDERS,
    ROOT,
    SLOW,
    check_links,
    check_names,
    check_paths,
    claimed_names,
    lay_out,
    run_document,
)
from tests.docs.provider import play

import helix
from helix import Agent, Hooks, LLMConfig, LocalExecutor, ScriptedModel, ToolContext, create_sub_agent_tool, tool
from helix.core.chunks import CHUNK_TYPES
from helix.testing.openai_server import OpenAIServer

NAMES = ROOT / "docs" / "appendix" / "names.md"
RUN = [pytest.param(path, marks=pytest.mark.slow) if path.name in SLOW else path for path in DOCUMENTS]
documents = pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())


@pytest.fixture(scope="module")
def provider() -> Iterator[OpenAIServer]:
    with OpenAIServer(play) as server:
        yield server


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, provider: OpenAIServer) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if PROVIDERS.match(name)]:
        monkeypatch.delenv(name)
    for name, value in provider.environment().items():
        monkeypatch.setenv(name, value)
    for kind in ("_agents", "_factories"):  # documents register agents with the same names
        monkeypatch.setattr(helix.default_registry, kind, {})
    return tmp_path


@pytest.mark.timeout(900)
@pytest.mark.parametrize("document", RUN, ids=lambda path: path.relative_to(ROOT).as_posix())
async def test_every_block_runs(document: Path, directory: Path) -> None:
    lay_out(document, directory)
    await run_document(document, directory)


@documents
def test_links_and_names_lead_somewhere(document: Path) -> None:
    check_links(document)
    check_names(document.read_text(encoding="utf-8"))
    if not {"guide", "tasks"} & set(document.parts):  # these may name files of their readers
        check_paths(document)


def test_the_table_of_names_says_one_of_three_things() -> None:
    table = [line for line in NAMES.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    rows = [line for line in table if not line.startswith("| Source name")]
    assert len(rows) > 500
    for row in rows:
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:-1]]
        assert len(cells) == 3, f"three cells: {row}"
        ours = cells[1]
        assert next(claimed_names(ours), None) or ours in ("later", "none", "rule"), f"ours, later, none or rule: {row}"
        assert cells[2] or ours not in ("none", "rule"), f"say why: {row}"


def test_tables_are_complete() -> None:
    guide = ROOT / "docs" / "guide"
    everything = "\n".join(path.read_text(encoding="utf-8") for path in DOCUMENTS)
    streaming, hooks = (guide / "streaming.md").read_text(), (guide / "hooks.md").read_text()
    assert not [kind for kind in CHUNK_TYPES if f"`{kind}`" not in streaming]
    assert not [field.name for field in dataclasses.fields(Hooks) if f"`{field.name}`" not in hooks]
    assert not [name for name in helix.__all__ if name[0] != "_" and not re.search(rf"\b{name}\b", everything)]


async def test_hooks_are_called_with_what_is_documented() -> None:
    rows = re.findall(
        r"^\| `(\w+)` \|[^|]*\| `([\w, ]+)` \|$", (ROOT / "docs/guide/hooks.md").read_text(), re.MULTILINE
    )
    documented = {name: set(fields.split(", ")) for name, fields in rows}
    heard: dict[str, set[str]] = {}

    def hear(name: str) -> Any:
        return lambda payload, context: heard.setdefault(name, set(payload))

    class Seen(BaseModel):
        n: int = 0

    @tool
    def look(ctx: ToolContext[Seen]) -> str:
        """Look."""
        ctx.update_state(lambda seen: setattr(seen, "n", 1))
        return "seen"

    @tool(require_approval=True, remind_s=0.1)
    def pay() -> str:
        """Pay."""
        return "paid"

    config = LLMConfig(model="scripted")
    child = Agent(name="child", system_prompt="C.", output_schema=Seen, llm_config=config)
    tools = [look, pay, create_sub_agent_tool(child)]
    agent = Agent(name="parent", system_prompt="P.", tools=tools, state_schema=Seen, llm_config=config)
    calls = [{"name": "look"}, {"name": "subagent__child", "arguments": {"message": "Go."}}]
    model = ScriptedModel(
        {
            "parent": [{"tool_calls": calls}, "Done.", {"error": "no"}, {"tool_calls": [{"name": "pay"}]}],
            "child": [{"output": {"n": 2}}],
        }
    )
    hooks = {name: hear(name) for name in documented}
    async with LocalExecutor(":memory:", model=model, hooks=hooks) as executor:
        for session_id in ("s", "s", "waits"):
            await (await executor.execute(agent, "Go.", session_id=session_id)).result()
        async with asyncio.timeout(20):
            while "on_reminder" not in heard:  # the timer of the executor calls it
                await asyncio.sleep(0.02)
    assert heard == documented


# --- the checks detect defects ----------------------------------------------------------------------------------------

BROKEN = {
    "raises": "```python\n1 / 0\n```",
    "raises after an await": "```python\nimport asyncio\nawait asyncio.sleep(0)\nassert False\n```",
    "does not compile": "```python\nx = = 1\n```",
    "prints something else": "```python\nprint('a')\n```\n\n```text output\nb\n```",
    "prints more": "```python\nprint('a')\nprint('b')\n```\n\n```text output\na\n```",
    "output of nothing": "```text output\na\n```",
    "a name from before fresh": "```python\nx = 1\n```\n\n```python fresh\nprint(x)\n```",
    "command fails": "```console run\n$ false\n```",
    "command prints something else": "```console run\n$ echo a\nb\n```",
    "script fails": "```bash run\nfalse\ntrue\n```",
    "not marked": "```\nx\n```",
    "unknown language": "```yaml\nx: 1\n```",
    "unmarked console": "```console\n$ true\n```",
    "nothing is running": "```text running\nx\n```",
    "ends at once": "```console running\n$ echo a\nb\n```",
    "ends badly": "```console running\n$ sh -c 'echo a; sleep 1; exit 1'\na\n```",
    "no reason": "```console not-run:\n$ true\n```",
    "no end": "```python\nx = 1",
    "no JSON": "```json\n{,}\n```",
}


@pytest.mark.parametrize("text", BROKEN.values(), ids=BROKEN)
async def test_a_broken_block_fails(text: str, tmp_path: Path, directory: Path) -> None:
    (tmp_path / "broken.md").write_text(text)
    with pytest.raises((AssertionError, ValueError)):
        await run_document(tmp_path / "broken.md", directory)


async def test_a_sound_document_passes(tmp_path: Path, directory: Path) -> None:
    (tmp_path / "sound.md").write_text(
        "```python file=saved.py\nx = 1\nprint('one', x)\nprint('two')\n```\n\n```text output\none ...\n...\n```\n\n"
        "```python\nimport asyncio\nawait asyncio.sleep(0)\nassert x == 1\n```\n\n"
        "```console run\n$ python -c 'import saved'\n...\none 1\n...\ntwo\n$ true\n```\n\n```toml\na = 1\n```\n"
    )
    await run_document(tmp_path / "sound.md", directory)


def test_a_wrong_name_or_link_fails(tmp_path: Path) -> None:
    for name in ("helix.core.nothing", "helix.LocalExecutor.exequte", "helix.LocalExecutor.execute(sesion=)"):
        with pytest.raises(AssertionError):
            check_names(f"see `{name}`")
    check_names("see `helix.core.agents.Agent.max_steps` and `helix.LocalExecutor.execute(session_id=)`")
    for link in ("missing.md", "#missing"):
        (tmp_path / "page.md").write_text(f"# Here\n\n[x]({link})\n")
        with pytest.raises(AssertionError):
            check_links(tmp_path / "page.md")
    (tmp_path / "page.md").write_text("# Here it is\n\n[x](#here-it-is)\n")
    check_links(tmp_path / "page.md")
