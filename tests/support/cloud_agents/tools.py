"""Tools of the e2e tests: fast and slow, with large and small results, correct and failing."""

from __future__ import annotations

import asyncio
import os
import signal
import struct
import zlib
from hashlib import sha256
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from helix.core.context import ToolContext
from helix.core.errors import FatalToolError
from helix.core.files import Image
from helix.core.questions import Question
from helix.core.tools import define_tool, tool
from helix.core.usage import Usage

from .crashes import started
from .planned import last, pass_gate

TOOL_S = 3.0
"""The timeout of one execution."""


def noise(size: int) -> str:
    """Return text that compresses badly, and is always the same."""
    return b"".join(sha256(b"%d" % n).digest() for n in range(size // 64 + 1)).hex()[:size].ljust(size, "-")


def begin(ctx: ToolContext[Any]) -> None:
    started(ctx.session_id, f"call {ctx.tool_call_id}")


class Notes(BaseModel):
    seen: list[str] = []
    total: int = 0
    notes: dict[str, str] = {}


class Answer(BaseModel):
    summary: str
    sources: list[str] = []


class Form(BaseModel):
    question: str


@tool(timeout_s=TOOL_S)
async def look(topic: str, ctx: ToolContext[Notes]) -> str:
    """Look a topic up."""
    begin(ctx)
    ctx.emit(f"looking for {topic}", {"topic": topic})
    ctx.update_state(lambda notes: notes.seen.append(topic))
    ctx.record_usage(Usage(prompt_tokens=1, cost_micros=1))
    return f"{topic}: found"


@tool(timeout_s=TOOL_S)
def add(amount: int, ctx: ToolContext[Notes]) -> int:
    """Add to the total; a function of the old kind, run in a thread."""
    begin(ctx)

    def change(notes: Notes) -> None:
        notes.total += amount

    return ctx.update_state(change).total


@tool(timeout_s=TOOL_S)
async def note(key: str, text: str, ctx: ToolContext[Notes]) -> dict[str, Any]:
    """Write something down."""
    ctx.update_state(lambda notes: notes.notes.update({key: text}))
    return {"key": key, "length": len(text)}


@tool(inline=True, timeout_s=TOOL_S)
async def count(amount: int, ctx: ToolContext[Notes]) -> int:
    """Add to the total, beside the model call."""
    begin(ctx)

    def change(notes: Notes) -> None:
        notes.total += amount

    return ctx.update_state(change).total


@tool(require_approval=True, timeout_s=TOOL_S)
async def gated(topic: str, ctx: ToolContext[Notes]) -> dict[str, Any]:
    """Do what needs a person's word."""
    begin(ctx)
    ctx.update_state(lambda notes: notes.seen.append(f"gated {topic}"))
    return {"topic": topic, "confirmed": ctx.confirmation}


form = define_tool(name="form", description="Ask the client.", input_schema=Form, execute="client")


@tool(timeout_s=TOOL_S)
async def boom() -> str:
    """Raise."""
    raise ValueError("as planned")


@tool(timeout_s=TOOL_S)
async def fatal() -> str:
    """End the run."""
    raise FatalToolError("no further")


@tool(timeout_s=60)
async def wait(gate: str, ctx: ToolContext[Notes]) -> str:
    """Wait until the gate is open."""
    ctx.emit("waiting")
    await pass_gate(gate)
    return "it opened"


@tool(timeout_s=300)
async def linger(seconds: float, mark: str, deaths: int = 0) -> str:
    """Take so many seconds. Each execution adds a line to the file `mark`; the first `deaths` of them end in mid-work."""
    await last(seconds, mark, deaths)
    return f"after {seconds:g} s"


@tool(timeout_s=TOOL_S)
async def big(size: int) -> str:
    """A long result."""
    return noise(size)


@tool(timeout_s=TOOL_S)
async def grow(size: int, ctx: ToolContext[Notes]) -> str:
    """Make the state larger."""
    ctx.update_state(lambda notes: notes.notes.update({f"grown {len(notes.notes)}": noise(size)}))
    return "grown"


@tool(timeout_s=TOOL_S)
async def shout(size: int, ctx: ToolContext[Notes]) -> str:
    """Put a large chunk on the stream."""
    ctx.emit("shouted", {"text": noise(size)})
    return "shouted"


def portrait(of: str) -> bytes:
    """Return a PNG of one pixel, with a note that distinguishes it from others."""
    parts = [(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0)), (b"tEXt", b"of\x00" + of.encode())]
    parts += [(b"IDAT", zlib.compress(b"\x00" * 4)), (b"IEND", b"")]
    body = [struct.pack(">I", len(d)) + kind + d + struct.pack(">I", zlib.crc32(kind + d)) for kind, d in parts]
    return b"\x89PNG\r\n\x1a\n" + b"".join(body)


@tool(timeout_s=TOOL_S)
async def draw(of: str) -> Any:
    """Return a picture."""
    return ["There:", Image(portrait(of), name="portrait.png")]


def _die_once(mark: str) -> None:
    """Kill the first process that comes here, as the platform would."""
    try:
        Path(mark).touch(exist_ok=False)
    except FileExistsError:
        return
    os.kill(os.getpid(), signal.SIGKILL)


@tool(on_unknown="retry", timeout_s=1)
async def again(mark: str, ctx: ToolContext[Notes]) -> str:
    """Die at the first try; may be tried again."""
    ctx.emit("trying")
    _die_once(mark)
    return "done at last"


@tool(on_unknown="skip", timeout_s=1)
async def once(mark: str) -> str:
    """Die at the first try; must not be tried again."""
    _die_once(mark)
    return "done twice"


@tool(on_unknown="ask", timeout_s=1)
async def care(mark: str) -> str:
    """Die at the first try; a person is asked what became of it."""
    _die_once(mark)
    return "done by your leave"


@tool(timeout_s=TOOL_S)
async def survey(ctx: ToolContext[Notes]) -> str:
    """Ask twice, and note the answers."""
    begin(ctx)
    colour = await ctx.ask(Question("Which colour?", choices=["red", "blue"]))
    size, why = await ctx.ask(Question("Which size?", schema=int), Question("Why?"))
    ctx.update_state(lambda notes: notes.seen.append(f"{size} {colour}"))
    return f"{size} {colour}, because {why}"


@tool(timeout_s=TOOL_S, require_approval=True, answer_timeout_s=1)
async def hasty(topic: str, ctx: ToolContext[Notes]) -> str:
    """Do what a person must allow soon."""
    begin(ctx)
    return f"{topic}: allowed"


@tool(timeout_s=TOOL_S, require_approval=True, remind_s=0.5)
async def patient(topic: str, ctx: ToolContext[Notes]) -> str:
    """Do what a person must allow at some time."""
    begin(ctx)
    return f"{topic}: allowed"


@tool(timeout_s=TOOL_S, later=True)
async def ship(place: str, ctx: ToolContext[Notes]) -> None:
    """Ship. Another system finds the token in the file `place`."""
    begin(ctx)
    ctx.update_state(lambda notes: notes.seen.append("shipped"))
    token = await ctx.later(heartbeat_s=600)
    await asyncio.to_thread(Path(place).write_text, token, "utf-8")


ALL = [
    look,
    add,
    note,
    count,
    survey,
    hasty,
    patient,
    ship,
    gated,
    form,
    boom,
    fatal,
    wait,
    linger,
    big,
    grow,
    shout,
    draw,
    again,
    once,
    care,
]
