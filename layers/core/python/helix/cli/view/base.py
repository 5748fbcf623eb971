"""The protocol through which commands show runs, the headings and hints of views, and the view for programs."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TextIO

from pydantic import BaseModel

from helix.cli.output import say, write_json
from helix.core.agents import AnyAgent
from helix.core.chunks import StreamChunk
from helix.core.config import LLMConfig
from helix.core.handles import AgentExecutionHandle, AgentResult
from helix.core.json import JsonObject
from helix.core.messages import AskedQuestion
from helix.runtime.models import ModelChoice

DEMONSTRATION_IN_WORDS = "the demonstration model: a program, not a language model; it costs nothing"


@dataclass(frozen=True, slots=True)
class Hints:
    """The commands for one agent that a view suggests typing next."""

    agent: str
    """The agent as the user named it on the command line."""
    db: str | None = None
    """The store for the option `--db`. None if it is the default."""
    model: str | None = None
    """The model for the option `--model`. None if the user did not choose one."""
    fleet: bool = False
    """Whether the commands need the option `--fleet`."""

    def __call__(self, verb: str, *words: str) -> str:
        more = [*(["--model", self.model] if self.model else []), *(["--db", self.db] if self.db else [])]
        return command(verb, self.agent, *words, *more, *(["--fleet"] if self.fleet else []))

    def report(self) -> str:
        return command("calls", "complete", "TOKEN", "--agent", self.agent, *(["--db", self.db] if self.db else []))

    def show(self, session_id: str) -> str:
        return command("show", session_id, *(["--db", self.db] if self.db else []))


def command(*words: str) -> str:
    """Return a command line for this program. The word `...` becomes a placeholder for a message."""
    return " ".join([program(), *('"..."' if word == "..." else shlex.quote(word) for word in words)])


def program() -> str:
    """Return how to call this program: `helix` if the shell finds it, otherwise the path that the user typed."""
    typed = sys.argv[0] if sys.argv else "helix"
    if os.path.basename(typed) == "__main__.py":
        return "python -m helix.cli"
    found = shutil.which("helix")
    if os.path.basename(typed) != "helix" or (found is not None and os.path.realpath(found) == os.path.realpath(typed)):
        return "helix"
    relative = os.path.relpath(typed)
    return shlex.quote(relative if not relative.startswith("..") else typed)


@dataclass(frozen=True, slots=True)
class Question:
    """A call that waits for a person, in the session or in a sub-agent's session."""

    call_id: str
    """The call to answer."""
    tool_name: str
    """The tool that the model called."""
    kind: str
    """The kind of answer that the call needs, as in `core.rows.Pending`."""
    arguments: JsonObject
    """The arguments that the model gave."""
    agent_type: str
    """The agent that made the call."""
    reason: str | None = None
    """The reason why the tool needs an answer, as in `core.rows.Pending`, or the texts of its questions. None if no
    call waits."""
    questions: Sequence[AskedQuestion] = ()
    """The open questions of a tool that asks."""
    round: int = 0
    """The round of those questions, as in `core.rows.Pending`."""

    @property
    def wanted(self) -> str:
        """The kind of answer in words."""
        named = {"question": "the answer to a question", "elsewhere": "another system's result"}
        return named.get(self.kind, self.kind)


@dataclass(frozen=True, slots=True)
class Heading:
    """The lines that a view shows before the first run."""

    agent: AnyAgent
    """The agent that runs. For an agent in a service, only the name is known."""
    choice: ModelChoice
    """The model that was chosen in this process."""
    db: str
    """The place where the sessions are stored: a store, a service's URL or a stage."""
    message: str | None = None
    """The user's message that begins the run. None if the command does not have one."""
    brief: bool = False
    """Whether the run is one of many, as in a chat. If so, the view does not show how to continue after each run."""

    @property
    def model(self) -> str:
        if self.choice.name is not None:
            return "the demonstration model" if self.choice.is_demonstration else self.choice.name
        if self.agent.function is not None:
            return "a function"
        config = self.agent.llm_config
        return config.model if isinstance(config, LLMConfig) else "its own model"


class View(Protocol):
    """A view of one command's runs. The caller calls `opened` and then `chunk` for each run, and `result` for the last one.
    `opened` receives the session that the user named, even if a sub-agent's run comes first."""

    def opened(self, session_id: str) -> None: ...

    def chunk(self, chunk: StreamChunk) -> None: ...

    def result(self, result: AgentResult[Any], questions: Sequence[Question]) -> None: ...

    def stopping(self) -> None: ...

    def left(self, handle: AgentExecutionHandle[Any], why: str) -> None: ...


def demonstration_notice(choice: ModelChoice) -> str:
    why = f"{choice.missing} is not set" if choice.missing else "you asked for it"
    return (
        f"The demonstration model plays, because {why}: a deterministic program that matches words and quotes what tools "
        "return. It is not a language model, and it costs nothing."
    )


def model_in_words(choice: ModelChoice) -> str:
    """Describe the model in use, with the same wording as `helix dev` and `helix fleet serve`."""
    if choice.missing:
        return f"the demonstration model, because {choice.missing} is not set (--model takes any litellm name)"
    if choice.is_demonstration:
        return DEMONSTRATION_IN_WORDS
    return f"{choice.name}, for all agents" if choice.name else "each agent's own"


class JsonView:
    """Implements `View`."""

    def __init__(self, file: TextIO, heading: Heading) -> None:
        self._file, self._heading, self._opened = file, heading, False

    def opened(self, session_id: str) -> None:
        if not self._opened and self._heading.choice.is_demonstration:
            say(demonstration_notice(self._heading.choice))
        self._opened = True

    def chunk(self, chunk: StreamChunk) -> None:
        write_json(chunk.model_dump(mode="json"), to=self._file)

    def result(self, result: AgentResult[Any], questions: Sequence[Question]) -> None:
        output = result.output.model_dump(mode="json") if isinstance(result.output, BaseModel) else result.output
        self._result(result, {"status": result.status, "output": output, "error": result.error})

    def stopping(self) -> None:
        say("interrupting: the run stops at its next step; Ctrl-C again leaves at once")

    def left(self, handle: AgentExecutionHandle[Any], why: str) -> None:
        self._result(handle, {"status": "interrupted", "output": None, "error": why})

    def _result(self, of: AgentResult[Any] | AgentExecutionHandle[Any], reported: dict[str, Any]) -> None:
        write_json({"type": "result", "session_id": of.session_id, "run_id": of.run_id, **reported}, to=self._file)
