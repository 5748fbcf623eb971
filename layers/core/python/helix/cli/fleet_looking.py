"""Commands that look at a fleet: status, health, history."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from rich.markup import escape
from rich.table import Table

from helix.adapters.row_slots import RowSlots
from helix.adapters.system import SystemClock, SystemIds
from helix.cli import formats
from helix.cli.looking import console
from helix.cli.places import Place, opened
from helix.cli.refusal import COMPLETED, FAILED, RefusedError
from helix.cli.views import say
from helix.core.health import HealthResult, HealthStatus
from helix.fleet.decisions import DecisionLog
from helix.fleet.deployed import DeployedRuntime
from helix.fleet.desk import NOT_FOUND, FleetDesk
from helix.fleet.health_rows import results, targets
from helix.fleet.rows import read_crashes, read_processes

STYLES = {"running": "green", "healthy": "green", "stopped": "yellow", "degraded": "yellow", "unhealthy": "red"}

MOST = 1000
"""Events that a history is made of."""


def status(place: Place, agent: str | None, as_json: bool) -> int:
    found = asyncio.run(_status(place, agent))
    if as_json:
        for entry in found:
            print(json.dumps(entry, ensure_ascii=False))
        return COMPLETED
    if not found:
        say("this fleet has no agents yet" + (": they are known once they have run" if place.stage is not None else ""))
        return COMPLETED
    rows = [
        [
            entry["agent_id"],
            entry["status"],
            "" if entry["instances"] is None else str(entry["instances"]),
            f"{entry['runs']} of {entry['limit']}" if entry["limit"] is not None else f"{entry['runs']}, no limit",
            str(entry["queued"]),
            entry["health"]["status"],
            _processes(entry["processes"]),
        ]
        for entry in found
    ]
    print_table(["agent", "status", "instances", "runs", "waiting", "health", "processes"], rows)
    return COMPLETED


async def _status(place: Place, agent: str | None) -> list[dict[str, Any]]:
    async with opened(place) as store:
        slots = RowSlots(store)
        looking: FleetDesk | DeployedRuntime
        if place.stage is not None:
            looking = DeployedRuntime(store)
            found = await looking.list_agents() if agent is None else [await looking.get_agent_status(agent)]
        else:
            looking = FleetDesk(store, SystemClock(), slots=slots)
            found = await looking.list() if agent is None else [await looking.status(agent)]
        if agent is not None and found[0]["status"] == NOT_FOUND:
            when = "" if place.stage is None else ": one that is deployed is known once it has run"
            raise RefusedError(f"there is no agent {agent!r} in this fleet{when}")
        counters = await slots.counters()
    for entry in found:
        counter = counters.get(entry["agent_id"])
        entry["limit"] = None if counter is None else counter.bound
        limited = counter is not None and counter.bound is not None
        entry["runs"] = counter.running if counter is not None and limited else _running(entry["processes"], place)
        entry["queued"] = 0 if counter is None else counter.queued
    return found


def _running(processes: Sequence[dict[str, Any]], place: Place) -> int:
    """Deployed, the processes are the runs; here, runs without a limit are not counted."""
    return len(processes) if place.stage is not None else 0


def _processes(processes: Sequence[dict[str, Any]]) -> str:
    told = []
    for info in processes:
        if info["status"] == "stopped" or "pid" not in info:
            continue
        again = f", {formats.count(info['restart_count'], 'restart')}" if info["restart_count"] else ""
        why = f": {formats.cut(info['last_error'], 60)}" if info["last_error"] else ""
        figures = f"pid {info['pid']}, {info['cpu_percent']:.0f} % cpu, {info['memory_mb']:.0f} MB{again}"
        now = figures if info["pid"] is not None else again.removeprefix(", ") or "no process"
        told.append(f"{info['process_id']} {info['status']} ({now}){why}")
    return "\n".join(told)


def health(place: Place, target: str | None, as_json: bool) -> int:
    async def read() -> list[tuple[str, HealthResult]]:
        async with opened(place) as store:
            names = [target] if target is not None else await targets(store)
            return [(name, result) for name in names for result in await results(store, name)]

    found = asyncio.run(read())
    if target is not None and not found:
        raise RefusedError(f"nothing was checked of {target!r} yet")
    if as_json:
        for name, result in found:
            print(json.dumps({"target": name, **result.model_dump(mode="json")}, ensure_ascii=False))
    elif not found:
        say("no health check has reported yet")
    else:
        now = SystemClock().now()
        rows = [
            [name, r.check, r.check_type.value, r.status.value, formats.age(now - (r.checked_at or now)), r.message]
            for name, r in found
        ]
        print_table(["target", "check", "type", "status", "checked", "message"], rows)
    unhealthy = any(result.status is HealthStatus.UNHEALTHY for _, result in found)
    return FAILED if unhealthy else COMPLETED


def history(place: Place, agent: str, limit: int, as_json: bool) -> int:
    found = asyncio.run(_history(place, agent))[-limit:]
    if as_json:
        for event in found:
            print(json.dumps(event, ensure_ascii=False))
    elif not found:
        say(f"nothing has happened to {agent!r} yet")
    else:
        print_table(["when", "what", "why"], [[moment(e["at"]), e["what"], e["why"]] for e in found])
    return COMPLETED


async def _history(place: Place, agent: str) -> list[dict[str, Any]]:
    """Decisions and the lives of processes, by time."""
    async with opened(place) as store:
        log = DecisionLog(store, SystemClock(), SystemIds())
        events: list[dict[str, Any]] = []
        for row in await log.history(agent, limit=MOST):
            change = f"{row.before} -> {row.after}" if row.after != row.before else f"stays at {row.before}"
            applied = "" if row.applied or row.blocked_by else " (not applied)"
            by = f" [{row.trigger}]" if row.trigger else ""
            told = {"at": row.at, "what": f"{row.action} {change}{applied}", "why": f"{row.reason}{by}"}
            events.append({**told, "decision": row.model_dump(mode="json")})
        known = [*await read_crashes(store, agent, MOST), *await read_processes(store, agent)]
        lives = {info.worker_id: info for info in known}
        for info in lives.values():
            process = info.model_dump(mode="json")
            if info.started_at is not None:
                again = f", start {info.restart_count + 1}" if info.restart_count else ""
                what = f"process {info.process_id} started{again}"
                events.append({"at": info.started_at, "what": what, "why": "", "process": process})
            if info.stopped_at is not None:
                what = f"process {info.process_id} {info.status.value}"
                events.append({"at": info.stopped_at, "what": what, "why": info.last_error or "", "process": process})
    return sorted(events, key=lambda event: event["at"])


def moment(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S")


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """The last column gives way on a narrow terminal."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    for index, name in enumerate(columns):
        last = index == len(columns) - 1
        table.add_column(name, no_wrap=not last, overflow="fold" if last else "ignore")
    for row in rows:
        table.add_row(*(_styled(cell) for cell in row))
    console().print(table)


def _styled(cell: str) -> str:
    style = STYLES.get(cell)
    return f"[{style}]{cell}[/{style}]" if style else escape(cell)
