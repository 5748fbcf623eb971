"""Docstrings as the site's reference shows them: parameters as a list, fields of models as code.

The sources write parameters as sentences, `name: text. other_name: text.`, which are short in an editor.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

import griffe

SENTENCE = r"(?:^|(?<=[.;:)`] ))"
NAMES = re.compile(rf"{SENTENCE}((?:\w+, )*\w+): ")
AFTERWARDS = re.compile(r"(?<=\. )(?=Raises |Gives |Returns )")


class Reference(griffe.Extension):
    def on_function(self, *, func: griffe.Function, **_: Any) -> None:
        if func.docstring is not None:
            func.docstring.value = listed(func.docstring.value, [parameter.name for parameter in func.parameters])

    def on_class(self, *, cls: griffe.Class, **_: Any) -> None:
        fields = [member for member in cls.attributes.values() if _is_field(member)]
        if cls.docstring is None:
            return
        names = {*(parameter.name for parameter in cls.parameters), *(field.name for field in fields)}
        cls.docstring.value = listed(cls.docstring.value, names)
        if fields and "__init__" not in cls.all_members and "dataclass" not in cls.labels:
            lines = [f"{field.name}: {field.annotation}" for field in fields]
            cls.docstring.value += "\n\n```python\n" + "\n".join(lines) + "\n```\n"


def _is_field(member: griffe.Attribute) -> bool:
    return member.annotation is not None and "ClassVar" not in str(member.annotation) and member.name[0] != "_"


def listed(text: str, names: Collection[str]) -> str:
    """The text with each `name: ...` of those names as an item of a list."""
    return "\n\n".join(_paragraph(part, names) for part in re.split(r"\n\s*\n", text))


def _paragraph(text: str, names: Collection[str]) -> str:
    line = " ".join(text.split())
    starts = [match for match in NAMES.finditer(line) if set(match[1].split(", ")) <= set(names)]
    if not starts or text.lstrip().startswith(("- ", "```", "|")):
        return text
    before, parts, after = line[: starts[0].start()].strip(), [], ""
    for match, ends in zip(starts, [*(m.start() for m in starts[1:]), len(line)], strict=True):
        item, *rest = AFTERWARDS.split(line[match.end() : ends].strip(), maxsplit=1)
        labels = ", ".join(f"`{name}`" for name in match[1].split(", "))
        parts.append(f"- {labels}: {item.strip()}")
        after = " ".join([after, *rest]).strip()
    return "\n\n".join(filter(None, [before, "\n".join(parts), after]))
