"""Text of a model, a tool or a damaged store does not harm a terminal, and causes no traceback."""

from __future__ import annotations

import asyncio
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.test_cli_remote import Service
from tests.support.command_line import CommandLine, Done
from tests.support.stored_rows import rewrite
from tests.support_gateway import executor_of
from tests.support_run import World, a_tool, agent, call, calls, play

from helix.cli.main import invoke

ATTACK = (
    "\x1b]0;owned\x07 \x1b[2J \x9b1m \x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\ \x00 "
    "\u202eabc\u2066 \u200f\U000e0041 \x7f \rlast"
)
SHOWN = "␛]0;owned"
FORBIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\U000e0020-\U000e007f]")
STYLE = re.compile(r"\x1b\[[0-9;]*m")
"""The control sequences that rich itself writes into a terminal."""

HOSTILE = f"""
from helix.cli.main import invoke
from helix import Agent, AgentClient, LLMConfig, tool
ATTACK = {ATTACK!r}
client = AgentClient()

@client.agent(name="speaker")
async def speaker(text: str) -> dict:
    return {{"said": ATTACK}}

@client.agent(name="failing")
async def failing(text: str) -> str:
    raise ValueError(ATTACK)

@tool(require_approval=True)
async def look_up(topic: str) -> str:
    "Look a topic up."
    return ATTACK

asker = Agent(name="asker", system_prompt="Look up.", tools=[look_up], llm_config=LLMConfig(model="openai/gpt-4o"))
"""
TERMINAL = {"FORCE_COLOR": "1", "COLUMNS": "100"}


@pytest.fixture
def helix(tmp_path: Path) -> CommandLine:
    line = CommandLine(tmp_path)
    (tmp_path / "hostile.py").write_text(HOSTILE, encoding="utf-8")
    return line


def harmless(text: str) -> str:
    assert not FORBIDDEN.search(STYLE.sub("", text)), text
    return text


RAISING = """
from helix import Agent, LLMConfig

class Odd(BaseException): ...

class Bad:
    def __getattr__(self, name): raise Odd(name)
    @property
    def __class__(self): raise Odd("class")

bad = Bad()
talker = Agent(name="the-talker", system_prompt="Talk.", llm_config=LLMConfig(model="openai/gpt-4o"))

def __getattr__(name): raise Odd(name)
"""


def test_modules_that_raise_are_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "raising.py").write_text(RAISING)
    (tmp_path / "broken.py").write_text("class Odd(BaseException): ...\nraise Odd('no')\n")
    for words, told in [
        ("run broken.py:a hi", "'broken.py' cannot be imported: Odd: no (broken.py, line 2)"),
        ("mcp --agent broken.py:a", "'broken.py' cannot be imported: Odd: no (broken.py, line 2)"),
        ("run raising.py:nobody hi", "'nobody' in 'raising.py' cannot be read: Odd: nobody (raising.py, line 14)"),
        ("run raising.py:bad.x hi", "'bad.x' in 'raising.py' cannot be read: Odd: x (raising.py, line 7)"),
        ("run raising.py:bad hi", "'bad' in 'raising.py' is a Bad, not an Agent"),
        ("run raising.py hi", "it has talker, the-talker"),
    ]:
        assert invoke(words.split()) == 2, words
        assert told in capsys.readouterr().err
    assert invoke(["run", "raising.py:the-talker", "hi", "--model", "demo"]) == 0
    for name in ("raising", "broken"):  # code that iterates over all modules would find them
        sys.modules.pop(name, None)


@pytest.mark.parametrize("surroundings", [{}, TERMINAL], ids=["pipe", "terminal"])
def test_a_run_writes_no_control_characters(helix: CommandLine, surroundings: dict[str, str]) -> None:
    for name, code in [("speaker", 0), ("failing", 3)]:
        done = helix("run", f"hostile.py:{name}", ATTACK, environment=surroundings)
        assert done.code == code and SHOWN in harmless(done.out + done.err)
    asked = helix("run", "hostile.py:asker", f"look up {ATTACK}", "--session", "a", environment=surroundings)
    assert asked.code == 4 and harmless(asked.out + asked.err)
    done = helix("resume", "hostile.py:asker", "a", "--approve", "call_0", environment=surroundings)
    assert done.code == 0 and f"← {SHOWN}" in harmless(done.out + done.err)
    for command in (["show", "a"], ["sessions"], ["cost", "a"], ["show", ATTACK], ["run", f"{ATTACK}.py:a", "x"]):
        done = helix(*command, environment=surroundings)
        assert harmless(done.out + done.err)
    talked = helix(
        "chat", "hostile.py:asker", "--session", "c", stdin=f"look up {ATTACK}\ny\n", environment=surroundings
    )
    assert SHOWN in harmless(talked.out + talked.err)
    refused = helix("fleet", "status", ATTACK, environment=surroundings)
    assert "owned" in harmless(refused.err)


def test_json_stays_json(helix: CommandLine) -> None:
    done = helix("run", "hostile.py:speaker", "x", "--session", "s", "--json")
    assert done.result["output"] == {"said": ATTACK}
    harmless(done.out)
    for command in (["sessions", "--json"], ["show", "s", "--json"]):
        assert json.loads(harmless(helix(*command).out))


@pytest.fixture
def service() -> Iterator[Service]:
    tool = a_tool("look", lambda args, ctx: ATTACK)
    script = [calls(call("look"), call(ATTACK, x=ATTACK), content=ATTACK), ATTACK]
    made = Service(executor_of(script, agent("helper", tools=[tool])))
    yield made
    made.stop()


def test_an_agent_of_a_service_writes_no_control_characters(helix: CommandLine, service: Service) -> None:
    done = helix("run", "helper", "go", "--url", service.url, "--key", service.key)
    assert done.code == 0 and done.out.count(SHOWN) == 4, "the model's name, too"
    harmless(done.out + done.err)


def test_what_models_wrote_is_shown_without_control_characters(helix: CommandLine, tmp_path: Path) -> None:
    async def made() -> str:
        world = World("sqlite", tmp_path)
        tool = a_tool("look", lambda args, ctx: ATTACK)
        script = [calls(call("look"), call(ATTACK, x=ATTACK), content=ATTACK), ATTACK]
        handle, _, _ = await play(world.executor(script), agent(tools=[tool]), ATTACK)
        await world.close()
        return handle.session_id

    session_id = asyncio.run(made())
    (db,) = tmp_path.glob("**/*.db")
    for command in (["show", session_id], ["sessions"], ["cost", session_id]):
        for more in ([], ["--json"]):
            done = helix(*command, "--db", str(db), *more)
            assert done.code == 0
            harmless(done.out + done.err)


# --- stores ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def two_sessions(helix: CommandLine) -> CommandLine:
    for name in ("good", "bad"):
        assert helix("run", "agents.py:talker", "Hello there", "--session", name).code == 0
    return helix


@pytest.mark.slow
@pytest.mark.parametrize("sort", ["session", "m#", "r#", "c#"])
@pytest.mark.parametrize("text", ["{", "[]", '{"kind": "odd"}', "{}"])
def test_a_damaged_row_is_one_line_that_names_the_session(two_sessions: CommandLine, sort: str, text: str) -> None:
    helix = two_sessions
    assert rewrite(helix.folder / "helix.db", "sessions", "bad", sort + "%", text) > 0
    if sort == "c#":  # the message is enough for a session, and a checkpoint is read only by name
        assert "'bad'" in helix("show", "bad").refusal
        return
    assert "session 'bad' is damaged" in helix("show", "bad").refusal
    listed = helix("sessions", "--json")
    assert listed.code == 0 and "good" in [json.loads(line)["session_id"] for line in listed.out.splitlines()]
    if sort == "session":
        assert "'bad'" in listed.err
        assert "session 'bad' is damaged" in helix("run", "agents.py:talker", "Again", "--session", "bad").refusal
    done = helix("run", "agents.py:talker", "Again", "--session", "bad")
    assert "Traceback" not in done.out + done.err
    gone = helix("delete", "bad")
    assert gone.code == 0 and "Traceback" not in gone.err
    assert "'bad'" in helix("show", "bad").refusal


def test_a_full_disk_is_one_line(two_sessions: CommandLine) -> None:
    helix = two_sessions
    size = max(file.stat().st_size for file in helix.folder.glob("helix.db*"))
    done = subprocess.run(
        [sys.executable, "-m", "helix.cli", "run", "agents.py:talker", "x" * 100_000, "--session", "good"],
        cwd=helix.folder,
        env=helix.environment,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size + 50_000, size + 50_000)),
    )
    assert done.returncode == 2, done
    (line,) = done.stderr.splitlines()
    assert line.startswith("helix: ") and ("disk I/O error" in line or "full" in line)
    assert helix("show", "good").code == 0


def test_a_file_that_may_only_be_read_is_listed_and_shown() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        helix = CommandLine(folder)
        assert helix("run", "agents.py:talker", "Hello there", "--session", "a").code == 0
        commands = [helix("sessions"), helix("show", "a")]
        (folder / "helix.db").chmod(0o444)
        folder.chmod(0o555)
        root = os.geteuid() == 0
        if root:  # file modes do not restrict root
            os.setegid(65534)
            os.seteuid(65534)
        try:
            again = [helix("sessions"), helix("show", "a")]
            assert [_without_age(done) for done in again] == [_without_age(done) for done in commands]
            refusal = helix("delete", "a").refusal
        finally:
            if root:
                os.seteuid(0)
                os.setegid(0)
            folder.chmod(0o755)
    assert "readonly" in refusal


# --- models ---------------------------------------------------------------------------------------------------------


def test_a_forgotten_key_does_not_let_the_demonstration_model_continue(helix: CommandLine, tmp_path: Path) -> None:
    async def made() -> None:
        world = World("sqlite", tmp_path)
        await play(world.executor(["A real answer."]), agent("talker"), session_id="real")
        await world.close()

    asyncio.run(made())
    (db,) = tmp_path.glob("**/*.db")
    for command in (["run", "agents.py:talker", "More", "--session", "real"], ["resume", "agents.py:talker", "real"]):
        refusal = helix(*command, "--db", str(db)).refusal
        assert "OPENAI_API_KEY is not set" in refusal and "--model demo" in refusal and "'real'" in refusal
    assert "--model demo" in helix("retry", "agents.py:talker", "real", "--db", str(db)).refusal
    chatted = helix("chat", "agents.py:talker", "--session", "real", "--db", str(db), stdin="More\n")
    assert chatted.code == 2 and "--model demo" in chatted.err
    chosen = helix("run", "agents.py:talker", "More", "--session", "real", "--db", str(db), "--model", "demo")
    assert chosen.code == 0
    assert helix("run", "agents.py:talker", "Hello", "--session", "own").code == 0
    assert helix("run", "agents.py:talker", "Again", "--session", "own").code == 0


def _without_age(done: Done) -> Done:
    return Done(done.code, re.sub(r"\d+ s ago", "0 s ago", done.out), done.err)
