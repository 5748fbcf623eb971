"""Reads the descriptions of parameters from a function's docstring: Google, NumPy and Sphinx style.

Law: pure. Only the sections about parameters are taken out. The rest of the docstring stays as it is written. A section
that cannot be parsed stays too.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any, NamedTuple

_SECTIONS = {
    "GOOGLE": re.compile(r"^(?:Args|Arguments|Parameters|Params):[ \t]*\n(?:[ \t]+\S.*(?:\n|\Z)|[ \t]*\n)+", re.M),
    "NUMPYDOC": re.compile(
        r"^(?:Other )?Parameters[ \t]*\n-{3,}[ \t]*(?:\n|\Z)"
        r"(?:(?!\S.*\n[-=]{3,}[ \t]*$).*(?:\n|\Z))*?"
        r"(?=\S.*\n[-=]{3,}[ \t]*$|\Z)",  # the next section, or the end
        re.M,
    ),
    "REST": re.compile(
        r"^:(?:param|parameter|arg|argument|type)[ \t][^:\n]+:.*(?:\n|\Z)(?:[ \t]+\S.*(?:\n|\Z))*", re.M
    ),
}
"""The sections about parameters, by the name of their style in `docstring_parser.DocstringStyle`."""
_BLANKS = re.compile(r"\n{3,}")


class Documented(NamedTuple):
    """The docstring of a function, in two parts."""

    description: str
    """The docstring without the descriptions of parameters. If it has nothing else, the whole docstring. Empty if the
    function has no docstring."""
    parameters: dict[str, str]
    """The description of each parameter that the docstring describes."""


def read_docstring(function: Callable[..., Any]) -> Documented:
    """Return the description of the function and of its parameters. An object without a name, such as a partial
    function, has the docstring of its class, which describes nothing."""
    text = (inspect.getdoc(function) or "") if hasattr(function, "__name__") else ""
    rest, parameters = text, dict[str, str]()
    for style, pattern in _SECTIONS.items():
        if sections := pattern.findall(rest):
            found = _parse(style, "".join(sections))
            if found:
                parameters |= found
                rest = pattern.sub("", rest)
    return Documented((_BLANKS.sub("\n\n", rest).strip() or text) if parameters else text, parameters)


def _parse(style: str, sections: str) -> dict[str, str]:
    """Return the description of each parameter in the sections. Empty if they are not in the form of the style."""
    import docstring_parser  # when a docstring has such a section: most processes then save its 10 ms

    try:
        # The summary keeps the parser from removing the indentation of the items.
        parsed = docstring_parser.parse(f"Summary.\n\n{sections}", style=docstring_parser.DocstringStyle[style])
    except docstring_parser.ParseError:
        return {}
    described = {
        name.strip().lstrip("*"): (item.description or "").strip()
        for item in parsed.params
        for name in item.arg_name.split(",")
    }
    return {name: text for name, text in described.items() if text}
