"""The pages of the site (mkdocs.yml) that are not in this folder, and links and code blocks as the site needs them.

The documents are written for the repository: they link to each other from where they are, and say behind a code block's
language how the tests run it.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
FENCE = re.compile(r"^(\s*```)(\w+)((?: [^\n`]*)?)$", re.MULTILINE)
LINK = re.compile(r"(\[(?:[^\[\]]|\[[^\]]*\])*\])\(([^)\s]+)\)")
PAGES = {
    "README.md": "index.md",
    "ARCHITECTURE.md": "architecture.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "docs/adr": "adr/index.md",
    **{f"bench/{path.relative_to(ROOT / 'bench')}": f"bench/{path.name}" for path in (ROOT / "bench").glob("**/*.md")},
}
"""Place in the repository: page of the site. What is in docs/ is a page by itself."""
SOURCES = {page: place for place, page in PAGES.items()}


def on_files(files: Files, config: Any) -> Files:
    for place, page in PAGES.items():
        path = ROOT / place
        files.append(File.generated(config, page, content=path.read_text("utf-8") if path.is_file() else _list(path)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    place = SOURCES.get(page.file.src_uri, f"docs/{page.file.src_uri}")
    parts = re.split(r"(^```.*?^```$)", FENCE.sub(_fence, markdown), flags=re.MULTILINE | re.DOTALL)
    here = place if (ROOT / place).is_dir() else posixpath.dirname(place)
    texts = [LINK.sub(lambda link: _link(link, here, page.file.src_uri), text) for text in parts[::2]]
    return "".join(text + block for text, block in zip(texts, [*parts[1::2], ""], strict=True))


def _fence(fence: re.Match[str]) -> str:
    named = re.search(r"file=(\S+)", fence[3])
    return f"{fence[1]}{fence[2]}" + (f' title="{named[1]}"' if named else "")


def _link(link: re.Match[str], here: str, page: str) -> str:
    """Links to files that are no pages become their text."""
    target, hash_, anchor = link[2].partition("#")
    if ":" in target or not target:
        return link[0]
    place = posixpath.normpath(posixpath.join(here, target))
    if place not in PAGES and not re.fullmatch(r"docs/.*\.(md|svg|png)", place):
        return link[1][1:-1]
    found = PAGES.get(place) or place.removeprefix("docs/")
    return f"{link[1]}({posixpath.relpath(found, posixpath.dirname(page) or '.')}{hash_}{anchor})"


def _list(folder: Path) -> str:
    pages = sorted(folder.glob("*.md"))
    lines = [f"- [{path.read_text('utf-8').splitlines()[0].lstrip('# ')}]({path.name})" for path in pages]
    return "# Decisions\n\n" + "\n".join(lines) + "\n"
