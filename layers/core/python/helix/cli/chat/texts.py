"""Texts on the screen of the chat, among them the Markdown of models.

Law: text from models, tools and users is content, never markup, and goes through `to_printable`. Markdown is cleaned
again after parsing, because the parser decodes entities. HTML is shown as text.
"""

from __future__ import annotations

import re
from urllib.parse import quote

from markdown_it import MarkdownIt
from markdown_it.rules_core import StateCore
from textual.content import Content
from textual.widgets import Markdown

from helix.cli.view import formats
from helix.core.conversation.items import Step
from helix.core.messages import Citation
from helix.core.printable import printable

_IN_ADDRESSES = "%/:?#[]@!$&'()*+,;=~"
"""What stays as it is in the address of a source."""
_COLOURS = {"yellow": "$text-warning", "red": "$text-error", "green": "$text-success", "cyan": "$text-primary"}


def to_printable(text: str) -> str:
    """Return the text without characters that the terminal or Textual would interpret."""
    return printable(text.replace("\u2028", " ").replace("\u2029", " "))


def content(*parts: str | tuple[str, str]) -> Content:
    """Join strings, which may have styles, into one `Content`."""
    pairs = [(part, "") if isinstance(part, str) else part for part in parts]
    return Content.assemble(*(Content.styled(to_printable(text), _themed(style)) for text, style in pairs))


def _themed(style: str) -> str:
    """Replace colours with those of the theme, which are readable on its background."""
    return " ".join(_COLOURS.get(word, word) for word in style.split())


def markdown_parser() -> MarkdownIt:
    parser = MarkdownIt("gfm-like", {"html": False})
    parser.core.ruler.push("shown", _clean)
    return parser


def _clean(state: StateCore) -> None:
    for token in state.tokens:
        for each in (token, *(token.children or ())):
            each.content, each.info = to_printable(each.content), to_printable(each.info)
            each.attrs = {
                name: to_printable(value) if isinstance(value, str) else value for name, value in each.attrs.items()
            }


class ModelText(Markdown):
    """A model's text while it streams. Selecting a link shows its address instead of opening it."""

    def __init__(self, text: str) -> None:
        super().__init__(to_printable(text), parser_factory=markdown_parser, open_links=False)
        self._drawn = text

    async def draw(self, text: str) -> None:
        if text == self._drawn:
            return
        self._drawn = text
        text, before = to_printable(text), self.source
        if before and text.startswith(before):
            await self.append(text[len(before) :])
        else:
            await self.update(text)


def text_of_step(step: Step) -> str:
    """Return the text as Markdown, with its sources once it is complete."""
    cut = [f"*{formats.CUT}*"] if step.cut else []
    done = step.state == "committed"
    sources = "\n".join(f"- {_source(source)}" for source in step.sources) if done else ""
    return "\n\n".join([step.text, *([sources] if sources else []), *cut])


def _source(source: Citation) -> str:
    """Return a source as Markdown. Its title comes from a foreign page, so it is no Markdown itself."""
    title = re.sub(r"([\\`*_{}\[\]<>()#+!|~-])", r"\\\1", " ".join((source.title or "").split()))
    address = quote(source.url or "", safe=_IN_ADDRESSES)
    return " · ".join(part for part in (title, f"<{address}>" if address else "") if part) or "a document"
