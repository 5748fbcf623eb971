"""`helix calls`: reports of calls that end elsewhere. The token of a call is the only credential.

Law: in a store on this machine, the command executes the run that goes on, and shows it. Elsewhere the service does so.
"""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from helix.adapters.system import SystemClock
from helix.cli.options import Model, RunOptions
from helix.cli.output import RefusedError, write
from helix.cli.run import actions
from helix.cli.run.follow import exit_code_of, parse_data
from helix.cli.run.partners import LocalAgent
from helix.cli.stores import require_session, with_store
from helix.cli.where import Where, with_client
from helix.client import HelixClient
from helix.core.elsewhere import CallEnding, CallToken, InvalidCallTokenError
from helix.core.session_row import SessionRow
from helix.engine.history import session_key
from helix.ports.state_store import StateStore

TokenArgument = Annotated[str, typer.Argument(metavar="TOKEN", help="The token that the tool gave away")]


AgentOption = Annotated[
    str | None,
    typer.Option("--agent", metavar="AGENT", help="The session's agent, in a store [default: by its registered name]"),
]


def complete(
    token: TokenArgument,
    where: Where,
    data: Annotated[str | None, typer.Option("--data", metavar="JSON", help="The result, as JSON or text")] = None,
    agent: AgentOption = None,
    model: Model = None,
) -> int:
    return _end(token, CallEnding(None if data is None else parse_data(data)), where, agent, model)


def fail(
    token: TokenArgument,
    error: Annotated[str, typer.Argument(metavar="ERROR", help="The error message, which the model reads")],
    where: Where,
    agent: AgentOption = None,
    model: Model = None,
) -> int:
    return _end(token, CallEnding(error=error), where, agent, model)


def heartbeat(token: TokenArgument, where: Where) -> None:
    until = with_client(where, None, lambda client: client.prolong_call(token))
    left = "" if until is None else f"; it waits for {max(0.0, until - SystemClock().now()):.0f} s more"
    write(f"the call goes on{left}")


def _end(token: str, ending: CallEnding, where: Where, agent: str | None, model: str | None) -> int:
    place = CallToken.parse(token)
    if where.here:
        require_session(where.db, place.session_id)
        root = with_store(where, lambda store: _root_of(store, place.session_id))
        partner = LocalAgent(where.db, RunOptions(agent or root.agent_type, model))

        async def main() -> int:
            async with partner:
                return exit_code_of(await partner.do(actions.end_call(token, ending, root.session_id), root.session_id))

        return asyncio.run(main())
    if agent is not None or model is not None:
        raise RefusedError(f"--agent and --model are for a store on this machine, not for {where.option}")

    async def report(client: HelixClient) -> None:
        if ending.error is not None:
            await client.fail_call(token, ending.error)
        else:
            await client.complete_call(token, ending.value)

    with_client(where, None, report)
    write("the call has ended, and its run goes on")
    return 0


async def _root_of(store: StateStore, session_id: str) -> SessionRow:
    """Return the session, or the root session of a sub-agent's. Its agent knows all sub-agents."""
    for _ in range(2):
        (value,) = await store.get([session_key(session_id)])
        if value is None:
            raise InvalidCallTokenError
        row = SessionRow.at(session_id, value)
        if row.parent is None:
            break
        session_id = row.stream_id
    return row
