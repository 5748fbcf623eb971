"""The command line as other processes: their output and their exit codes."""

from __future__ import annotations

import contextlib
import json
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.support.command_line import CommandLine, clean_environment

from helix._version import __version__
from helix.core.chunks import UnknownChunk, parse_chunk

RESULT_KEYS = ["type", "session_id", "run_id", "status", "output", "error"]


@pytest.fixture
def helix(tmp_path: Path) -> CommandLine:
    return CommandLine(tmp_path, HELIX_LEASE_SECONDS="2")


# --- run ----------------------------------------------------------------------------------------------------------


def test_json_is_one_chunk_a_line_and_then_the_result(helix: CommandLine) -> None:
    asked = helix.process("run", "agents.py:desk", "Please refund order A7", "--session", "a", "--json")
    assert asked.code == 4
    assert (asked.result["status"], asked.result["output"], asked.result["error"]) == ("paused", None, None)
    (request,) = [chunk for chunk in asked.chunks if chunk["type"] == "tool_approval_request"]

    done = helix.process("resume", "agents.py:desk", "a", "--approve", request["tool_call_id"], "--json")
    assert done.code == 0
    assert list(done.result) == RESULT_KEYS
    assert (done.result["type"], done.result["session_id"], done.result["status"]) == ("result", "a", "completed")
    assert set(done.result["output"]) == {"summary"}
    chunks = [parse_chunk(chunk) for chunk in [*asked.chunks, *done.chunks]]
    assert not any(isinstance(chunk, UnknownChunk) for chunk in chunks)
    sequences = [chunk.sequence for chunk in chunks]
    assert sequences == sorted(set(sequences))
    assert "the tool prints this" in done.err  # the output of tools is not mixed into the JSON


def test_what_a_person_sees_of_a_run(helix: CommandLine) -> None:
    helix("run", "agents.py:desk", "Please refund order A7", "--session", "a")
    done = helix.process("resume", "agents.py:desk", "a", "--approve", "call_0")
    assert done.code == 0
    seen = ['→ refund_order(order="A7")', "← refunded A7", '~ refunded += "A7"', "■ cpv1-a-s1-", "tokens", "summary: "]
    assert [words for words in seen if words not in done.out] == []
    assert "helix.cli resume" not in done.out and "python -m helix.cli run agents.py:desk" in done.out
    assert "\x1b" not in done.out  # a pipe gets no control codes


def test_a_run_takes_files_with_its_message(helix: CommandLine) -> None:
    (helix.folder / "note.txt").write_text("The parcel is dented.")
    asked = ("run", "agents.py:desk", "Please refund order A7", "--session", "a")
    assert helix(*asked, "--attach", "note.txt", "--json").code == 4
    (file,) = json.loads(helix("show", "a", "--json").out)["messages"][0]["files"]
    assert (file["name"], file["media_type"], file["size"]) == ("note.txt", "text/plain", 21)
    assert "+ note.txt (text/plain, 21 bytes)" in helix("show", "a").out
    missing = helix("run", "agents.py:desk", "Look", "--attach", "none.txt")
    assert missing.refusal.startswith("helix: file 'none.txt'") and "cannot be read" in missing.refusal


def test_a_failed_run_says_why_and_can_be_retried(helix: CommandLine) -> None:
    failed = helix("run", "agents.py:broken", "the work", "--session", "f", "--json")
    assert failed.code == 3
    assert (failed.result["status"], failed.result["error"]) == ("failed", "cannot do the work")
    assert helix("resume", "agents.py:broken", "f").refusal.startswith("helix: session 'f' is failed")
    assert helix("retry", "agents.py:broken", "f").code == 3
    (helix.folder / "mended").touch()
    again = helix("retry", "agents.py:broken", "f", "--from-start", "--message", "other work", "--json")
    assert (again.code, again.result["output"]) == (0, "did other work")
    assert helix("retry", "agents.py:broken", "f").refusal.startswith("helix: session 'f' is completed")


def test_a_session_takes_the_next_message_and_goes_back_in_time(helix: CommandLine) -> None:
    first = helix("run", "agents.py:talker", "My name is Ada.", "--session", "t", "--json")
    helix("run", "agents.py:talker", "Do you like trains?", "--session", "t")
    page = json.loads(helix("show", "t", "--json").out)
    assert [m["content"] for m in page["messages"] if m["role"] == "user"] == ["My name is Ada.", "Do you like trains?"]
    point = [chunk["checkpoint_id"] for chunk in first.chunks if chunk["type"] == "checkpoint_created"][-1]
    back = helix("resume", "agents.py:talker", "t", "--checkpoint", point, "--message", "Or ships?")
    assert back.code == 0
    page = json.loads(helix("show", "t", "--json").out)
    assert [m["content"] for m in page["messages"] if m["role"] == "user"] == ["My name is Ada.", "Or ships?"]


def test_a_closed_pipe_ends_quietly_and_loses_nothing(helix: CommandLine) -> None:
    command = [sys.executable, "-m", "helix.cli", "run", "agents.py:talker", "Hello there", "--session", "p", "--json"]
    with subprocess.Popen(
        command, cwd=helix.folder, env=helix.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        said = process.stderr.read().decode()
        assert process.wait() == 4
    assert "Traceback" not in said
    assert helix("resume", "agents.py:talker", "p").code == 0


# --- approvals ----------------------------------------------------------------------------------------------------


def test_an_answer_comes_from_another_process_and_the_first_one_counts(helix: CommandLine) -> None:
    asked = helix("run", "agents.py:desk", "Please refund order A7", "--session", "a")
    assert asked.code == 4
    assert "resume agents.py:desk a --approve call_0" in asked.out
    assert "call_0 (refund_order)" in helix("resume", "agents.py:desk", "a").refusal
    denied = helix.process("resume", "agents.py:desk", "a", "--deny", "call_0", "--reason", "too much", "--json")
    assert denied.code == 0
    (end,) = [chunk for chunk in denied.chunks if chunk["type"] == "tool_end"]
    assert (end["success"], end["error"]) == (False, "denied: too much")
    assert "does not wait for an answer" in helix("resume", "agents.py:desk", "a", "--approve", "call_0").refusal


def test_the_question_of_a_sub_agent_is_answered_at_its_root(helix: CommandLine) -> None:
    asked = helix("run", "agents.py:boss", "Please refund order A8", "--session", "b")
    assert asked.code == 4
    assert "resume agents.py:boss b --approve call_0" in asked.out
    page = json.loads(helix("show", "b", "--json").out)
    (question,) = page["waiting_for"]
    assert (question["tool_name"], question["arguments"]) == ("refund_order", {"order": "A8"})
    done = helix("resume", "agents.py:boss", "b", "--approve", "call_0", "--json")
    assert (done.code, done.result["session_id"]) == (0, "b")
    assert next(c["result"] for c in done.chunks if c["type"] == "tool_end") == "refunded A8"
    sequences = [chunk["sequence"] for chunk in done.chunks]
    assert sequences == sorted(set(sequences))  # the child's run, then the parent's, each chunk once
    ends = [chunk["agent_type"] for chunk in done.chunks if chunk["type"] == "step_committed"]
    assert ends == ["desk", "boss"]


def test_answers_that_do_not_go_together_are_refused(helix: CommandLine) -> None:
    resume = ["resume", "agents.py:desk", "a"]
    assert "--message" in helix(*resume, "--approve", "c", "--message", "x").refusal
    assert "both" in helix(*resume, "--approve", "c", "--deny", "c").refusal
    assert "--data" in helix(*resume, "--data", "1").refusal


# --- refusals -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", "agents.py:nobody", "x"], "'nobody'"),
        (["run", "agents.py", "x"], "agents.py:NAME; it has"),
        (["run", "agents.py:not_an_agent", "x"], "not an Agent"),
        (["run", "missing.py:desk", "x"], "no file 'missing.py'"),
        (["run", "no_such_module:desk", "x"], "no module 'no_such_module'"),
        (["run", "nobody", "x"], "registered are: none"),
        (["run", "bad.py:desk", "x"], "ZeroDivisionError: division by zero (bad.py, line 2)"),
        (["run", "agents.py:desk", " "], "message is empty"),
        (["run", "agents.py:desk", "x", "--session", "not good"], "session_id"),
        (["run", "agents.py:desk", "x", "--session", ""], "session_id ''"),
        (["resume", "agents.py:desk", ""], "''"),
        (["retry", "agents.py:desk", ""], "''"),
        (["delete", ""], "''"),
        (["run", "agents.py:desk"], "MESSAGE"),
        (["run", "agents.py:desk", "x", "--jsn"], "--jsn"),
        (["fly"], "'fly'"),
        (["show", "nothing"], "'nothing'"),
        (["resume", "agents.py:desk", "nothing"], "'nothing'"),
        (["retry", "agents.py:desk", "nothing"], "'nothing'"),
        (["interrupt", "nothing"], "'nothing'"),
        (["branch", "nothing"], "'nothing'"),
        (["clone", "nothing", "b"], "'nothing'"),
        (["delete", "nothing"], "'nothing'"),
        (["show", "nothing", "--db", "bad.py"], "bad.py"),
        (["show", "nothing", "--db", "."], "there is no store '.'"),
        (["show", "\udce9"], "is not UTF-8"),
        (["run", "desk", "x", "--url", "ws://127.0.0.1:99999"], "Port out of range"),
        (["cost", "nothing", "--url", "ws://127.0.0.1:99999"], "Port out of range"),
    ],
)
def test_what_cannot_be_done_is_refused_in_one_line(helix: CommandLine, arguments: list[str], words: str) -> None:
    (helix.folder / "bad.py").write_text("x = 1\n1 / 0\n")
    assert words in helix(*arguments).refusal
    assert not (helix.folder / "helix.db").exists() or arguments[0] == "run"


def test_a_session_of_another_agent_and_wrong_settings_are_refused(helix: CommandLine) -> None:
    helix("run", "agents.py:talker", "Hello there", "--session", "t")
    assert "belongs to agent 'talker'" in helix("run", "agents.py:desk", "x", "--session", "t").refusal
    assert "there is no session 'u'" in helix("show", "u").refusal
    wrong = helix("sessions", environment={"HELIX_LEASE_SECONDS": "soon"})
    assert "HELIX_LEASE_SECONDS is 'soon'" in wrong.refusal


# --- processes that die, and those that are stopped ------------------------------------------------------------------


def test_a_killed_run_is_resumed_once_its_lease_has_lapsed(helix: CommandLine) -> None:
    with helix.started("run", "agents.py:gate", '{"name": "open"}', "--session", "k") as run:
        run.until("→ gate")
        live = helix("run", "agents.py:gate", '{"name": "open"}', "--session", "k")
        assert "'k' is already running" in live.refusal
        run.signal(signal.SIGKILL)
        (helix.folder / "open").touch()
        resumed = helix("resume", "agents.py:gate", "k", "--json")
    assert (resumed.code, resumed.result["output"]) == (0, "open is open")
    assert "lease" in resumed.err and "gone" in resumed.err
    assert len((helix.folder / "executions").read_text().split()) == 2
    assert [run["status"] for run in json.loads(helix("show", "k", "--json").out)["runs"]] == ["completed", "failed"]


def test_a_killed_session_takes_a_new_message(helix: CommandLine) -> None:
    with helix.started("run", "agents.py:gate", '{"name": "never"}', "--session", "k") as run:
        run.until("→ gate")
        run.signal(signal.SIGKILL)
        (helix.folder / "open").touch()
        done = helix("run", "agents.py:gate", '{"name": "open"}', "--session", "k", "--json")
    assert (done.code, done.result["output"]) == (0, "open is open")
    assert "gone" in done.err


def test_a_clock_that_was_set_back_does_not_delay_a_takeover(helix: CommandLine) -> None:
    with helix.started("run", "agents.py:gate", '{"name": "open"}', "--session", "k") as run:
        run.until("→ gate")
        run.signal(signal.SIGKILL)
        run.end()
    with contextlib.closing(sqlite3.connect(helix.folder / "helix.db")) as db, db:
        for field in ("updated_at", "lease_expires"):  # as written by a clock that was an hour ahead
            path = f"$.{field}"
            db.execute(
                "UPDATE sessions_rows SET value = json_set(value, ?, json_extract(value, ?) + 3600) WHERE sort = 'session'",
                (path, path),
            )
    (helix.folder / "open").touch()
    resumed = helix.process("resume", "agents.py:gate", "k", "--json")
    assert (resumed.code, resumed.result["output"]) == (0, "open is open")


def test_an_interrupt_reaches_the_run_of_another_process(helix: CommandLine) -> None:
    with helix.started("run", "agents.py:guard", "Watch the gate", "--session", "i") as run:
        run.until("→ watch_gate")
        assert helix("interrupt", "i", "--reason", "lunch").code == 0
        (helix.folder / "open").touch()
        assert run.end() == 4
        assert any("resume agents.py:guard i" in line for line in run.lines)
    assert "does not run" in helix("interrupt", "i").refusal
    resumed = helix("resume", "agents.py:guard", "i", "--json")
    assert resumed.code == 0
    assert len((helix.folder / "executions").read_text().split()) == 1  # the finished call was not repeated


def test_ctrl_c_interrupts_softly(helix: CommandLine) -> None:
    with helix.started("run", "agents.py:guard", "Watch the gate", "--session", "c", "--json") as run:
        run.until('"tool_start"')
        run.signal(signal.SIGINT)
        run.until("interrupting")
        until_recorded(helix, "x#")
        (helix.folder / "open").touch()
        assert run.end() == 4
        assert json.loads(run.lines[-1])["status"] == "interrupted"
    assert helix("resume", "agents.py:guard", "c").code == 0


def until_recorded(helix: CommandLine, sort: str) -> None:
    """Wait until the store has a row whose sort key begins with this. The process that writes it may be slow."""
    ends = time.monotonic() + 30
    while time.monotonic() < ends:
        with contextlib.closing(sqlite3.connect(helix.folder / "helix.db")) as db:
            if db.execute("SELECT 1 FROM sessions WHERE sort LIKE ?", (sort + "%",)).fetchone():
                return
        time.sleep(0.02)
    raise AssertionError(f"no row {sort!r} after 30 s")


def test_a_second_ctrl_c_leaves_at_once_and_gives_the_lease_back(helix: CommandLine) -> None:
    with helix.started("run", "agents.py:stubborn", '{"seconds": 50}', "--session", "c", "--json") as run:
        run.until('"tool_start"')
        run.signal(signal.SIGINT)
        run.until("interrupting")
        run.signal(signal.SIGINT)
        assert run.end() == 4
        assert json.loads(run.lines[-1])["status"] == "interrupted"
    page = json.loads(helix("show", "c", "--json").out)
    assert page["session"]["status"] == "running"
    assert page["session"]["lease_expires"] < page["session"]["updated_at"] + 60
    done = helix("resume", "agents.py:stubborn", "c", "--message", '{"seconds": 0}')
    assert done.code == 0
    assert "waited" not in done.err


# --- sessions -----------------------------------------------------------------------------------------------------


def test_sessions_are_listed_copied_and_deleted(helix: CommandLine) -> None:
    assert "no sessions yet" in helix("sessions").err
    helix("run", "agents.py:talker", "Do you like trains?", "--session", "t")
    assert helix("branch", "t", "--to", "u").out == "u\n"
    branched = helix("branch", "t").out.strip()
    assert helix("clone", "t", "v", "--messages", "1").out == "v\n"
    assert "exists" in helix("clone", "t", "v").refusal
    listed = [json.loads(line) for line in helix("sessions", "--json").out.splitlines()]
    assert {row["session_id"]: row["message_count"] for row in listed} == {"t": 2, "u": 2, branched: 2, "v": 1}
    assert listed[0]["title"] == "Do you like trains?"
    text = helix("sessions").out
    assert all(name in text for name in ("t ", "u ", branched, "v ", "talker", "completed", "Do you like trains?"))
    assert helix("run", "agents.py:talker", "And ships?", "--session", "u").code == 0
    assert "session_id ''" in helix("branch", "t", "--to", "").refusal
    assert helix("delete", "v").code == 0
    assert "'v'" in helix("delete", "v").refusal
    assert "'v'" in helix("show", "v").refusal


def test_show_has_the_messages_runs_checkpoints_and_state(helix: CommandLine) -> None:
    helix("run", "agents.py:desk", "Please refund order A7", "--session", "a")
    paused = helix("show", "a").out
    assert "waits for approval of refund_order" in paused
    helix("resume", "agents.py:desk", "a", "--approve", "call_0")
    text = helix("show", "a").out
    for words in (
        "completed",
        "Please refund order A7",
        "← refund_order: refunded A7",
        "refunded:",
        "run_000001_",
        "cpv1-a-s1",
    ):
        assert words in text
    page = json.loads(helix("show", "a", "--json").out)
    assert page["state"] == {"refunded": ["A7"]}
    assert [run["mode"] for run in page["runs"]] == ["with_confirmation", "execute"]
    assert page["checkpoints"][0]["id"] == page["session"]["checkpoint_id"]
    assert {m["role"] for m in page["messages"]} == {"user", "assistant", "tool"}


def test_the_store_is_where_the_option_or_the_environment_says(helix: CommandLine) -> None:
    helix("run", "agents.py:talker", "Hello there", "--session", "t", "--db", "one.db")
    helix("run", "agents.py:talker", "Hello there", "--session", "t", environment={"HELIX_DB": "two.db"})
    assert sorted(path.name for path in helix.folder.glob("*.db")) == ["one.db", "two.db"]
    assert "--db one.db" in helix("run", "agents.py:talker", "Hello", "--session", "t", "--db", "one.db").out


def test_the_hint_for_a_waiting_call_names_the_store_that_it_is_in(helix: CommandLine) -> None:
    helix("run", "agents.py:desk", "Refund order A7", "--session", "a", "--db", "one.db")
    assert "answer desk a call_0 --db one.db" in helix("sessions", "--waiting", "--db", "one.db").out
    beside = helix("sessions", "--waiting", environment={"HELIX_DB": "one.db"}).out
    assert "answer desk a call_0" in beside and "--db" not in beside


# --- agents, models, and the program itself ---------------------------------------------------------------------------


def test_agents_are_found_by_module_file_package_and_name(helix: CommandLine) -> None:
    folder = helix.folder
    (folder / "team").mkdir()
    (folder / "team" / "__init__.py").touch()
    (folder / "team" / "names.py").write_text("NAME = 'helper'\n")
    source = (
        "from helix import Agent, LLMConfig\nfrom .names import NAME\n"
        "helper = Agent(name=NAME, system_prompt='Help.', llm_config=LLMConfig(model='gpt-4o'))\n"
    )
    (folder / "team" / "helpers.py").write_text(source)
    (folder / "desks").mkdir()
    (folder / "desks" / "names.py").write_text("NAME = 'first'\n")
    register = "\nfrom helix import default_registry\ndefault_registry.register(helper)\n"
    (folder / "desks" / "__init__.py").write_text(source + register)
    listed = {"HELIX_AGENTS": "agents.py, team.helpers"}
    for spec, environment in [
        ("team.helpers:helper", {}),
        ("team/helpers.py:helper", {}),
        (str(folder / "team" / "helpers.py") + ":helper", {}),
        ("desks/__init__.py:helper", {}),  # the module runs once, and so registers once
        ("desks:helper", {}),
        ("agents.py:gate-keeper", {}),
        ("helper", listed),
        ("talker", listed),
        ("gate-keeper", listed),
    ]:
        message = '{"name": "agents.py"}' if spec.endswith("gate-keeper") else "Hello there"
        done = helix("run", spec, message, environment=environment)
        assert done.code == 0, (spec, done)
    (folder / "pyproject.toml").write_text('[tool.helix]\nagents = ["agents.py"]\n')
    assert helix("run", "talker", "Hello there").code == 0


def test_version_help_and_a_quick_start(helix: CommandLine) -> None:
    assert helix.process("--version").out == f"helix {__version__}\n"
    assert helix().out == helix("--help").out
    for command in ("run", "chat", "sessions", "show", "resume", "retry", "interrupt", "branch", "clone", "delete"):
        assert command in helix("--help").out
    heavy = "litellm boto3 rich pydantic sqlite3 asyncio helix.runtime.local"
    code = f"import sys, helix.cli.main; print([m for m in '{heavy}'.split() if m in sys.modules])"
    loaded = subprocess.check_output([sys.executable, "-c", code], text=True, env=clean_environment())
    assert loaded.strip() == "[]"
