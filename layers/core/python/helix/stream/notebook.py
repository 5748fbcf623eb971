"""Shows a run in a notebook cell: its text, tools and result, updated live.

    handle = await executor.execute(agent, "hello")
    handle  # as the last line of a cell

Law: text from a model, a tool or a user is shown as plain text, never as markup. The output of a discarded step
disappears.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import aclosing
from html import escape
from typing import Any, Final, TypeVar

from helix.core import chunks as c
from helix.core.chunk_envelope import ChunkBase
from helix.core.errors import InvalidInputError
from helix.core.handles import AgentExecutionHandle, AgentResult
from helix.core.json import dumps
from helix.core.printable import printable

logger = logging.getLogger("helix.stream")
OutputT = TypeVar("OutputT")
BETWEEN_S: Final = 0.1
SHOWN_CHARS: Final = 2_000
Key = tuple[str, int, int, str]
_ASKED = "background:#8882;border-radius:4px;padding:0 4px;font-family:monospace"
_showing: set[asyncio.Task[Any]] = set()


class Panel:
    """The display of a run: a fold of its chunks. `status` is the status of the run."""

    def __init__(self, session_id: str) -> None:
        self._session_id, self.status = session_id, "running"
        self._parts: dict[Key, tuple[str, str]] = {}
        """The kind and text of each part, by agent session, step, attempt and part name."""

    def add(self, chunk: c.StreamChunk) -> None:
        match chunk:
            case c.TextDeltaChunk():
                self._append(chunk, "text", chunk.delta)
            case c.ToolStartChunk():
                self._set(chunk, chunk.tool_call_id, f"{chunk.tool_name}({_short(dumps(chunk.arguments))})")
            case c.ToolEndChunk():
                said = dumps(chunk.result) if chunk.success else chunk.error or "failed"
                self._set(chunk, f"{chunk.tool_call_id} result", f"{chunk.tool_name} → {_short(said)}")
            case c.ToolApprovalRequestChunk():
                asked = f"{chunk.tool_name}({_short(dumps(chunk.input))}) waits for a person"
                self._set(chunk, f"{chunk.tool_call_id} asked", asked)
            case c.ErrorChunk():
                self._set(chunk, f"error {chunk.sequence}", chunk.error)
            case c.StepDiscardedChunk():
                gone = (chunk.agent_id, chunk.step, chunk.attempt)
                self._parts = {key: part for key, part in self._parts.items() if key[:3] != gone}
            case c.StreamResyncChunk():
                self._parts.clear()
            case _:
                pass

    def _append(self, chunk: ChunkBase, kind: str, text: str) -> None:
        key = (chunk.agent_id, chunk.step, chunk.attempt, kind)
        self._parts[key] = (kind, self._parts.get(key, ("", ""))[1] + text)

    def _set(self, chunk: ChunkBase, name: str, text: str) -> None:
        self._parts[(chunk.agent_id, chunk.step, chunk.attempt, name)] = ("tool", text)

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        return {"text/html": self.html(), "text/plain": self.text()}

    def html(self) -> str:
        lines = [
            f'<div style="white-space:pre-wrap{"" if kind == "text" else ";" + _ASKED}">{_shown_text(text)}</div>'
            for kind, text in self._parts.values()
        ]
        end = f"<small>{_shown_text(self.status)} · {_shown_text(self._session_id)}</small>"
        return f'<div style="line-height:1.5">{"".join(lines)}{end}</div>'

    def text(self) -> str:
        return printable(
            "\n".join([*(text for _, text in self._parts.values()), f"{self.status} · {self._session_id}"])
        )


def _shown_text(text: str) -> str:
    return escape(printable(text))


def _short(text: str) -> str:
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
    task.add_done_callback(_shown)


def _shown(task: asyncio.Task[Any]) -> None:
    _showing.discard(task)
    if not task.cancelled() and (error := task.exception()) is not None:
        logger.warning("a run is not shown any more: %s", error)
