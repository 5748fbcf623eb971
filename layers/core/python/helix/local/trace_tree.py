"""A trace for people: what happened below what, how long it took, and what it cost.

    run librarian            1.24 s   $0.0015   completed
    └─ invoke_agent          1.21 s
       ├─ chat gpt-4o        0.80 s   $0.0010   512 + 45 tokens
       ├─ execute_tool find  0.10 s             attempt 2
       └─ chat gpt-4o        0.31 s   $0.0005   603 + 12 tokens

Law: a span whose parent has not come stands at the top: nothing that was told is left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from helix.core import genai


@dataclass(frozen=True, slots=True)
class Received:
    """A span as it came in. Times in Unix seconds."""

    trace_id: str
    span_id: str
    parent_id: str
    name: str
    start: float
    end: float
    attributes: Mapping[str, Any] = field(default_factory=dict)
    events: tuple[str, ...] = ()
    failed: bool = False

    @property
    def seconds(self) -> float:
        return self.end - self.start

    @property
    def dollars(self) -> float | None:
        """What this alone cost: models, and tools that tell what they used; None for what sums up others."""
        if self.attributes.get(genai.OPERATION) in (genai.CHAT, genai.EXECUTE_TOOL):
            found = self.attributes.get(genai.COST)
            return None if found is None else float(found)
        return None


def dollars(spans: Sequence[Received]) -> float:
    return sum(span.dollars or 0 for span in spans)


def root_of(spans: Sequence[Received]) -> Received | None:
    """The run that the trace is of, once its span has come."""
    return next((span for span in spans if not span.parent_id and span.name.startswith("run ")), None)


def render(spans: Sequence[Received]) -> list[str]:
    """One line for each span, in the order of their beginnings."""
    lines = list(_lines(spans))
    width = max((len(head) for head, _ in lines), default=0)
    return [f"{head:<{width}}  {_figures(span, spans)}".rstrip() for head, span in lines]


def _lines(spans: Sequence[Received]) -> Iterator[tuple[str, Received]]:
    known = {span.span_id for span in spans}
    below: dict[str, list[Received]] = {}
    for span in sorted(spans, key=lambda span: (span.start, -span.end)):
        below.setdefault(span.parent_id if span.parent_id in known else "", []).append(span)

    def walk(parent: str, indent: str) -> Iterator[tuple[str, Received]]:
        children = below.get(parent, [])
        for n, span in enumerate(children):
            last = n + 1 == len(children)
            branch, deeper = ("└─ ", "   ") if last else ("├─ ", "│  ")
            yield f"{indent}{branch if parent else ''}{span.name}", span
            yield from walk(span.span_id, indent + deeper if parent else indent)

    return walk("", "")


def _figures(span: Received, spans: Sequence[Received]) -> str:
    cost = dollars(spans) if not span.parent_id else span.dollars
    told = [f"{span.seconds:8.3f} s", f"{f'${cost:.6f}' if cost else '':>11}", *_remarks(span)]
    return "  ".join(told)


def _remarks(span: Received) -> Iterator[str]:
    attributes = span.attributes
    if (status := attributes.get("helix.run.status")) is not None:
        yield f"{status} ({attributes.get('helix.run.mode')})"
    if attributes.get(genai.OPERATION) == genai.CHAT and genai.INPUT_TOKENS in attributes:
        yield f"{attributes[genai.INPUT_TOKENS]} + {attributes.get(genai.OUTPUT_TOKENS, 0)} tokens"
    if attributes.get(genai.RETRY):
        yield f"attempt {attributes.get(genai.ATTEMPT)}"
    if span.events:
        yield ", ".join(span.events)
    if (error := attributes.get(genai.ERROR_TYPE)) is not None:
        yield f"FAILED: {error}" if span.failed else str(error)
