"""The commands that a user may type next, exactly as they must be typed."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Hints:
    """Commands for one agent as the user named it. `db` and `model` are None where the defaults apply."""

    agent: str
    db: str | None = None
    model: str | None = None
    fleet: bool = False

    def run(self, session_id: str) -> str:
        return self._command("run", self.agent, "...", "--session", session_id)

    def resume(self, session_id: str, *more: str) -> str:
        return self._command("resume", self.agent, session_id, *more)

    def retry(self, session_id: str) -> str:
        return self._command("retry", self.agent, session_id)

    def chat(self, session_id: str) -> str:
        return self._command("chat", self.agent, "--session", session_id)

    def show(self, session_id: str) -> str:
        words = ["show", session_id, *(["--db", self.db] if self.db else [])]
        return f"{program()} {shlex.join(words)}"

    def _command(self, *words: str) -> str:
        more = [*(["--model", self.model] if self.model else []), *(["--db", self.db] if self.db else [])]
        more += ["--fleet"] if self.fleet else []
        return " ".join([program(), *(f'"{w}"' if w == "..." else shlex.quote(w) for w in [*words, *more])])


def program() -> str:
    """How this program was called: `helix` if that finds it, else the path that was typed."""
    typed = sys.argv[0] if sys.argv else "helix"
    if os.path.basename(typed) == "__main__.py":
        return "python -m helix.cli"
    found = shutil.which("helix")
    if os.path.basename(typed) != "helix" or (found is not None and os.path.realpath(found) == os.path.realpath(typed)):
        return "helix"
    relative = os.path.relpath(typed)
    return shlex.quote(relative if not relative.startswith("..") else typed)
