"""Shows a run in a notebook cell: its text, tools and result, updated live.

    handle = await executor.execute(agent, "hello")
    handle  # as the last line of a cell

Law: text from a model, a tool or a user is shown as plain text, never as markup. The text of a discarded
attempt disappears, and a line says so.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import aclosing
from html import escape
from typing import Any, Final, TypeVar, assert_never

from helix.core import chunks as c
from helix.core.conversation.changes import Resynced
from helix.core.conversation.conversation import Conversation
from helix.core.conversation.items import Call
from helix.core.conversation.pieces import (
    CallPiece,
    DiscardedPiece,
    MessagePiece,
    NoticePiece,
    StepPiece,
    describe_notice,
    pieces_of,
)
from helix.core.errors import InvalidInputError
from helix.core.files import FilePart
from helix.core.handles import AgentExecutionHandle, AgentResult
from helix.core.json import dumps
from helix.core.printable import printable

logger = logging.getLogger("helix.stream")
OutputT = TypeVar("OutputT")
BETWEEN_S: Final = 0.1
SHOWN_CHARS: Final = 2_000
_ASKED = "background:#8882;border-radius:4px;padding:0 4px;font-family:monospace"
_showing: set[asyncio.Task[Any]] = set()


class Panel:
    """The display of a run: the items of its conversation. `status` is the status of the run."""

    def __init__(self, session_id: str) -> None:
        self._session_id, self.status = session_id, "running"
        self._conversation = Conversation(session_id)

    def add(self, chunk: c.StreamChunk) -> None:
        changes = self._conversation.add(chunk)
        if any(isinstance(change, Resynced) for change in changes):
            self._conversation = Conversation(self._session_id)

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        return {"text/html": self.html(), "text/plain": self.text()}

    def html(self) -> str:
        lines = [
            f'<div style="white-space:pre-wrap{"" if kind == "text" else ";" + _ASKED}">{_printable_html(text)}</div>'
            for kind, text in _lines(self._conversation)
        ]
        end = f"<small>{_printable_html(self.status)} · {_printable_html(self._session_id)}</small>"
        return f'<div style="line-height:1.5">{"".join(lines)}{end}</div>'

    def text(self) -> str:
        return printable(
            "\n".join([*(text for _, text in _lines(self._conversation)), f"{self.status} · {self._session_id}"])
        )


def _lines(conversation: Conversation) -> Iterator[tuple[str, str]]:
    """Yield the kind and the text of each line: `text` from the model, or a `tool` line about anything else."""
    for piece in pieces_of(conversation.items):
        match piece:
            case MessagePiece(user):
                yield "tool", f"› {_shorten(user.text)}"
                yield from (("tool", f"› + {_file(file)}") for file in user.files)
            case CallPiece(call):
                yield from _call_lines(call)
            case StepPiece(_, "reasoning", text):
                yield "tool", f"reasoning · {len(text):,} characters"
            case StepPiece(_, "answer", text):
                yield "text", text
            case StepPiece(_, "sources", text):
                yield from (("tool", f"source {line}") for line in text.splitlines())
            case StepPiece(_, "cut"):
                yield "tool", "stopped here"
            case StepPiece(_, _, text):
                yield "tool", f"output {_shorten(text)}"
            case NoticePiece(notice):
                yield "tool", notice.text if notice.kind == "error" else describe_notice(notice)
            case DiscardedPiece(step):
                yield "tool", f"attempt {step.attempt} of step {step.step} was discarded"
            case _:
                assert_never(piece)


def _call_lines(call: Call) -> Iterator[tuple[str, str]]:
    arguments = _shorten(dumps(call.arguments))
    who = f", changed by {call.edited.by or 'an operator'}" if call.edited is not None else ""
    if call.state == "waiting":
        yield "tool", f"{call.name}({arguments}) waits for a person"
    elif call.attempt > 0:
        yield "tool", f"{call.name}({arguments}){who}"
    if call.child is not None:
        yield from _lines(call.child)
    if call.state in ("done", "failed"):
        said = dumps(call.result) if call.state == "done" else call.error or "failed"
        yield "tool", f"{call.name} → {_shorten(said)}"
        yield from (("tool", f"{call.name} + {_file(file)}") for file in call.files)


def _file(file: FilePart) -> str:
    return f"{file.name or file.url or file.kind} ({file.media_type})"


def _printable_html(text: str) -> str:
    return escape(printable(text))


def _shorten(text: str) -> str:
    return text if len(text) <= SHOWN_CHARS else f"{text[:SHOWN_CHARS]}… ({len(text)} characters)"


async def show(handle: AgentExecutionHandle[OutputT]) -> AgentResult[OutputT]:
    """Show the run in this cell until it ends, and return its result. Raises `InvalidInputError` outside of IPython."""
    try:
        from IPython import get_ipython
        from IPython.display import display
    except ImportError:
        raise InvalidInputError("showing a run needs IPython: pip install 'helix-agents[notebook]'") from None
    if get_ipython() is None:
        raise InvalidInputError("a run can be shown in a notebook only: read handle.stream() here")
    panel = Panel(handle.session_id)
    shown: Any = display(panel, display_id=True)
    loop = asyncio.get_running_loop()
    updated = loop.time()
    async with aclosing(await handle.stream()) as chunks:  # type: ignore[type-var]
        async for chunk in chunks:
            panel.add(chunk)
            if loop.time() - updated >= BETWEEN_S:
                shown.update(panel)
                updated = loop.time()
    result = await handle.result()
    why = result.error or (result.completion_reason if result.status != "completed" else None)
    panel.status = f"{result.status}: {why}" if why else result.status
    shown.update(panel)
    return result


def show_in_cell(handle: AgentExecutionHandle[Any]) -> None:
    """Show a handle that is the last line of a notebook cell. The cell finishes, and the display keeps updating."""
    task = asyncio.get_running_loop().create_task(show(handle), name=f"helix:show {handle.run_id}")
    _showing.add(task)
    task.add_done_callback(_log_failure)


def _log_failure(task: asyncio.Task[Any]) -> None:
    _showing.discard(task)
    if not task.cancelled() and (error := task.exception()) is not None:
        logger.warning("a run is not shown any more: %s", error)
