"""A researcher that sends readers to the pages of a small library, and answers from their findings.

Agents that are registered here are deployed, and `helix run NAME` finds them. The files in this folder are deployed too.
"""

import re
from pathlib import Path

from pydantic import BaseModel, Field

from helix import Agent, LLMConfig, ToolContext, create_sub_agent_tool, default_registry, tool

PAGES = {page.stem: page for page in sorted((Path(__file__).parent / "library").glob("*.md"))}


class Notes(BaseModel):
    """The notes that the researcher keeps within a session."""

    searched: list[str] = []


class Found(BaseModel):
    title: str
    text: str


class Finds(BaseModel):
    found: list[Found]


class Task(BaseModel):
    question: str = Field(description="One question for the reader.")


class Reading(BaseModel):
    answer: str = Field(description="Quotations from the pages.")
    pages: list[str] = Field(description="Titles of the pages.")


class Report(BaseModel):
    summary: str = Field(description="The answer, in a few sentences.")
    sources: list[str] = Field(description="Titles of the pages that the answer rests on.")


def stems(text: str) -> set[str]:
    return {word[:5] for word in re.findall(r"[a-z]{4,}", text.lower())}


@tool
def search_library(query: str, ctx: ToolContext[Notes]) -> Finds:
    """Find the pages of the library that fit the query, the best first."""
    ctx.update_state(lambda notes: notes.searched.append(query))
    texts = {title: page.read_text(encoding="utf-8") for title, page in PAGES.items()}
    ranked = sorted(texts, key=lambda title: -len(stems(query) & stems(texts[title])))
    return Finds(found=[Found(title=t, text=texts[t]) for t in ranked[:2] if stems(query) & stems(texts[t])])


reader = Agent(
    name="reader",
    description="Reads the library on one question and quotes what answers it.",
    system_prompt="Search the library for the question, and quote the sentences that answer it.",
    tools=[search_library],
    state_schema=Notes,
    output_schema=Reading,
    llm_config=LLMConfig(model="openai/gpt-4o-mini"),
    max_steps=6,
)

researcher = Agent(
    name="researcher",
    description="Answers questions from the library.",
    system_prompt=(
        "Split the question into parts, and send a reader for each, several at once. "
        "Answer from what they bring back, and name the pages."
    ),
    tools=[search_library, create_sub_agent_tool(reader, Task)],
    state_schema=Notes,
    output_schema=Report,
    llm_config=LLMConfig(model="openai/gpt-4o-mini"),
    max_steps=12,
)

default_registry.register(researcher)
