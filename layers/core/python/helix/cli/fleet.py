"""`helix fleet`: look at the agents of a fleet, scale, stop and start them, and bound what they spend.

Law: a command is its options and one call. All of them read and write rows, so they work from any machine that reaches the
store: of worker processes (`--db`), or of a deployed stage (`--stage`).
"""

from __future__ import annotations

import os
from typing import Annotated

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


@fleet.command()
def status(
    agent: Annotated[str | None, typer.Argument(metavar="AGENT", help="Name of the agent [default: all]")] = None,
    db: Db = None,
    stage: Stage = None,
    profile: Profile = None,
    region: Region = None,
    json: Json = False,
) -> int:
    """Show agents: what runs, what waits, what is allowed, and how they are."""
    from helix.cli import fleet_looking

    return fleet_looking.status(_place(db, stage, profile, region), agent, json)


@fleet.command()
def scale(
    agent: Agent,
    instances: Annotated[int, typer.Argument(metavar="INSTANCES", min=0, help="How many runs at once")],
    db: Db = None,
    stage: Stage = None,
    profile: Profile = None,
    region: Region = None,
) -> int:
    """Allow so many runs at once. Fewer ends no running work: it drains."""
    from helix.cli import fleet_acts

    return fleet_acts.scale(_place(db, stage, profile, region), agent, instances)


@fleet.command()
def stop(
    agent: Agent,
    force: Annotated[
        bool, typer.Option("--force", help="Abort the runs at work, instead of interrupting them")
    ] = False,
    db: Db = None,
    stage: Stage = None,
    profile: Profile = None,
    region: Region = None,
) -> int:
    """Take in no runs (new ones wait), and interrupt those at work; `start` goes on."""
    from helix.cli import fleet_acts

    return fleet_acts.stop(_place(db, stage, profile, region), agent, force)


@fleet.command()
def start(agent: Agent, db: Db = None, stage: Stage = None, profile: Profile = None, region: Region = None) -> int:
    """Let a stopped agent take runs again, in the order in which they wait."""
    from helix.cli import fleet_acts

    return fleet_acts.start(_place(db, stage, profile, region), agent)


@fleet.command()
def restart(agent: Agent, db: Db = None, stage: Stage = None, profile: Profile = None, region: Region = None) -> int:
    """Start its worker processes anew, with their code as it is now; what they are at is handed over."""
    from helix.cli import fleet_acts

    return fleet_acts.restart(_place(db, stage, profile, region), agent)


@fleet.command()
def health(
    target: Annotated[str | None, typer.Argument(metavar="TARGET", help="Agent or other target [default: all]")] = None,
    db: Db = None,
    stage: Stage = None,
    profile: Profile = None,
    region: Region = None,
    json: Json = False,
) -> int:
    """Show the last result of each health check. Exit code 3 if something is unhealthy."""
    from helix.cli import fleet_looking

    return fleet_looking.health(_place(db, stage, profile, region), target, json)


@fleet.command()
def history(
    agent: Agent,
    limit: Annotated[int, typer.Option("--limit", min=1, max=1000, help="How many, the newest")] = 20,
    db: Db = None,
    stage: Stage = None,
    profile: Profile = None,
    region: Region = None,
    json: Json = False,
) -> int:
    """Show what happened to an agent: scaling decisions with their reasons, and the lives of its processes."""
    from helix.cli import fleet_looking

    return fleet_looking.history(_place(db, stage, profile, region), agent, limit, json)


@fleet.command()
def budgets(
    agent: OfAgent = None,
    tenant: OfTenant = None,
    session: OfSession = None,
    db: Db = None,
    stage: Stage = None,
    profile: Profile = None,
    region: Region = None,
    json: Json = False,
) -> int:
    """Show budgets and where they stand: all, or those that bound one agent, tenant or session."""
    from helix.cli import fleet_budgets

    place = _place(db, stage, profile, region)
    return fleet_budgets.show(place, fleet_budgets.Scope(agent, tenant, session), json)


@fleet.command("set-budget")
def set_budget(
    amount: Annotated[float, typer.Argument(metavar="AMOUNT", help="US dollars, or tokens with --unit tokens")],
    period: Period,
    agent: OfAgent = None,
    tenant: OfTenant = None,
    session: OfSession = None,
    unit: Unit = "usd",
    on_exceeded: Annotated[
        str | None, typer.Option("--on-exceeded", help="`fail` or `pause` [default: what the agent says]")
    ] = None,
    db: Db = None,
    stage: Stage = None,
    profile: Profile = None,
    region: Region = None,
) -> int:
    """Bound what is spent in each period: by everybody, or by one agent, tenant or session."""
    from helix.cli import fleet_budgets

    scope = fleet_budgets.Scope(agent, tenant, session)
    return fleet_budgets.define(_place(db, stage, profile, region), scope, amount, period, unit, on_exceeded)


@fleet.command("remove-budget")
def remove_budget(
    period: Period,
    agent: OfAgent = None,
    tenant: OfTenant = None,
    session: OfSession = None,
    unit: Unit = "usd",
    db: Db = None,
    stage: Stage = None,
    profile: Profile = None,
    region: Region = None,
) -> int:
    """Bound it no longer."""
    from helix.cli import fleet_budgets

    scope = fleet_budgets.Scope(agent, tenant, session)
    return fleet_budgets.undefine(_place(db, stage, profile, region), scope, period, unit)


@fleet.command()
def alerts(
    level: Annotated[str | None, typer.Option("--level", help="warning, critical or exceeded")] = None,
    agent: OfAgent = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=1000, help="How many, newest first")] = 20,
    db: Db = None,
    stage: Stage = None,
    profile: Profile = None,
    region: Region = None,
    json: Json = False,
) -> int:
    """Show the alerts that budgets have raised."""
    from helix.cli import fleet_budgets

    return fleet_budgets.alerts(_place(db, stage, profile, region), level, agent, limit, json)


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


def _db(db: str | None) -> str:
    return db or read_settings(os.environ).db


def _place(db: str | None, stage: str | None, profile: str | None, region: str | None) -> Place:
    return Place(_db(db), stage, profile, region)
