"""`helix chat` as a process: in a real pseudo-terminal, and with plain lines if there is no screen."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pexpect
import pyte
import pytest
from tests.integration.test_cli_hostile import ATTACK, FORBIDDEN, HOSTILE
from tests.support.command_line import CommandLine

PATIENCE_S = 40


@pytest.fixture
def helix(tmp_path: Path) -> CommandLine:
    (tmp_path / "hostile.py").write_text(HOSTILE, encoding="utf-8")
    return CommandLine(tmp_path)


class Terminal:
    """A command in a pseudo-terminal, and the content of its screen. `raw` is all of its output."""

    def __init__(self, helix: CommandLine, *arguments: str, term: str = "xterm-256color") -> None:
        self._screen = pyte.Screen(100, 40)
        self._stream = pyte.ByteStream(self._screen)
        self.raw = b""
        given = {name: value for name, value in helix.environment.items() if name not in ("COLUMNS", "LINES")}
        environment = {**given, "TERM": term, "COLORTERM": "truecolor", "LANG": "C.UTF-8"}
        self.process = pexpect.spawn(
            sys.executable, ["-m", "helix.cli", *arguments], cwd=helix.folder, env=environment, dimensions=(40, 100)
        )

    @property
    def text(self) -> str:
        return "\n".join(self._screen.display)

    def until(self, words: str, press: bytes = b"") -> None:
        """Wait until the screen matches. `press` is pressed again each second, for a screen that is not ready or still
        shows an earlier call."""
        end, pressed = time.monotonic() + PATIENCE_S, 0.0
        while words not in self.text:
            assert time.monotonic() < end, f"{words!r} never came:\n{self.text}"
            if press and time.monotonic() - pressed > 1:
                self.process.send(press)
                pressed = time.monotonic()
            self.read()

    def read(self) -> None:
        try:
            data = self.process.read_nonblocking(65536, timeout=0.2)
        except pexpect.TIMEOUT:
            return
        self.raw += data
        self._stream.feed(data)

    def end(self) -> int:
        """Return the exit code after all output was read."""
        try:
            while True:
                self.raw += (data := self.process.read_nonblocking(65536, timeout=PATIENCE_S))
                self._stream.feed(data)
        except pexpect.EOF:
            self.process.close()
        return int(self.process.exitstatus)


@contextmanager
def terminal(helix: CommandLine, *arguments: str, term: str = "xterm-256color") -> Iterator[Terminal]:
    opened = Terminal(helix, *arguments, term=term)
    try:
        yield opened
    finally:
        opened.process.close(force=True)


@pytest.mark.slow
def test_the_screen_in_a_terminal(helix: CommandLine) -> None:
    with terminal(helix, "chat", "hostile.py:asker", "--session", "c") as t:
        t.until("Message, or /help")
        t.process.send(b"\x1b[200~Look up this:\ndogs\x1b[201~")  # pasted, with a new line
        t.until("dogs")
        t.process.send("\r")
        t.until("Approve look_up?")
        t.process.send(b"\x13")  # Ctrl+S
        t.until("␛]0;owned")
        t.until("Nothing found")  # the model asks for another call
        t.until("Approve look_up?")
        t.until("completed", press=b"\x13")
        t.process.send(b"\x04")
        assert t.end() == 0
        assert "chat hostile.py:asker --session c" in t.text
        assert b"owned\x07" not in t.raw and b"\x1b]8;;http" not in t.raw and ATTACK.encode() not in t.raw
        assert not FORBIDDEN.search(t.text.replace("\n", ""))
    page = json.loads(helix("show", "c", "--json").out)
    assert page["messages"][0]["content"] == "Look up this:\ndogs"


COLOURS = re.compile(rb"\x1b\[(?:[\d:]*;)*(?:3[0-8]|4[0-8]|9[0-7]|10[0-7])(?:[;:][\d;:]*)?m")


@pytest.mark.slow
def test_no_color_is_kept_to(helix: CommandLine) -> None:
    for value, coloured in (("1", False), ("", True)):
        helix.environment["NO_COLOR"] = value
        with terminal(helix, "chat", "hostile.py:asker", "--session", "c") as t:
            t.until("Message, or /help")
            t.process.send("\x04")
            assert t.end() == 0
        assert bool(COLOURS.search(t.raw)) is coloured


@pytest.mark.slow
def test_a_run_that_goes_on_is_interrupted_and_left(helix: CommandLine) -> None:
    with terminal(helix, "chat", "agents.py:guard", "--session", "g") as t:
        t.until("Message, or /help")
        t.process.send("Watch the gate until it opens\r")
        t.until("● watch_gate")
        t.process.send(b"\x03")
        t.until("stopping, once more leaves")
        t.process.send(b"\x03")
        assert t.end() == 4
        assert "chat agents.py:guard --session g" in t.text
    (helix.folder / "open").touch()
    assert "open is open" in helix("resume", "agents.py:guard", "g").out  # nothing is lost, and no lease is in the way


@pytest.mark.parametrize(("words", "term"), [(["--plain"], "xterm"), ([], "dumb")])
def test_plain_lines_where_there_is_no_screen(helix: CommandLine, words: list[str], term: str) -> None:
    with terminal(helix, "chat", "agents.py:talker", "--session", "p", *words, term=term) as t:
        t.until("an empty line or Ctrl-D leaves")
        t.process.send("Hello there\n")
        t.until("completed")
        t.process.send("/cost\n")
        t.until("in all")
        t.process.send("/branch\n")
        t.until("which?")
        t.process.send("1\n")
        t.until("session ses_")
        t.process.send("/back\n")
        t.until("session p")
        t.process.send("/attach agents.py Look\n")
        t.until("You ask about: look")
        t.process.send("/nonsense\n")
        t.until("is not a command")
        t.process.send("/exit\n")
        assert t.end() == 0
        assert b"\x1b[?1049h" not in t.raw  # the alternate screen


def test_a_pipe_gets_lines_and_its_slashes_are_messages(helix: CommandLine) -> None:
    done = helix("chat", "agents.py:talker", "--session", "c", stdin="/cost\n/exit\nnever read\n")
    assert (done.code, done.err) == (0, "") and "\x1b" not in done.out and "You ask about" in done.out
    assert "user  /cost" in helix("show", "c").out and "never read" not in helix("show", "c").out


def test_no_other_command_imports_textual_and_a_chat_without_it_has_plain_lines(helix: CommandLine) -> None:
    code = """
import sys
from helix.cli.main import invoke
import helix.cli.chat.command, helix.cli.run.commands
assert invoke(["run", "agents.py:talker", "Hello"]) == 0
assert "textual" not in sys.modules
sys.modules["textual"] = None
helix.cli.chat.command._has_screen = lambda: True
assert invoke(["chat", "agents.py:talker"]) == 0
"""
    environment = {**helix.environment, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=helix.folder,
        env=environment,
        capture_output=True,
        text=True,
        input="Hi\n",
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert "pip install 'helix-agents[cli]'" in done.stderr and "You ask about" in done.stdout
