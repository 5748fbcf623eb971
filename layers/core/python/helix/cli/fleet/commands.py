"""Commands that show and control a fleet: status, health, history, limits, budgets."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, TypeVar

import typer

from helix.adapters.system import SystemClock, SystemIds
from helix.cli.options import Json, Limit, Store
from helix.cli.output import COMPLETED, FAILED, RefusedError, say, write_json
from helix.cli.stores import with_store
from helix.cli.view import formats
from helix.cli.view.formats import count, print_table
from helix.core.health import HealthResult, HealthStatus
from helix.fleet.budgets import BudgetManager
from helix.fleet.control import NOT_FOUND, FleetControl
from helix.fleet.decisions import DecisionLog
from helix.fleet.deployed import DeployedRuntime
from helix.fleet.health_rows import results, targets
from helix.fleet.rows import read_crashes, read_processes
from helix.ports.state_store import StateStore
from helix.runtime.declared import project_user_budgets
from helix.services.row_slots import RowSlots

T = TypeVar("T")
Agent = Annotated[str, typer.Argument(metavar="AGENT", help="Name of the agent")]


def _with_control(store: Store, act: Callable[[FleetControl, DeployedRuntime], Awaitable[T]]) -> T:
    """Return the result of `act`, which receives the control for the store's agents and the runtime for their runs."""

    async def on(rows: StateStore) -> T:
        clock, deployed = SystemClock(), DeployedRuntime(rows)
        if store.stage is not None:
            return await act(await deployed.control(), deployed)
        log = DecisionLog(rows, clock, SystemIds())
        return await act(FleetControl(rows, clock, slots=RowSlots(rows), log=log), deployed)

    return with_store(store, on)


def scale(
    agent: Agent,
    instances: Annotated[int, typer.Argument(metavar="INSTANCES", min=0, help="How many runs at once")],
    store: Store,
) -> None:
    _with_control(store, lambda control, _: control.scale(agent, instances))
    now = f"has {count(instances, 'instance')} now"
    if instances == 0:
        now = "keeps no instance ready; the first run starts one (`helix fleet stop` prevents that)"
    say(f"{agent} {now}; running work goes on")


def stop(
    agent: Agent,
    store: Store,
    force: Annotated[bool, typer.Option("--force", help="Abort running runs, instead of interrupting them")] = False,
) -> None:
    async def act(control: FleetControl, deployed: DeployedRuntime) -> int | None:
        """Stop the agent. Return the number of runs that were asked to stop, or None if the agent's runtime does the
        asking."""
        await control.stop(agent, force=force)
        supervised = (await control.status(agent))["supervisor"] is not None
        return None if supervised else await deployed.stop_runs(agent, force)

    stopping = _with_control(store, act)
    done = "aborted" if force else "interrupted"
    if stopping is None:
        say(f"{agent} accepts no runs; its runtime stops running ones ({done})")
    else:
        say(
            f"{agent} accepts no runs; {count(stopping, 'running run')} {'is' if stopping == 1 else 'are'} being {done}"
        )


def start(agent: Agent, store: Store) -> None:
    _with_control(store, lambda control, _: control.start(agent))
    say(f"{agent} accepts runs; waiting runs start in order")


def restart(agent: Agent, store: Store) -> None:
    async def act(control: FleetControl, deployed: DeployedRuntime) -> str:
        if store.stage is not None:
            await deployed.restart_agent(agent)
            return f"{agent}: running runs are being interrupted, and new ones are accepted"
        await control.restart(agent)
        supervised = (await control.status(agent))["supervisor"] is not None
        return f"{agent} restarts{'' if supervised else ' once a runtime serves it (helix fleet serve)'}"

    say(_with_control(store, act))


MOST = 1000
"""The maximum number of decisions and crashes in a history."""


def print_found(found: Sequence[dict[str, Any]], columns: dict[str, Any], *, json: bool, otherwise: str) -> None:
    """Print each entry as a line of JSON, or all as a table. Each column's function returns its cell. `otherwise` is
    printed if the list is empty."""
    if json:
        for each in found:
            write_json(each)
    elif found:
        print_table(list(columns), [[str(cell(each)) for cell in columns.values()] for each in found])
    else:
        say(otherwise)


def status(
    store: Store,
    agent: Annotated[str | None, typer.Argument(metavar="AGENT", help="Name of the agent [default: all]")] = None,
    json: Json = False,
) -> None:
    found = with_store(store, lambda rows: _status(rows, store, agent))
    later = ": they are known once they have run" if store.stage is not None else ""
    columns = {
        "agent": lambda e: e["agent_id"],
        "status": lambda e: f"stopped by {e['stopped_by']}" if e["stopped_by"] else e["status"],
        "instances": lambda e: "" if e["instances"] is None else e["instances"],
        "runs": lambda e: f"{e['runs']} of {e['limit']}" if e["limit"] is not None else f"{e['runs']}, no limit",
        "waiting": lambda e: e["queued"],
        "health": lambda e: e["health"]["status"],
        "processes": lambda e: "\n".join(_describe_process(info) for info in e["processes"] if _has_process(info)),
    }
    print_found(found, columns, json=json, otherwise=f"this fleet has no agents yet{later}")


async def _status(rows: StateStore, store: Store, agent: str | None) -> list[dict[str, Any]]:
    slots, deployed = RowSlots(rows), store.stage is not None
    found: list[dict[str, Any]]
    if deployed:
        runtime = DeployedRuntime(rows)
        found = await runtime.list_agents() if agent is None else [await runtime.get_agent_status(agent)]
    else:
        control = FleetControl(rows, SystemClock(), slots=slots)
        found = await control.list() if agent is None else [await control.status(agent)]
    if agent is not None and found[0]["status"] == NOT_FOUND:
        when = ": a deployed one is known once it has run" if deployed else ""
        raise RefusedError(f"there is no agent {agent!r} in this fleet{when}")
    counters = await slots.counters()
    for entry in found:
        counter = counters.get(entry["agent_id"])
        entry["limit"] = None if counter is None else counter.bound
        entry["stopped_by"] = None if counter is None else counter.stopped_by
        # A deployed stage lists its runs as processes. On this machine, the runs of an agent without a limit are not
        # counted.
        unlimited = len(entry["processes"]) if deployed else 0
        entry["runs"] = counter.running if counter is not None and counter.bound is not None else unlimited
        entry["queued"] = 0 if counter is None else counter.queued
    return found


def _has_process(info: dict[str, Any]) -> bool:
    return info["status"] != "stopped" and "pid" in info


def _describe_process(info: dict[str, Any]) -> str:
    again = f", {formats.count(info['restart_count'], 'restart')}" if info["restart_count"] else ""
    why = f": {formats.cut(info['last_error'], 60)}" if info["last_error"] else ""
    figures = f"pid {info['pid']}, {info['cpu_percent']:.0f} % cpu, {info['memory_mb']:.0f} MB{again}"
    now = figures if info["pid"] is not None else again.removeprefix(", ") or "no process"
    return f"{info['process_id']} {info['status']} ({now}){why}"


def health(
    store: Store,
    target: Annotated[str | None, typer.Argument(metavar="TARGET", help="Agent or other target [default: all]")] = None,
    json: Json = False,
) -> int:
    async def read(rows: StateStore) -> list[tuple[str, HealthResult]]:
        names = [target] if target is not None else await targets(rows)
        return [(name, result) for name in names for result in await results(rows, name)]

    checked = with_store(store, read)
    if target is not None and not checked:
        raise RefusedError(f"no health check of {target!r} has run yet")
    now = SystemClock().now()
    columns = {
        "target": lambda r: r["target"],
        "check": lambda r: r["check"],
        "type": lambda r: r["check_type"],
        "status": lambda r: r["status"],
        "checked": lambda r: formats.age(now - (r["checked_at"] or now)),
        "message": lambda r: r["message"],
    }
    found = [{"target": name, **result.model_dump(mode="json")} for name, result in checked]
    print_found(found, columns, json=json, otherwise="no health check has reported yet")
    return FAILED if any(result.status is HealthStatus.UNHEALTHY for _, result in checked) else COMPLETED


def history(agent: Agent, store: Store, limit: Limit = 20, json: Json = False) -> None:
    found = with_store(store, lambda rows: _history(rows, agent))[-limit:]
    columns = {"when": lambda e: format_time(e["at"]), "what": lambda e: e["what"], "why": lambda e: e["why"]}
    print_found(found, columns, json=json, otherwise=f"nothing has happened to {agent!r} yet")


async def _history(rows: StateStore, agent: str) -> list[dict[str, Any]]:
    """Return the scaling decisions and the starts and ends of processes, ordered by time."""
    log = DecisionLog(rows, SystemClock(), SystemIds())
    events: list[dict[str, Any]] = []
    for row in await log.history(agent, limit=MOST):
        change = f"{row.before} -> {row.after}" if row.after != row.before else f"stays at {row.before}"
        applied = "" if row.applied or row.blocked_by else " (not applied)"
        by = f" [{row.trigger}]" if row.trigger else ""
        event = {"at": row.at, "what": f"{row.action} {change}{applied}", "why": f"{row.reason}{by}"}
        events.append({**event, "decision": row.model_dump(mode="json")})
    known = [*await read_crashes(rows, agent, MOST), *await read_processes(rows, agent)]
    for info in {info.worker_id: info for info in known}.values():
        again = f", start {info.restart_count + 1}" if info.restart_count else ""
        lives = [(info.started_at, f"started{again}", ""), (info.stopped_at, info.status.value, info.last_error or "")]
        for at, what, why in lives:
            if at is not None:
                event = {"at": at, "what": f"process {info.process_id} {what}", "why": why}
                events.append({**event, "process": info.model_dump(mode="json")})
    return sorted(events, key=lambda event: event["at"])


def format_time(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S")


OfAgent = Annotated[str | None, typer.Option("--agent", help="Of this agent")]
Unit = Annotated[str, typer.Option("--unit", help="`usd` or `tokens`")]
Period = Annotated[str, typer.Argument(metavar="PERIOD", help="hour, day, week, month or total")]


@dataclass(frozen=True, slots=True)
class Scope:
    """The scope of a budget. At most one field is set. If none is set, the budget covers all runs."""

    agent: OfAgent = None
    """The agent whose runs the budget covers."""
    tenant: Annotated[str | None, typer.Option("--tenant", help="Of this user id")] = None
    """The user id whose runs the budget covers."""
    session: Annotated[str | None, typer.Option("--session", help="Of this session and its sub-agents")] = None
    """The session that the budget covers, with its sub-agents' sessions."""

    def __str__(self) -> str:
        return next((f"{kind} {name!r}" for kind, name in asdict(self).items() if name is not None), "everybody")

    def options(self) -> dict[str, str | None]:
        return {"agent_id": self.agent, "tenant": self.tenant, "session": self.session}


def budgets(store: Store, scope: Scope, json: Json = False) -> None:
    found = _with_budgets(store, lambda manager: manager.check_budget(**scope.options()))
    columns = {
        "scope": lambda s: s["scope"],
        "period": lambda s: s["period"],
        "used or reserved": lambda s: _amount(s["current_usd" if _usd(s) else "current_tokens"], _usd(s)),
        "limit": lambda s: _amount(s["budget_limit"], _usd(s)),
        "part": lambda s: f"{s['utilization']:.1%}",
        "level": lambda s: s["alert_level"] or "",
        "ends (UTC)": lambda s: "never" if s["resets_at"] is None else format_time(s["resets_at"]),
    }
    statuses = [{"name": name, **status} for name, status in found.items()]
    print_found(statuses, columns, json=json, otherwise="there are no budgets: helix fleet set-budget 10 day")


def set_budget(
    store: Store,
    amount: Annotated[float, typer.Argument(metavar="AMOUNT", help="US dollars, or tokens with --unit tokens")],
    period: Period,
    scope: Scope,
    unit: Unit = "usd",
    on_exceeded: Annotated[
        str | None, typer.Option("--on-exceeded", help="`fail` or `pause` [default: the agent's own setting]")
    ] = None,
) -> None:
    options: dict[str, Any] = {"unit": unit, "on_exceeded": on_exceeded, **scope.options()}
    _with_budgets(store, lambda manager: manager.set_budget(amount, period, **options))
    say(f"{scope}: at most {_amount(amount, unit == 'usd')} {'in all' if period == 'total' else f'each {period}'}")


def remove_budget(store: Store, period: Period, scope: Scope, unit: Unit = "usd") -> None:
    options: dict[str, Any] = {"unit": unit, **scope.options()}
    if not _with_budgets(store, lambda manager: manager.remove_budget(period, **options)):
        raise RefusedError(f"there is no such budget: {scope}, {period}, {unit} (see helix fleet budgets)")
    say(f"{scope}: no longer limited {'in all' if period == 'total' else f'per {period}'} in {unit}")


def alerts(
    store: Store,
    level: Annotated[str | None, typer.Option("--level", help="warning, critical or exceeded")] = None,
    agent: OfAgent = None,
    limit: Limit = 20,
    json: Json = False,
) -> None:
    if level not in (None, "warning", "critical", "exceeded"):
        raise RefusedError(f"--level is {level!r}; it must be warning, critical or exceeded")
    found = _with_budgets(store, lambda manager: manager.get_alerts(level, agent, limit))  # type: ignore[arg-type]
    columns = {
        "when (UTC)": lambda a: format_time(a["timestamp"]),
        "level": lambda a: a["level"],
        "message": lambda a: a["message"],
    }
    dumped = [alert.model_dump(mode="json") for alert in found]
    print_found(dumped, columns, json=json, otherwise="no budget has raised an alert")


def _usd(status: dict[str, Any]) -> bool:
    return bool(status["unit"] == "usd")


def _amount(amount: float, usd: bool) -> str:
    if not usd:
        return f"{amount:,.0f} tokens"
    return f"${amount:,.2f}" if amount >= 1 or amount == 0 else f"${amount:.6f}".rstrip("0")


def _with_budgets(store: Store, act: Callable[[BudgetManager], Awaitable[T]]) -> T:
    return with_store(store, lambda rows: act(BudgetManager(rows, user_budgets=project_user_budgets())))
