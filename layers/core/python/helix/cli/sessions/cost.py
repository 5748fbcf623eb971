"""`helix cost`: the itemized cost of a session, or of an idle stage.

Law: the total is the sum of the printed lines. A line whose value is counted or estimated, rather than measured, says so. A
session on this machine does not have a platform cost.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from helix.cli.options import Json
from helix.cli.output import RefusedError, console, write_json
from helix.cli.sessions.rows import read_tree
from helix.cli.stores import aws_client
from helix.cli.view.formats import print_table
from helix.cli.where import Where, with_client
from helix.client import HelixClient
from helix.core.ledger import NANOS, PRICED, Ledger, Line, total
from helix.fleet.idle import idle_lines, unpriced
from helix.ports.state_store import Operation, Put
from helix.runtime.stores import MEMORY, open_store
from helix.sessions.ledger import ledger

PAGE = 50
BASIS = {"measured": "", "counted": "counted", "estimated": "estimated"}
COLUMNS = ("service", "what", "step", "attempt", "quantity", "cost", "how")
_UNITS = {"requests": "", "transitions": "", "messages": ""}


def cost(
    where: Where,
    session: Annotated[str | None, typer.Argument(metavar="[SESSION]", help="Id of the session")] = None,
    idle: Annotated[bool, typer.Option("--idle", help="List the monthly cost of a stage at rest")] = False,
    json: Json = False,
) -> None:
    if idle:
        if session is not None or where.stage is None:
            raise RefusedError("--idle needs a deployed stage: helix cost --stage NAME --idle")
        _idle(where, json=json)
        return
    if session is None:
        raise RefusedError("name a session, or add --stage NAME --idle for what a stage costs at rest")
    streaming = streaming_of(where)
    book = with_client(where, session, lambda client: read_ledger(client, where, session, streaming))
    if json:
        write_json(book.dump())
        return
    print_table(COLUMNS, ledger_rows(book.lines, session), right=("quantity", "cost"))
    out = console()
    services = ", ".join(f"{name} {usd_of(nanos)}" for name, nanos in book.by_service().items()) or "nothing was paid"
    out.print(f"\n{usd_of(book.nanos)} in all: {services}", style="bold")
    if not book.agrees:
        out.print("The rows of its runs and its calls do not agree: see the line with the difference.", style="yellow")
    if book.left_out:
        out.print(f"{PRICED}. Not in it: {'; '.join(book.left_out)}.", style="dim")


async def read_ledger(client: HelixClient, where: Where, session_id: str, streaming: str) -> Ledger:
    """Compute the ledger of a session from its rows, wherever they are. For `streaming` see `streaming_of`."""
    rows = open_store(MEMORY)
    found = await read_tree(client, session_id)
    for start in range(0, len(found), PAGE):
        puts: list[Operation] = [Put(row.key, row.value) for row in found[start : start + PAGE]]
        await rows.transact("read_ledger", puts)
    return await ledger(rows, session_id, deployed=not where.here, streaming=streaming)


def _idle(store: Where, *, json: bool) -> None:
    from helix.cli.cloud.deploy import aws_errors
    from helix.cli.cloud.stack import describe_stack, read_templates

    stack = f"helix-{store.stage}"
    cloudformation = aws_client("cloudformation", store.profile, store.region)
    with aws_errors():
        if describe_stack(cloudformation, stack) is None:
            raise RefusedError(f"there is no stage {store.stage!r} here: no stack {stack!r} in this account and region")
        found = list(read_templates(cloudformation, stack))
    lines, unknown = idle_lines(found), unpriced(found)
    nanos = total(lines)
    if json:
        reported = {
            "lines": [line.dump() for line in lines],
            "usd": nanos / NANOS,
            "unpriced": unknown,
            "prices": PRICED,
        }
        write_json({"stage": store.stage, **reported})
        return
    rows = [[line.service, line.what, _amount(line), f"${line.dollars:,.2f}", line.how] for line in lines]
    print_table(("service", "what", "quantity", "a month", "how"), rows, right=("quantity", "a month"))
    out = console()
    out.print(f"\n${nanos / NANOS:,.2f} a month at rest", style="bold")
    out.print(f"{PRICED}. Not in it: what is stored, and metrics ($0.30 each while they arrive).", style="dim")
    if unknown:
        out.print(f"No price is known here for: {', '.join(unknown)}.", style="yellow")


def streaming_of(where: Where) -> str:
    """Return the stage's setting `streaming`. Only CloudFormation knows it, so a service at a URL is assumed to use
    Kinesis."""
    if where.stage is None:
        return "kinesis"
    from botocore.exceptions import BotoCoreError, ClientError

    from helix.cli.cloud.stack import describe_stack, outputs_of

    try:
        stack = describe_stack(aws_client("cloudformation", where.profile, where.region), f"helix-{where.stage}") or {}
    except (BotoCoreError, ClientError):
        return "kinesis"
    return outputs_of(stack).get("StreamingMode", "kinesis")


def ledger_rows(lines: Sequence[Line], session: str) -> list[list[str]]:
    """Return the rows of a table. A service is named only once, and a sub-agent's session is named above its lines."""
    rows: list[list[str]] = []
    service = ""
    for line in lines:
        if line.session_id != session:
            session = line.session_id
            rows.append(["", session, "", "", "", "", ""])
        what = [line.service if line.service != service else "", line.what]
        numbers = ["" if number is None else str(number) for number in (line.step, line.attempt)]
        quantity = _amount(line)
        how = " · ".join(word for word in (BASIS[line.basis], line.how) if word)
        rows.append([*what, *numbers, quantity, usd_of(line.nanos), how])
        service = line.service
    return rows


def _amount(line: Line) -> str:
    return f"{_number(line.quantity)} {_UNITS.get(line.unit, line.unit)}".rstrip()


def _number(quantity: float) -> str:
    return f"{quantity:,.0f}" if quantity == int(quantity) else f"{quantity:,.3f}"


def usd_of(nanos: int) -> str:
    """Format an amount in US dollars with up to nine decimals, so that the printed amounts add up exactly."""
    text = f"{nanos / NANOS:.9f}".rstrip("0")
    whole, _, rest = text.partition(".")
    return f"${whole}.{rest.ljust(4, '0')}"
