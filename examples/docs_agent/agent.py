"""A librarian that answers questions about this project from the project's own documents.

helix run examples/docs_agent/agent.py:librarian "What happens to a run whose process dies?"
"""

import math
import re
from collections import Counter
from pathlib import Path

from pydantic import BaseModel, Field

import helix
from helix import Agent, LLMConfig, ToolContext, create_sub_agent_tool, tool

DOCUMENTS = ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs/**/*.md")


class Notes(BaseModel):
    """The agent's own state. Every field has a default, and every change goes to the stream and the checkpoint."""

    looked_up: list[str] = []
    read: list[str] = []


class Hit(BaseModel):
    path: str
    line: int
    snippet: str


class Hits(BaseModel):
    hits: list[Hit]


class Page(BaseModel):
    path: str
    start_line: int
    text: str


class Claim(BaseModel):
    claim: str = Field(description="One statement to check against the documents.")


class Verdict(BaseModel):
    supported: bool
    evidence: str = Field(description="The sentence that decides it, quoted.")


class Answer(BaseModel):
    summary: str = Field(description="The answer, in a few sentences.")
    sources: list[str] = Field(description="Paths of the documents the answer rests on.")
    confidence: float = Field(ge=0, le=1)


def library() -> tuple[Path, list[Path]]:
    """Return the project that contains this file, and its documents. Without a project, return the `helix` package and its
    modules."""
    for root in Path(__file__).resolve().parents:
        if (root / "README.md").is_file() and (root / "pyproject.toml").is_file():
            found = {path for pattern in DOCUMENTS for path in root.glob(pattern) if path.is_file()}
            return root, sorted(path for path in found if path.resolve() == path)
    package = Path(helix.__file__).resolve().parent
    return package.parent, sorted(package.rglob("*.py"))


def terms(text: str) -> list[str]:
    """Return the words in lower case, without a plural s."""
    return [word.rstrip("s") for word in re.findall(r"\w{3,}", text.lower())]


@tool
def search_documents(query: str, ctx: ToolContext[Notes], limit: int = 5) -> Hits:
    """Find the passages of the project's documents that fit the query best. Rare words weigh more than common ones."""
    ctx.update_state(lambda notes: notes.looked_up.append(query))
    root, paths = library()
    passages: list[tuple[Hit, Counter[str]]] = []
    for path in paths:
        line = 1
        for block in re.split(r"(\n\s*\n)", path.read_text(encoding="utf-8")):
            if block.strip():
                hit = Hit(path=path.relative_to(root).as_posix(), line=line, snippet=block.strip()[:500])
                passages.append((hit, Counter(terms(block))))
            line += block.count("\n")
    spread = Counter(term for _, found in passages for term in found)
    wanted = {term: math.log(1 + len(passages) / spread[term]) for term in terms(query) if spread[term]}

    def score(found: Counter[str]) -> float:
        length = 1 + math.log(1 + found.total() / 40)
        return sum(weight * (1 + math.log(found[term])) for term, weight in wanted.items() if found[term]) / length

    ranked = sorted(((score(found), hit) for hit, found in passages), key=lambda pair: -pair[0])
    return Hits(hits=[hit for points, hit in ranked[: max(1, min(limit, 20))] if points > 0])


@tool
def read_document(path: str, ctx: ToolContext[Notes], start_line: int = 1, lines: int = 80) -> Page:
    """Read part of a document that search_documents has found."""
    root, paths = library()
    document = (root / path).resolve()
    if document not in paths:
        raise ValueError(f"no document {path!r} here: use a path that search_documents returned")
    ctx.update_state(lambda notes: notes.read.append(path))
    start = max(1, start_line)
    text = document.read_text(encoding="utf-8").splitlines()[start - 1 : start - 1 + max(1, min(lines, 400))]
    return Page(path=path, start_line=start, text="\n".join(text))


fact_checker = Agent(
    name="fact_checker",
    description="Checks one claim against the project's documents and quotes what decides it.",
    system_prompt="Check the claim against the documents. Search before you judge; quote the deciding sentence.",
    tools=[search_documents],
    state_schema=Notes,
    output_schema=Verdict,
    llm_config=LLMConfig(model="openai/gpt-4o-mini"),
    max_steps=6,
)

librarian = Agent(
    name="librarian",
    description="Answers questions about Helix from its documents.",
    system_prompt=lambda notes: (
        "Answer the question from the project's documents only. Search, read the best passages, and have the fact "
        f"checker check your answer before you give it. Already looked up: {notes.looked_up or 'nothing'}."
    ),
    tools=[search_documents, read_document, create_sub_agent_tool(fact_checker, Claim)],
    state_schema=Notes,
    output_schema=Answer,
    llm_config=LLMConfig(model="openai/gpt-4o-mini"),
    max_steps=12,
)
