"""Builds the ledger of a session: the cost of its models, tools and sub-agents, and of the platform if it was
deployed."""

from __future__ import annotations

from helix.core.errors import SessionNotFoundError
from helix.core.ledger import Ledger, Line
from helix.ports.state_store import StateStore
from helix.services.session_calls import session_calls
from helix.sessions.ledger_aws import LEFT_OUT, aws_lines
from helix.sessions.ledger_models import BOOKS, model_lines
from helix.sessions.ledger_rows import SessionRows, read_rows

MAX_SESSIONS = 10_000


async def ledger(
    store: StateStore,
    session_id: str,
    *,
    deployed: bool = False,
    streaming: str = "kinesis",
    most: int = MAX_SESSIONS,
    most_rows: int | None = None,
) -> Ledger:
    """Return the ledger of a session and all its sub-agents' sessions.

    `deployed`: the session ran on AWS, and the cost of AWS is added. `streaming` is the stage's setting. At most `most`
    sessions are read; `left_out` tells whether there are more. `most_rows` is the maximum number of rows per session.
    Raises `SessionNotFoundError`, and `InvalidInputError` if a session has more rows.
    """
    first = await read_rows(store, session_id, most_rows)
    if first is None:
        raise SessionNotFoundError(session_id)
    models: list[Line] = []
    platform: list[Line] = []
    left: list[SessionRows | str] = [first]
    seen = {session_id}
    for _ in range(most):
        if not left:
            break
        here = left.pop(0)
        rows = await read_rows(store, here, most_rows) if isinstance(here, str) else here
        if rows is None:  # a sub-agent that was never started
            continue
        models += model_lines(rows, await session_calls(store, rows.session.session_id))
        if deployed:
            platform += aws_lines(rows, kinesis=streaming != "direct")
        children = [child for child in rows.children if child not in seen]
        seen.update(children)
        left += children
    lines = (*models, *platform)
    agrees = not any(line.service == BOOKS for line in lines)
    beyond = (f"{len(left)} sub-agents' sessions or more, beyond the first {most}",) if left else ()
    return Ledger(session_id, lines, agrees, (*(LEFT_OUT if deployed else ()), *beyond))
