"""`helix cost`: every dollar of a session, line by line.

Law: the total is the sum of the lines that are shown, and a line that nobody measured says so. What ran on this machine
pays no platform.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from urllib.parse import urlsplit

from rich.markup import escape
from rich.table import Table

from helix.cli.looking import console
from helix.cli.places import Place, opened
from helix.cli.refusal import COMPLETED, RefusedError
from helix.core.errors import SessionNotFoundError
from helix.core.ledger import NANOS, PRICED, Ledger, Line
from helix.fleet.ledger import ledger

LOOPBACK = ("127.0.0.1", "localhost", "::1")
BASIS = {"measured": "", "counted": "counted", "estimated": "estimated"}
_UNITS = {"requests": "", "transitions": "", "messages": ""}


def cost(place: Place, session_id: str, url: str | None, as_json: bool) -> int:
    """`url`: of `helix dev` on this machine."""
    book = asyncio.run(_read(place, session_id, url))
    if as_json:
        print(json.dumps(book.dump(), ensure_ascii=False))
        return COMPLETED
    out = console()
    out.print(_table(book.lines, [session_id]))
    services = ", ".join(f"{name} {_usd(nanos)}" for name, nanos in book.by_service().items()) or "nothing was paid"
    out.print(f"\n{_usd(book.nanos)} in all: {services}", style="bold")
    if not book.agrees:
        out.print(
            "The rows of its runs do not agree with its calls: see the line that says by how much.", style="yellow"
        )
    if book.left_out:
        out.print(f"{PRICED}. Not in it: {'; '.join(book.left_out)}.", style="dim")
    return COMPLETED


async def _read(place: Place, session_id: str, url: str | None) -> Ledger:
    where = place if url is None else replace(place, stage=place.stage or "dev", endpoint=_offline(url))
    async with opened(where) as store:
        try:
            return await ledger(store, session_id, deployed=where.stage is not None)
        except SessionNotFoundError:
            named = f"stage {place.stage!r}" if place.stage else url or f"the store {place.db!r}"
            raise RefusedError(f"there is no session {session_id!r} in {named}") from None


def _offline(url: str) -> str:
    """Where the offline cloud behind `url` answers for AWS. A deployed service shows its tables to its account alone."""
    host = urlsplit(url)
    if host.hostname not in LOOPBACK or host.port is None:
        raise RefusedError(
            f"--url is for `helix dev` on this machine, not {url!r}: --stage reads a deployed stage's tables"
        )
    return f"http://{host.hostname}:{host.port}"


def _table(lines: Sequence[Line], known: list[str]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("service", "what", "step", "attempt"):
        table.add_column(name, no_wrap=True)
    table.add_column("quantity", no_wrap=True, justify="right")
    table.add_column("cost", no_wrap=True, justify="right")
    table.add_column("how", overflow="fold")
    service, session = "", known[0]
    for line in lines:
        if line.session_id != session:
            session = line.session_id
            table.add_row("", f"[dim]{escape(session)}[/]")
        table.add_row(
            line.service if line.service != service else "",
            escape(line.what),
            "" if line.step is None else str(line.step),
            "" if line.attempt is None else str(line.attempt),
            f"{_number(line.quantity)} {_UNITS.get(line.unit, line.unit)}".rstrip(),
            _usd(line.nanos),
            escape(" · ".join(word for word in (BASIS[line.basis], line.how) if word)),
        )
        service = line.service
    return table


def _number(quantity: float) -> str:
    return f"{quantity:,.0f}" if quantity == int(quantity) else f"{quantity:,.3f}"


def _usd(nanos: int) -> str:
    """To the billionth where it is that little: what is shown adds up."""
    text = f"{nanos / NANOS:.9f}".rstrip("0")
    whole, _, rest = text.partition(".")
    return f"${whole}.{rest.ljust(4, '0')}"
