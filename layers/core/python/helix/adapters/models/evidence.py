"""The facts that a program can find in text without understanding it: keywords, matching sentences and their sources.

Law: pure and deterministic. Only the demonstration model uses it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from helix.core.json import loads

SOURCE_KEYS = ("path", "file", "filename", "url", "uri", "source", "document", "id", "key", "title", "name")
_SUFFIXES = ("ations", "ation", "ings", "ing", "ies", "ied", "ed", "es", "s", "e", "y")
_REFERENCE = re.compile(r"https?://[^\s\"'<>)\]]+|\b[\w-]+(?:/[\w.-]+)*\.(?:md|txt|rst|py|ts|js|json|yaml|toml|html)\b")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z\"'(`*_])")
_BREAK = re.compile(r"\n\s*\n|\n(?=\s*(?:[-*+>|#]|\d+[.)]\s))")
_CODE = re.compile(r"[{}=;]|\w\(|->|\"\"\"|\b(?:def|class|import) \w+")
_MARKUP = re.compile(r"^[\s>#*+|-]+|^\d+[.)]\s+|[*`|]{1,3}|(?<!\w)_+|_+(?!\w)|\[(?=[^\]]*\]\()|\]\([^)]*\)")


def words(text: str) -> list[str]:
    return re.findall(r"[^\W_]+", text.lower())


def words_of(name: str) -> list[str]:
    """Return the words of a name in snake case or camel case."""
    return words(re.sub(r"([a-z])([A-Z])", r"\1 \2", name).replace("_", " "))


STOP_WORDS = frozenset(
    words(
        """a about after all also am an and any are as at be because been before between both but by can could did do
        does each explain find for from get give had has have how i if in into is it its just know like long many
        may me might more most much must my no not of on one only or our out over please say says shall she should
        show so some such take tell than that the their them then there these they this those to too under up us use
        used using very via want was we were what when where which while who whom whose why will with would you your
        yours happen happens happened"""
    )
)


def stem(word: str) -> str:
    """Return a crude stem, enough to match `checkpoints` with `checkpoint`, and `resuming` with `resume`."""
    for suffix in _SUFFIXES:
        if word.endswith(suffix) and not word.endswith("ss") and len(word) - len(suffix) >= 3:
            return word[: -len(suffix)]
    return word


def keywords(text: str, limit: int = 6) -> list[str]:
    """Return the significant words of a question, in its order. If there are more than `limit`, the longest ones are
    kept."""
    found = [w for w in dict.fromkeys(words(text)) if w not in STOP_WORDS and (len(w) > 2 or w.isdigit())]
    retained = set(sorted(found, key=len, reverse=True)[:limit])
    return [w for w in found if w in retained]


@dataclass(frozen=True, slots=True)
class Passage:
    """A piece of text from a tool result."""

    text: str
    """The text."""
    source: str | None
    """The path, address or name of the text's source. None: unknown."""
    fields: Mapping[str, Any]
    """The plain values next to the text."""


@dataclass(frozen=True)
class Evidence:
    """Passages of tool results, searched with the keywords of one question."""

    keywords: Sequence[str]
    """The keywords of the question."""
    passages: list[Passage] = field(default_factory=list)
    """The passages so far. `add` extends them."""

    def add(self, content: str, arguments: Mapping[str, Any]) -> None:
        """Add the text of a tool result. The `arguments` of the call may name its source."""
        try:
            value = loads(content)
        except ValueError:
            value = content
        self.passages.extend(_passages(value, {}, _source(arguments)))

    @property
    def sources(self) -> list[str]:
        """The sources of matching passages, best first."""
        best: dict[str, int] = {}
        for passage in self.passages:
            if passage.source is not None and (score := self.score(passage.text)):
                best[passage.source] = max(score, best.get(passage.source, 0))
        return sorted(best, key=lambda source: -best[source])

    def candidates(self) -> list[Mapping[str, Any]]:
        """Return the fields of passages that name a source, one per source, best first. These sources are worth reading
        in full."""
        chosen: dict[str, tuple[int, Mapping[str, Any]]] = {}
        for passage in self.passages:
            score = self.score(passage.text)
            if passage.source is not None and score > chosen.get(passage.source, (0, {}))[0]:
                chosen[passage.source] = (score, passage.fields)
        return [fields for _, fields in sorted(chosen.values(), key=lambda pair: -pair[0])]

    def sentences(self, limit: int = 3) -> list[str]:
        """Return the sentences with the most keywords, each once, best first. Rare keywords have more weight."""
        stems = {s: {stem(w) for w in words(s)} for p in self.passages for s in sentences_of(p.text)}
        spread = {k: sum(stem(k) in found for found in stems.values()) for k in self.keywords}
        weights = {k: 1 + math.log(len(stems) / count) for k, count in spread.items() if count}
        scored = {s: sum(weights[k] for k in weights if stem(k) in found) for s, found in stems.items()}
        return sorted((s for s, score in scored.items() if score), key=lambda s: -scored[s])[:limit]

    def coverage(self) -> float:
        """Return the share of the keywords that the best sentences mention, 0 to 1."""
        if not self.keywords:
            return 0.0
        found = {stem(w) for w in words(" ".join(self.sentences()))}
        return sum(stem(k) in found for k in self.keywords) / len(self.keywords)

    def score(self, text: str) -> int:
        found = {stem(w) for w in words(text)}
        return sum(stem(k) in found for k in self.keywords)


def sentences_of(text: str) -> Iterator[str]:
    """Yield the sentences of prose or Markdown, without markup. Fragments, code and over-long lines are skipped."""
    for block in _BREAK.split(re.sub(r"```.*?(```|\Z)", "\n\n", text, flags=re.DOTALL)):
        if block.count("|") > 2:
            continue
        for sentence in _SENTENCE_END.split(" ".join(_MARKUP.sub("", line.strip()) for line in block.splitlines())):
            clean = " ".join(sentence.split())
            if 30 <= len(clean) <= 320 and len(words(clean)) >= 5 and not _CODE.search(clean):
                yield clean


def prose_of(message: str) -> str:
    """Return a user message as text. For a JSON object (a structured task for a sub-agent), return its text values."""
    try:
        value = loads(message)
    except ValueError:
        return message
    return "\n".join(v for v in value.values() if isinstance(v, str)) if isinstance(value, dict) else message


def references(text: str) -> list[str]:
    """Return the file paths and addresses in a text, each once."""
    return list(dict.fromkeys(_REFERENCE.findall(text)))


def _passages(value: Any, around: Mapping[str, Any], source: str | None) -> Iterator[Passage]:
    if isinstance(value, str):
        named = references(value) if source is None else []
        for reference in named[:5]:
            near = "\n".join(line for line in value.splitlines() if reference in line)
            yield Passage(near, reference, {"path": reference, "url": reference, **around})
        yield Passage(value, source, around)
    elif isinstance(value, Mapping):
        plain = {k: v for k, v in value.items() if isinstance(v, (str, int, float)) and not isinstance(v, bool)}
        inner = _source(plain) or source
        texts = [v for k, v in plain.items() if isinstance(v, str) and v != inner]
        if texts:
            yield Passage("\n\n".join(texts), inner, plain)
        for nested in value.values():
            if isinstance(nested, (Mapping, list)):
                yield from _passages(nested, plain, inner)
    elif isinstance(value, Iterable):
        for item in value:
            yield from _passages(item, around, source)


def _source(fields: Mapping[str, Any]) -> str | None:
    return next((str(fields[key]) for key in SOURCE_KEYS if isinstance(fields.get(key), str) and fields[key]), None)
