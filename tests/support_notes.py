"""Helpers that tests of single runs share: an agent's notes, a tool that takes them, and the requested output."""

from __future__ import annotations

from pydantic import BaseModel, Field

from helix import ToolContext, tool


class Notes(BaseModel):
    items: list[str] = []
    last: str = ""
    counts: dict[str, int] = {}


class Answer(BaseModel):
    summary: str
    score: int = Field(ge=0, le=10)


@tool
def note(text: str, ctx: ToolContext[Notes]) -> str:
    """Note something."""

    def change(state: Notes) -> None:
        state.items.append(text)
        state.last = text
        state.counts[text] = len(text)

    ctx.update_state(change)
    return f"noted {text}"


GOOD = {"summary": "fine", "score": 7}
