"""`helix compare`: two runs, or two whole sessions, side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Final

import typer
from rich.text import Text

from helix.cli.options import Json, SessionName
from helix.cli.output import console, write_json
from helix.cli.view import formats
from helix.cli.where import Where, with_client
from helix.core.alignment import TextPiece
from helix.core.comparison import ComparedCall, ComparedSide, ComparedStep, Comparison, StateDifference, StepPair
from helix.core.json import JsonObject, JsonValue
from helix.services.claim_input import check_session_id

Line = tuple[str | tuple[str, str], ...]
TEXT_CHARS: Final = 100
_STYLES: Final = {"same": "", "removed": "red strike", "added": "green"}
_MARKS: Final = {"removed": ("[-", "-]"), "added": ("{+", "+}"), "same": ("", "")}


def compare(
    session: SessionName,
    other: Annotated[str, typer.Argument(metavar="OTHER", help="Id of the other session, or the same one")],
    where: Where,
    run: Annotated[str | None, typer.Option("--run", help="A run of SESSION [default: the whole session]")] = None,
    other_run: Annotated[
        str | None, typer.Option("--other-run", help="A run of OTHER [default: the whole session]")
    ] = None,
    json: Json = False,
) -> None:
    check_session_id(other)
    asked: JsonObject = {"session_id": session, "run_id": run, "other_session_id": other, "other_run_id": other_run}
    found = Comparison.model_validate(with_client(where, session, lambda client: client.ask("compare", asked)))
    if json:
        write_json(found.model_dump(mode="json"))
        return
    columns = ("", found.left.session_id, found.right.session_id)
    formats.print_table(columns, [*_facts(found.left, found.right)])
    out = console(soft_wrap=True)
    sections = {
        "input": [*_text(found.input)],
        "answer": [*_text(found.answer)],
        "steps": [line for pair in found.steps for line in _pair(pair)],
        "state": [*_state(found.state, more=found.more_state)],
    }
    for title, lines in sections.items():
        out.print(Text(f"\n{title}", "bold"))
        for line in lines:
            out.print(Text.assemble("  ", *line))


def _facts(left: ComparedSide, right: ComparedSide) -> Iterator[tuple[str, str, str]]:
    """Yield the rows of the table of facts."""
    facts: dict[str, Callable[[ComparedSide], str]] = {
        "run": lambda side: side.run_id or "all",
        "agent": lambda side: side.agent,
        "status": lambda side: side.status,
        "models": lambda side: ", ".join(side.models) or "unknown",
        "steps": lambda side: f"{side.steps:,}",
        "time": lambda side: f"{side.seconds:,.1f} s",
        "tokens": lambda side: formats.tokens(side.usage),
        "cost": lambda side: formats.cost(side.usage),
    }
    for name, words in facts.items():
        yield name, words(left), words(right)


def _text(pieces: Sequence[TextPiece]) -> Iterator[Line]:
    """Yield the lines of a text. What differs is marked, also without colours."""
    if all(piece.kind == "same" for piece in pieces):
        yield (("the same: " if pieces else "both are empty", "dim"), *(piece.text for piece in pieces))
        return
    parts = [(f"{_MARKS[p.kind][0]}{p.text}{_MARKS[p.kind][1]}", _STYLES[p.kind]) for p in pieces]
    yield tuple(parts)


def _pair(pair: StepPair) -> Iterator[Line]:
    if pair.left is not None and pair.right is not None:
        if pair.is_same:
            yield ("= ", *_step(pair.left), (f"  {pair.left.step}", "dim"))
            return
        yield (("~ ", "yellow"), f"step {pair.left.step} and {pair.right.step} differ: {', '.join(pair.differs)}")
        yield (("  < ", "red"), *_step(pair.left))
        yield (("  > ", "green"), *_step(pair.right))
    elif (only := pair.left or pair.right) is not None:
        mark = ("< ", "red") if pair.left is not None else ("> ", "green")
        yield (mark, *_step(only), (f"  {only.step}", "dim"))


def _step(step: ComparedStep) -> Line:
    said = [formats.cut(f"“{text}”", TEXT_CHARS) for text in step.messages]
    said += [formats.cut(step.text, TEXT_CHARS)] if step.text else []
    said += [_call(call) for call in step.calls]
    model = f"{step.model}, " if step.model else ""
    about = f"  ({model}{step.seconds:.1f} s, {formats.cost(step.usage)})"
    return (" ".join(said) or "no text", (about, "dim"))


def _call(call: ComparedCall) -> str:
    result = f" → {formats.cut(call.result, TEXT_CHARS)}" if call.success is not None else " without a result"
    edited = " (edited)" if call.edited else ""
    return f"{call.name}({formats.cut(call.arguments, TEXT_CHARS)}){edited}{result}"


def _state(differences: Sequence[StateDifference], *, more: bool) -> Iterator[Line]:
    if not differences:
        yield (("both have the same state", "dim"),)
    for one in differences:
        yield (f"{'.'.join(one.path) or '(all)'}: ", (_value(one.left, one.only == "right"), "red"), " → ",
               (_value(one.right, one.only == "left"), "green"))  # fmt: skip
    if more:
        yield (("… and more", "dim"),)


def _value(value: JsonValue, is_missing: bool) -> str:
    return "nothing" if is_missing else formats.short(value, TEXT_CHARS)
