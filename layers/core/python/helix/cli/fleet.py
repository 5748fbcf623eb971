"""`helix fleet`: look at the agents of a fleet, scale, stop and start them, and bound what they spend.

Law: a command is its options and one call. All of them read and write rows, so they work from any machine that reaches the
store: of worker processes (`--db`), or of a deployed stage (`--stage`).
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from typing import Annotated, Any

import typer

from helix.cli.places import Place
from helix.runtime.settings import read_settings

fleet = typer.Typer(
    help="Agents as a service: instances, limits, budgets, health and their history.",
    rich_markup_mode=None,
    no_args_is_help=True,
)

Agent = Annotated[str, typer.Argument(metavar="AGENT", help="Name of the agent")]
Db = Annotated[str | None, typer.Option("--db", help="Store of the fleet [default: HELIX_DB, or helix.db]")]
Stage = Annotated[str | None, typer.Option("--stage", help="A deployed stage, instead of a store on this machine")]
Profile = Annotated[str | None, typer.Option("--profile", help="Of the AWS configuration, for --stage")]
Region = Annotated[str | None, typer.Option("--region", help="AWS region, for --stage")]
Json = Annotated[bool, typer.Option("--json", help="JSON lines on standard output")]
OfAgent = Annotated[str | None, typer.Option("--agent", help="Of this agent")]
OfTenant = Annotated[str | None, typer.Option("--tenant", help="Of this user id")]
OfSession = Annotated[str | None, typer.Option("--session", help="Of this session and its sub-agents")]
Unit = Annotated[str, typer.Option("--unit", help="`usd` or `tokens`")]
Period = Annotated[str, typer.Argument(metavar="PERIOD", help="hour, day, week, month or total")]
WHERE = {"db": Db, "stage": Stage, "profile": Profile, "region": Region}


def placed(command: Callable[..., int]) -> Callable[..., int]:
    """A command that is also told where the fleet is: options of the command line, one `Place` for its function."""
    signature = inspect.signature(command, eval_str=True)
    _, *own = signature.parameters.values()
    options = inspect.Parameter.KEYWORD_ONLY
    where = [inspect.Parameter(name, options, default=None, annotation=kind) for name, kind in WHERE.items()]

    def run(*, db: str | None, **given: Any) -> int:
        place = Place(db or read_settings(os.environ).db, **{name: given.pop(name) for name in WHERE if name != "db"})
        return command(place, **given)

    parameters = [*(parameter.replace(kind=options) for parameter in own), *where]
    run.__name__, run.__doc__ = command.__name__, command.__doc__
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return run


@fleet.command()
@placed
def status(
    place: Place,
    agent: Annotated[str | None, typer.Argument(metavar="AGENT", help="Name of the agent [default: all]")] = None,
    json: Json = False,
) -> int:
    """Show agents: what runs, what waits, what is allowed, and how they are."""
    from helix.cli import fleet_looking

    return fleet_looking.status(place, agent, json)


@fleet.command()
@placed
def scale(
    place: Place,
    agent: Agent,
    instances: Annotated[int, typer.Argument(metavar="INSTANCES", min=0, help="How many runs at once")],
) -> int:
    """Allow so many runs at once. Fewer ends no running work: it drains."""
    from helix.cli import fleet_acts

    return fleet_acts.scale(place, agent, instances)


@fleet.command()
@placed
def stop(
    place: Place,
    agent: Agent,
    force: Annotated[
        bool, typer.Option("--force", help="Abort the runs at work, instead of interrupting them")
    ] = False,
) -> int:
    """Take in no runs (new ones wait), and interrupt those at work; `start` goes on."""
    from helix.cli import fleet_acts

    return fleet_acts.stop(place, agent, force)


@fleet.command()
@placed
def start(place: Place, agent: Agent) -> int:
    """Let a stopped agent take runs again, in the order in which they wait."""
    from helix.cli import fleet_acts

    return fleet_acts.start(place, agent)


@fleet.command()
@placed
def restart(place: Place, agent: Agent) -> int:
    """Start its worker processes anew, with their code as it is now; what they are at is handed over."""
    from helix.cli import fleet_acts

    return fleet_acts.restart(place, agent)


@fleet.command()
@placed
def health(
    place: Place,
    target: Annotated[str | None, typer.Argument(metavar="TARGET", help="Agent or other target [default: all]")] = None,
    json: Json = False,
) -> int:
    """Show the last result of each health check. Exit code 3 if something is unhealthy."""
    from helix.cli import fleet_looking

    return fleet_looking.health(place, target, json)


@fleet.command()
@placed
def history(
    place: Place,
    agent: Agent,
    limit: Annotated[int, typer.Option("--limit", min=1, max=1000, help="How many, the newest")] = 20,
    json: Json = False,
) -> int:
    """Show what happened to an agent: scaling decisions with their reasons, and the lives of its processes."""
    from helix.cli import fleet_looking

    return fleet_looking.history(place, agent, limit, json)


@fleet.command()
@placed
def budgets(
    place: Place,
    agent: OfAgent = None,
    tenant: OfTenant = None,
    session: OfSession = None,
    json: Json = False,
) -> int:
    """Show budgets and where they stand: all, or those that bound one agent, tenant or session."""
    from helix.cli import fleet_budgets

    return fleet_budgets.show(place, fleet_budgets.Scope(agent, tenant, session), json)


@fleet.command("set-budget")
@placed
def set_budget(
    place: Place,
    amount: Annotated[float, typer.Argument(metavar="AMOUNT", help="US dollars, or tokens with --unit tokens")],
    period: Period,
    agent: OfAgent = None,
    tenant: OfTenant = None,
    session: OfSession = None,
    unit: Unit = "usd",
    on_exceeded: Annotated[
        str | None, typer.Option("--on-exceeded", help="`fail` or `pause` [default: what the agent says]")
    ] = None,
) -> int:
    """Bound what is spent in each period: by everybody, or by one agent, tenant or session."""
    from helix.cli import fleet_budgets

    scope = fleet_budgets.Scope(agent, tenant, session)
    return fleet_budgets.define(place, scope, amount, period, unit, on_exceeded)


@fleet.command("remove-budget")
@placed
def remove_budget(
    place: Place,
    period: Period,
    agent: OfAgent = None,
    tenant: OfTenant = None,
    session: OfSession = None,
    unit: Unit = "usd",
) -> int:
    """Bound it no longer."""
    from helix.cli import fleet_budgets

    scope = fleet_budgets.Scope(agent, tenant, session)
    return fleet_budgets.undefine(place, scope, period, unit)


@fleet.command()
@placed
def alerts(
    place: Place,
    level: Annotated[str | None, typer.Option("--level", help="warning, critical or exceeded")] = None,
    agent: OfAgent = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=1000, help="How many, newest first")] = 20,
    json: Json = False,
) -> int:
    """Show the alerts that budgets have raised."""
    from helix.cli import fleet_budgets

    return fleet_budgets.alerts(place, level, agent, limit, json)


@fleet.command()
def serve(
    agents: Annotated[list[str], typer.Argument(metavar="AGENT...", help="module:name or path/file.py:name, each")],
    model: Annotated[
        str | None, typer.Option("--model", "-m", help="Any litellm name, for all agents; or `demo`")
    ] = None,
    workers: Annotated[int, typer.Option("--workers", min=1, max=100, help="Worker processes at most")] = 10,
    watch: Annotated[bool, typer.Option("--watch/--no-watch", help="Start anew when the agents' files change")] = False,
    db: Db = None,
) -> int:
    """Serve agents by worker processes of this machine, until Ctrl-C."""
    from helix.cli import fleet_serving

    settings = read_settings(os.environ)
    return fleet_serving.serve(settings, db or settings.db, agents, model, workers, watch)
