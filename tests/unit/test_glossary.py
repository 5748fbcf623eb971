"""One word per idea: the glossary is short, and no identifier of the package, `infra` or `functions` has a retired word.

`glossary_ratchet.txt` has the identifiers that are not renamed yet. A line leaves it when its identifier is renamed. No
line is added.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "layers" / "core" / "python" / "helix"
RATCHET = Path(__file__).with_name("glossary_ratchet.txt")
MOST_TERMS = 60

RETIRED = frozenset(
    (
        *(
            "bury",
            "buries",
            "buried",
            "burying",
            "mourn",
            "mourns",
            "mourned",
            "mourning",
            "forsake",
            "forsakes",
            "forsaken",
        ),
        *(
            "grave",
            "graves",
            "heed",
            "heeds",
            "heeded",
            "desk",
            "desks",
            "story",
            "stories",
            "kept",
            "tell",
            "tells",
            "told",
        ),
        *("telling", "untold", "settle", "settles", "settled", "settling", "hooking"),
    )
)
SETTLES = ("money", "budget", "usage", "spending")
"""Modules about money, which may settle."""
RETIRED_MODULES = ("run_hooks", "claiming_calls", "claim_checks", "claiming", "answers", "answering")
ONCE = ("Place", "Answer")
"""Names that only one class may have."""
WIRE = frozenset(
    (
        *(
            "core/chunk_envelope.py",
            "core/context.py",
            "stream/filters.py",
            "ports/model.py",
        ),  # fields of chunks, and what a run reads
        *("fleet/rows.py", "runtime/importing.py"),  # fields of stored rows
        *("core/budget.py", "core/errors.py", "core/routing.py", "fleet/budgets.py", "fleet/deployed.py"),
        "workers/runtime.py",
    )
)
"""Modules with a public `agent_id`: on the wire, in a stored row, or as a parameter with the sources' name."""


def sources() -> Iterator[tuple[str, Path]]:
    """Yield each file with its name below its root."""
    for root in (PACKAGE, ROOT / "infra", ROOT / "functions"):
        for path in sorted(root.rglob("*.py")):
            if "templates" not in path.parts:  # the templates of `helix init` are users' code
                yield path.relative_to(root).as_posix(), path


def defined(tree: ast.AST) -> Iterator[str]:
    """Yield the identifiers that this module defines: functions, classes, parameters, variables and attributes."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.arg(arg=name) | ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield name
            case ast.alias(asname=str(name)) | ast.ExceptHandler(name=str(name)):
                yield name
            case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                yield name


def words(identifier: str) -> set[str]:
    """Return the words of a snake_case or CamelCase identifier."""
    parts = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+", identifier)
    return {part.lower() for part in parts}


def of_money(name: str) -> bool:
    return any(word in name for word in SETTLES)


def retired_in(name: str, tree: ast.AST) -> Iterator[str]:
    """Yield the retired identifiers of one file."""
    settles = {word for word in RETIRED if word.startswith("settl")} if of_money(name) else set()
    for part in Path(name).with_suffix("").parts:
        if words(part) & (RETIRED - settles) or part in RETIRED_MODULES:
            yield f"module {part}"
    for identifier in defined(tree):
        if words(identifier) & (RETIRED - settles):
            yield identifier
        if identifier == "agent_id" and name not in WIRE and not name.startswith("compat/"):
            yield identifier


def retired() -> set[str]:
    found: set[str] = set()
    classes: Counter[str] = Counter()
    modules: Counter[str] = Counter()
    for name, path in sources():
        tree = ast.parse(path.read_text("utf-8"))
        found |= set(retired_in(name, tree))
        classes.update(node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
        modules[path.name] += 1
    found |= {f"class {name} twice" for name in ONCE if classes[name] > 1}
    return found | ({"module tokens twice"} if modules["tokens.py"] > 1 else set())


def test_no_identifier_has_a_retired_word_but_those_of_the_ratchet_which_only_shrinks() -> None:
    found, known = retired(), ratchet()
    assert found - known == set(), "docs/glossary.md says what to write instead"
    assert known - found == set(), f"is renamed: take it out of {RATCHET.name}"


def ratchet() -> set[str]:
    return {line for line in RATCHET.read_text("utf-8").splitlines() if line and not line.startswith("#")}


def terms() -> list[tuple[str, str]]:
    text = (ROOT / "docs" / "glossary.md").read_text("utf-8").partition("## Retired words")[0]
    rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \|$", text, re.MULTILINE)
    return [(term, meaning) for term, meaning in rows if term not in ("Term", "---")]


def test_the_glossary_is_short_and_plain() -> None:
    found = terms()
    assert 40 < len(found) <= MOST_TERMS
    assert len({term for term, _ in found}) == len(found), "a term has one meaning"
    assert [meaning for _, meaning in found if not meaning.endswith(".") or ". " in meaning] == [], "one sentence each"


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("def tell_run(): ...", {"tell_run"}),
        ("class KeptThing: ...", {"KeptThing"}),
        ("def f(*, buried): ...", {"buried"}),
        ("UNTOLD_S = 1", {"UNTOLD_S"}),
        ("for desk in (): ...", {"desk"}),
        ("self.story = 1", {"story"}),
        ("settled = agent_id = 1", {"settled", "agent_id"}),
        ("match x:\n    case [told, *_]: ...", {"told"}),
        ("intelligent = history = skeptic = 1; tell(told)", set()),
    ],
)
def test_a_retired_word_is_found_in_each_kind_of_name(code: str, found: set[str]) -> None:
    assert set(retired_in("fleet/x.py", ast.parse(code))) == found


def test_money_settles_and_the_wire_has_agent_ids() -> None:
    assert set(retired_in("engine/money/reservations.py", ast.parse("def settle(told): ..."))) == {"told"}
    assert set(retired_in("core/chunk_envelope.py", ast.parse("agent_id = 1"))) == set()
    assert set(retired_in("fleet/burying.py", ast.parse(""))) == {"module burying"}
