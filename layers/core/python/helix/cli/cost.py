"""`helix cost`: every dollar of a session, line by line.

Law: the total is the sum of the lines that are shown, and a line that nobody measured says so. What ran on this machine
pays no platform.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

from rich.markup import escape
from rich.table import Table

from helix.cli.looking import console
from helix.cli.places import TABLES, Place, opened
from helix.cli.refusal import COMPLETED, RefusedError
from helix.core.errors import SessionNotFoundError
from helix.core.ledger import NANOS, PRICED, Ledger, Line
from helix.fleet.ledger import ledger
from helix.ports.state_store import StateStore

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
    async with opened(place) if url is None else _offline(url, place.stage or "dev") as store:
        try:
            return await ledger(store, session_id, deployed=url is not None or place.stage is not None)
        except SessionNotFoundError:
            where = f"stage {place.stage!r}" if place.stage else url or f"the store {place.db!r}"
            raise RefusedError(f"there is no session {session_id!r} in {where}") from None


@asynccontextmanager
async def _offline(url: str, stage: str) -> AsyncIterator[StateStore]:
    """The tables of the offline cloud that serves `url`. A deployed service shows its tables to its account alone."""
    host = urlsplit(url)
    if host.hostname not in LOOPBACK or host.port is None:
        raise RefusedError(
            f"--url is for `helix dev` on this machine, not {url!r}: --stage reads a deployed stage's tables"
        )
    import boto3
    from botocore.config import Config

    from helix.adapters.aws.dynamodb import DynamoDBStateStore
    from helix.adapters.system import SystemClock
    from helix.local.cloud import REGION
    from helix.local.emulator import ADMIN

    session = boto3.Session(aws_access_key_id=ADMIN, aws_secret_access_key=ADMIN, region_name=REGION)
    config = Config(connect_timeout=2, retries={"mode": "standard", "total_max_attempts": 2})
    client = session.client("dynamodb", endpoint_url=f"http://{host.hostname}:{host.port}", config=config)
    try:
        client.describe_table(TableName=f"helix-{stage}-sessions")
    except Exception as error:  # nobody listens, or there is no such stage
        raise RefusedError(f"there is no stage {stage!r} at {host.hostname}:{host.port}: {error}") from error
    store = DynamoDBStateStore(client, {table: f"helix-{stage}-{table}" for table in TABLES}, clock=SystemClock())
    try:
        yield store
    finally:
        await store.close()
        client.close()


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
