"""Messages from the command line to a session that is not at rest."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support.command_line import CommandLine


def test_a_run_steers_a_session_that_is_paused(tmp_path: Path) -> None:
    helix = CommandLine(tmp_path)
    assert helix("run", "agents.py:desk", "Please refund order A7", "--session", "a", "--json").code == 4
    steered = helix("run", "agents.py:desk", "And write a note", "--session", "a", "--when-running", "steer", "--json")
    assert (steered.code, steered.result["status"]) == (4, "paused")
    assert helix("resume", "agents.py:desk", "a", "--approve", "call_0", "--json").code == 0
    messages = json.loads(helix("show", "a", "--json").out)["messages"]
    assert [m["content"] for m in messages if m["role"] == "user"] == ["Please refund order A7", "And write a note"]
    assert "later" in helix("run", "agents.py:desk", "x", "--session", "a", "--when-running", "later").refusal
