"""What a command shows of a run: the protocol of the two views, and the one for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TextIO

from pydantic import BaseModel

from helix.cli.refusal import one_line
from helix.core.agents import AnyAgent
from helix.core.chunks import StreamChunk
from helix.core.config import LLMConfig
from helix.core.json import JsonObject
from helix.runtime.handle import AgentExecutionHandle, AgentResult
from helix.runtime.models import ModelChoice


@dataclass(frozen=True, slots=True)
class Question:
    """A call that waits for a person, wherever in the tree of sub-agents it is. `kind` as in `core.rows.Pending`."""

    call_id: str
    tool_name: str
    kind: str
    arguments: JsonObject
    agent_type: str


@dataclass(frozen=True, slots=True)
class Heading:
    """What is said before the first run, and not at all where the command is refused."""

    agent: AnyAgent
    choice: ModelChoice
    db: str
    message: str | None = None
    brief: bool = False
    """One command of many (a chat): how to go on is not said after each."""

    @property
    def model(self) -> str:
        """What plays, in words."""
        if self.choice.name is not None:
            return "the demonstration model" if self.choice.is_demonstration else self.choice.name
        if self.agent.function is not None:
            return "a function"
        config = self.agent.llm_config
        return config.model if isinstance(config, LLMConfig) else "its own model"


class View(Protocol):
    """Called in order: `opened` and `chunk` of each run, `result` of the last one. `opened` is told the session that the
    user named, also where a sub-agent's run comes first."""

    def opened(self, session_id: str) -> None: ...

    def chunk(self, chunk: StreamChunk) -> None: ...

    def result(self, result: AgentResult[Any], questions: Sequence[Question]) -> None: ...

    def stopping(self) -> None: ...

    def left(self, handle: AgentExecutionHandle[Any], why: str) -> None: ...


def say(message: str) -> None:
    """To the user, beside the output: one line on standard error."""
    print(f"helix: {one_line(message)}", file=sys.stderr, flush=True)


def demonstration_notice(choice: ModelChoice) -> str:
    why = f"{choice.missing} is not set" if choice.missing else "you asked for it"
    return (
        f"The demonstration model plays, because {why}: a deterministic program that matches words and quotes what tools "
        "return. It is no language model, and it costs nothing."
    )


class JsonView:
    """Each chunk is one line of JSON, and so is the result; nothing else is written to `file`."""

    def __init__(self, file: TextIO, heading: Heading) -> None:
        self._file, self._heading, self._opened = file, heading, False

    def opened(self, session_id: str) -> None:
        if not self._opened and self._heading.choice.is_demonstration:
            say(demonstration_notice(self._heading.choice))
        self._opened = True

    def chunk(self, chunk: StreamChunk) -> None:
        self._write(chunk.model_dump(mode="json"))

    def result(self, result: AgentResult[Any], questions: Sequence[Question]) -> None:
        output = result.output.model_dump(mode="json") if isinstance(result.output, BaseModel) else result.output
        self._write_result(result.session_id, result.run_id, result.status, output, result.error)

    def stopping(self) -> None:
        say("interrupting: the run stops at its next point; once more leaves at once")

    def left(self, handle: AgentExecutionHandle[Any], why: str) -> None:
        self._write_result(handle.session_id, handle.run_id, "interrupted", None, why)

    def _write_result(self, session_id: str, run_id: str, status: str, output: object, error: str | None) -> None:
        line = {"type": "result", "session_id": session_id, "run_id": run_id}
        self._write({**line, "status": status, "output": output, "error": error})

    def _write(self, value: object) -> None:
        self._file.write(json.dumps(value, ensure_ascii=False) + "\n")
        self._file.flush()
