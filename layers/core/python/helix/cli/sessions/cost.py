"""`helix cost`: every dollar of a session, line by line.

Law: the total is the sum of the lines that are shown, and a line that nobody measured says so. What ran on this machine
pays no platform.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated
from urllib.parse import urlsplit

import typer

from helix.cli.options import Json, SessionName, Store
from helix.cli.output import RefusedError, console, naming, write_json
from helix.cli.stores import with_store
from helix.cli.view.formats import print_table
from helix.core.errors import SessionNotFoundError
from helix.core.ledger import NANOS, PRICED, Line
from helix.fleet.ledger import ledger

LOOPBACK = ("127.0.0.1", "localhost", "::1")
BASIS = {"measured": "", "counted": "counted", "estimated": "estimated"}
COLUMNS = ("service", "what", "step", "attempt", "quantity", "cost", "how")
_UNITS = {"requests": "", "transitions": "", "messages": ""}


def cost(
    session: SessionName,
    store: Store,
    url: Annotated[str | None, typer.Option("--url", metavar="WS", help="URL of `helix dev` on this machine")] = None,
    json: Json = False,
) -> None:
    where, endpoint = store, None
    if url is not None:
        where, endpoint = replace(store, stage=store.stage or "dev"), _endpoint(url)
    try:
        with naming(session):
            book = with_store(where, lambda rows: ledger(rows, session, deployed=where.stage is not None), endpoint)
    except SessionNotFoundError:
        named = f"stage {store.stage!r}" if store.stage else url or f"the store {store.db!r}"
        raise RefusedError(f"there is no session {session!r} in {named}") from None
    if json:
        write_json(book.dump())
        return
    print_table(COLUMNS, _rows(book.lines, session), right=("quantity", "cost"))
    out = console()
    services = ", ".join(f"{name} {_usd(nanos)}" for name, nanos in book.by_service().items()) or "nothing was paid"
    out.print(f"\n{_usd(book.nanos)} in all: {services}", style="bold")
    if not book.agrees:
        out.print("The rows of its runs and its calls do not agree: see the line with the difference.", style="yellow")
    if book.left_out:
        out.print(f"{PRICED}. Not in it: {'; '.join(book.left_out)}.", style="dim")


def _endpoint(url: str) -> str:
    """Where the offline cloud behind `url` answers for AWS. A deployed service shows its tables to its account alone."""
    try:
        host, port = urlsplit(url).hostname, urlsplit(url).port
    except ValueError as error:
        raise RefusedError(f"--url is {url!r}: {error}") from None
    if host not in LOOPBACK or port is None:
        raise RefusedError(
            f"--url is for `helix dev` on this machine, not {url!r}: --stage reads a deployed stage's tables"
        )
    return f"http://{f'[{host}]' if ':' in str(host) else host}:{port}"


def _rows(lines: Sequence[Line], session: str) -> list[list[str]]:
    """A service is named once, and a sub-agent's session above its lines."""
    rows: list[list[str]] = []
    service = ""
    for line in lines:
        if line.session_id != session:
            session = line.session_id
            rows.append(["", session, "", "", "", "", ""])
        what = [line.service if line.service != service else "", line.what]
        numbers = ["" if number is None else str(number) for number in (line.step, line.attempt)]
        quantity = f"{_number(line.quantity)} {_UNITS.get(line.unit, line.unit)}".rstrip()
        how = " · ".join(word for word in (BASIS[line.basis], line.how) if word)
        rows.append([*what, *numbers, quantity, _usd(line.nanos), how])
        service = line.service
    return rows


def _number(quantity: float) -> str:
    return f"{quantity:,.0f}" if quantity == int(quantity) else f"{quantity:,.3f}"


def _usd(nanos: int) -> str:
    """To the billionth where it is that little: what is shown adds up."""
    text = f"{nanos / NANOS:.9f}".rstrip("0")
    whole, _, rest = text.partition(".")
    return f"${whole}.{rest.ljust(4, '0')}"
