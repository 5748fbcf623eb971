"""Fills a JSON Schema from a question and evidence: arguments for a tool, fields for an output.

Law: the result fits the schema in its types, enums, lengths and bounds. Only the demonstration model uses it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from helix.adapters.models.evidence import Evidence, stem, words, words_of

_QUERY = {"query", "q", "search", "keywords", "term", "terms", "topic", "phrase", "pattern"}
_QUESTION = {"question", "request", "prompt", "input"}
_SOURCES = {"source", "sources", "path", "paths", "url", "urls", "file", "files", "citation", "citations", "reference",
            "references", "document", "documents", "link", "links"}  # fmt: skip
_LABELS = {"keyword", "keywords", "tag", "tags", "topics", "label", "labels", "terms"}
_SHORT = {"title", "headline", "subject", "name"}
_TASK = {"message", "task", "text", "content", "body"}
_CLAIM = {"claim", "statement", "note", "finding", "fact"}
_QUOTE = {"quote", "quotation", "evidence", "excerpt", "passage"}
_SHARE = {"confidence", "score", "probability", "certainty", "relevance", "rating"}
_NO = {"unknown", "unclear", "unsupported", "unsure", "no", "none", "not", "false", "low", "other", "insufficient"}
_YES = {"yes", "true", "supported", "confirmed", "high", "found", "answered", "ok"}
_FORMATS = {
    "date": "2000-01-01",
    "date-time": "2000-01-01T00:00:00Z",
    "time": "00:00:00Z",
    "duration": "PT0S",
    "email": "someone@example.com",
    "uri": "https://example.com/",
    "uuid": "00000000-0000-0000-0000-000000000000",
    "ipv4": "127.0.0.1",
    "ipv6": "::1",
    "binary": "",
}
_DEPTH = 6


@dataclass(frozen=True)
class Filler:
    """A filler of JSON Schemas, from one question and its evidence."""

    question: str
    """The user's question."""
    evidence: Evidence
    """The passages that tools have returned."""
    given: Mapping[str, Any]
    """The known values for fields with the same name, such as the path of a search result."""
    final: bool = False
    """Whether an output is filled, including its optional fields. For arguments only the needed fields are filled."""

    def fill(self, schema: Mapping[str, Any]) -> dict[str, Any]:
        filled = self._value("", schema, schema, 0)
        return filled if isinstance(filled, dict) else {}

    def summary(self) -> str:
        """Return the best matching sentences, or a statement that there are none."""
        found = self.evidence.sentences()
        about = " ".join(self.evidence.keywords) or self.question.strip()
        return " ".join(found) if found else f"Nothing that was read says anything about: {about}."

    def _value(self, name: str, schema: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> Any:
        schema = _resolved(schema, root)
        if depth > _DEPTH:
            return None
        if "const" in schema:
            return schema["const"]
        if "enum" in schema:
            return self._choice(schema["enum"])
        options = schema.get("anyOf") or schema.get("oneOf")
        if options:
            usable = [o for o in options if o.get("type") != "null"] or options
            return self._value(name, {**schema, "anyOf": None, "oneOf": None, **usable[0]}, root, depth)
        kind = schema.get("type") or ("object" if "properties" in schema else "string")
        kind = next((k for k in kind if k != "null"), "null") if isinstance(kind, list) else kind
        given = self.given.get(name)
        if kind == "object":
            return self._object(schema, root, depth)
        if kind == "array":
            return self._array(name, schema, root, depth)
        if kind == "string":
            return self._string(name, schema, given if isinstance(given, str) else None)
        if kind in ("integer", "number"):
            return self._number(name, schema, kind, given)
        if kind == "boolean":
            return bool(self.final and self.evidence.sentences(1))
        return None

    def _object(self, schema: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> dict[str, Any]:
        required = schema.get("required", ())
        filled: dict[str, Any] = {}
        for name, field in schema.get("properties", {}).items():
            empty = _resolved(field, root).get("default") in (None, "", [], {})
            if name in required or name in self.given or (self.final and empty and depth < 2):
                filled[name] = self._value(name, field, root, depth + 1)
        return filled

    def _array(self, name: str, schema: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> list[Any]:
        least, most = schema.get("minItems", 0), schema.get("maxItems", 3 if self.final else 1)
        if "prefixItems" in schema:
            return [self._value(name, item, root, depth + 1) for item in schema["prefixItems"]]
        items = _resolved(schema.get("items") or {}, root)
        if items.get("type", "string") == "string" and not {"enum", "const", "format"} & items.keys():
            values: list[Any] = [self._string(name, items, text) for text in self._texts(name)][:most]
        else:
            count = max(least, min(1, most))
            values = [self._value(name, items, root, depth + 1) for _ in range(count)]
        while len(values) < least:
            values.append(self._value(f"{name}_{len(values)}", items, root, depth + 1))
        return values

    def _texts(self, name: str) -> list[str]:
        kinds = set(words_of(name))
        if kinds & _SOURCES:
            return self.evidence.sources
        if kinds & (_LABELS | _QUERY):
            return list(self.evidence.keywords)
        return self.evidence.sentences() if self.final else list(self.evidence.keywords)

    def _string(self, name: str, schema: Mapping[str, Any], text: str | None = None) -> str:
        if schema.get("format") in _FORMATS:
            addresses = [s for s in self.evidence.sources if s.startswith("http")]
            return addresses[0] if schema["format"] == "uri" and addresses else _FORMATS[str(schema["format"])]
        text = text or self._text(name)
        if "pattern" in schema:
            asked = [word.strip(".,;:?!\"'()") for word in self.question.split()]
            tries = [text, *asked, *self.evidence.keywords, *("a", "A", "0", "00", "000")]
            text = next((t for t in tries if re.search(schema["pattern"], t)), text)
        most, least = float(schema.get("maxLength", math.inf)), int(schema.get("minLength", 0))
        if len(text) > most:
            text = text[: int(most)].rsplit(" ", 1)[0] if most > 20 else text[: int(most)]
        return str(text if len(text) >= least else (text or "-").ljust(least, "."))

    def _text(self, name: str) -> str:
        kinds = set(words_of(name))
        numbered = re.findall(r"\b[\w-]*\d[\w-]*\b", self.question)
        if kinds & _SOURCES and self.evidence.sources:
            return self.evidence.sources[0]
        if kinds & _QUERY:
            return " ".join(self.evidence.keywords) or self.question
        if kinds & _QUESTION:
            return self.question
        if kinds & {"id", "number", "code", "order"} and numbered:
            return str(numbered[0])
        if kinds & _SHORT:
            return " ".join(self.evidence.keywords).capitalize() or self.question
        if kinds & (_QUOTE | _CLAIM) and self.evidence.sentences(1):
            return self.evidence.sentences(1)[0]
        if kinds & _TASK and not self.final:
            return f"{self.question}\n\n{self.summary()}" if self.evidence.passages else self.question
        return self.summary() if self.final or self.evidence.passages else " ".join(self.evidence.keywords)

    def _number(self, name: str, schema: Mapping[str, Any], kind: str, given: Any) -> float | int:
        low = schema.get("minimum", schema.get("exclusiveMinimum", -math.inf))
        high = schema.get("maximum", schema.get("exclusiveMaximum", math.inf))
        step = schema.get("multipleOf", 1 if kind == "integer" else 0)
        numbers = [float(n) for n in re.findall(r"\b\d+(?:\.\d+)?\b", self.question)]
        if isinstance(given, (int, float)) and not isinstance(given, bool):
            value = float(given)
        elif set(words_of(name)) & _SHARE:
            bottom, top = max(low, 0), high if high != math.inf else 1
            value = bottom + round(self.evidence.coverage(), 2) * (top - bottom)
        elif set(words_of(name)) & {"count", "total"} and self.final:
            value = float(len(self.evidence.sources))
        elif set(words_of(name)) & {"limit", "max", "top", "k", "size", "lines"}:
            value = 5
        else:
            value = numbers[0] if numbers else 1
        if "exclusiveMinimum" in schema:
            low = low + (step or 1e-6)
        if "exclusiveMaximum" in schema:
            high = high - (step or 1e-6)
        value = min(max(value, low), high)
        if step:
            value = math.ceil(value / step) * step if math.ceil(value / step) * step <= high else high // step * step
        return int(value) if kind == "integer" else value

    def _choice(self, values: list[Any]) -> Any:
        heard = {stem(w) for w in words(f"{self.question} {' '.join(self.evidence.sentences(1))}")}
        if self.final:
            wanted, unwanted = (_YES, _NO) if self.evidence.sentences(1) else (_NO, _YES)
            for value in values:
                named = set(words(str(value)))
                if named & wanted and not named & unwanted:
                    return value
        return next((v for v in values if {stem(w) for w in words(str(v))} & heard), values[0])


def _resolved(schema: Mapping[str, Any], root: Mapping[str, Any]) -> Mapping[str, Any]:
    """Follow `$ref` inside the document, and merge `allOf`."""
    for _ in range(_DEPTH):
        if "$ref" in schema:
            target: Any = root
            for part in str(schema["$ref"]).lstrip("#/").split("/"):
                target = target.get(part, {}) if isinstance(target, Mapping) else {}
            schema = {**target, **{k: v for k, v in schema.items() if k != "$ref"}}
        elif "allOf" in schema:
            merged: dict[str, Any] = {k: v for k, v in schema.items() if k != "allOf"}
            for part in schema["allOf"]:
                merged = {**_resolved(part, root), **merged}
            schema = merged
        else:
            break
    return schema
