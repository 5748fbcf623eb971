"""The executions in Step Functions of a run, and the place of its log. Operators only.

Law: nothing here calls AWS. The name of an execution follows from its run and part (`helix.ports.launcher`).
"""

from __future__ import annotations

from typing import Any

from helix.core.aws_links import execution_arn, execution_url, log_group_prefix, log_groups_url
from helix.core.json import JsonObject
from helix.core.run_row import RunRow
from helix.core.session_requests import GetExecutions
from helix.core.session_row import SessionRow
from helix.engine.runs.admission import part_of, profile_of
from helix.gateway.backend import Backend
from helix.gateway.connections import Connection
from helix.ports.launcher import Part, execution_name


async def get_executions(backend: Backend, caller: Connection, request: GetExecutions) -> JsonObject:
    session = await backend.get_owned(caller.principal, request.session_id)
    backend.check_operator(caller)
    run_id = request.run_id or session.run_id
    run = await backend.executor.sessions.get_run(session.session_id, run_id)
    prefix = None if backend.stage is None else log_group_prefix(backend.stage)
    shown: list[Any] = [_execution(backend.machine, part) for part in await _parts(backend, caller, session, run)]
    return {
        "session_id": session.session_id,
        "run_id": run_id,
        "stage": backend.stage,
        "executions": shown,
        "log_groups": prefix,
        "logs_url": None if prefix is None else log_groups_url(backend.machine, prefix),
    }


async def _parts(backend: Backend, caller: Connection, session: SessionRow, run: RunRow) -> list[Part]:
    """Return the run's executions so far. After a handoff to an agent with functions of its own, the profile of earlier
    executions is not stored, so only the last one is returned."""
    if not backend.machine:
        return []
    engine, agent = backend.executor.engine, await backend.agent_of(session, caller.principal)
    last = part_of(engine, agent, run)
    first = run.part if last.profile != profile_of(engine, agent) else 1
    return [Part(last.profile, run.session_id, run.run_id, part, last.step) for part in range(first, run.part + 1)]


def _execution(machine: str, part: Part) -> JsonObject:
    arn = execution_arn(machine, part.profile, execution_name(part))
    return {"part": part.part, "arn": arn, "url": execution_url(arn)}
