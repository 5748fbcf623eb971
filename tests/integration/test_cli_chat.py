"""`helix chat` in a pipe."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.support.command_line import CommandLine

RESULT_KEYS = ["type", "session_id", "run_id", "status", "output", "error"]


@pytest.fixture
def helix(tmp_path: Path) -> CommandLine:
    return CommandLine(tmp_path, HELIX_LEASE_SECONDS="2")


def test_chat_keeps_one_session_and_asks_what_a_run_waits_for(helix: CommandLine) -> None:
    done = helix("chat", "agents.py:desk", "--session", "c", stdin="Please refund order A7\ny\nThank you very much\n")
    assert done.code == 0
    assert "← refunded A7" in done.out
    page = json.loads(helix("show", "c", "--json").out)
    said = [m["content"] for m in page["messages"] if m["role"] == "user"]
    assert said == ["Please refund order A7", "Thank you very much"]


def test_chat_leaves_a_question_open_when_the_input_ends(helix: CommandLine) -> None:
    assert helix("chat", "agents.py:desk", "--session", "c", stdin="Please refund order A7\n").code == 4
    assert helix("resume", "agents.py:desk", "c", "--approve", "call_0").code == 0
