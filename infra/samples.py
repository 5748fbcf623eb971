"""Writes the rows for the events in `events/`: sessions with one run each, an API key, and the token for /metrics.

Law: the rows use the ids in the files, so an event works without changes. A run is claimed like any other, but its
execution is not started: the run waits until the user invokes a function.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from helix.adapters.aws.direct import DirectStreams
from helix.adapters.aws.dynamodb import DynamoDBStateStore
from helix.adapters.aws.kinesis import KinesisStreams
from helix.adapters.system import SystemClock, SystemIds
from helix.core.agents import AnyAgent
from helix.engine.engine import Engine
from helix.engine.placement import IN_FUNCTIONS
from helix.gateway.authoriser import ApiKeys, Principal
from helix.local.cloud import OfflineCloud
from helix.ports.launcher import ExecutionState, Part
from helix.ports.state_store import StateStore
from helix.runtime.agent_models import Agents
from helix.runtime.launching import StepFunctionsExecutor
from helix.services.hook_manager import HookManager
from helix.services.row_budgets import RowBudgets

USER = "ada"
"""The user in the events of the WebSocket API."""
QUESTION = "Can damaged goods be returned?"
ORPHAN = ("ses_01KA8ZQ3V5T1N2C6X7M8P9R0SH", "run_000001_01KA8ZQ3V6B4D5F7G9H1J2K3M7")
"""The session and run id of a run that was claimed long ago, and whose execution never started. `sweep` finds it."""
LONG_AGO_S = 3600.0


class IdleLauncher:
    """A `Launcher` that does not start executions."""

    async def start(self, part: Part) -> None:
        return

    async def state(self, part: Part) -> ExecutionState:
        return "none"

    async def stop(self, part: Part, reason: str) -> None:
        return

    async def wake(self, token: str) -> None:
        return


class ShiftedClock(SystemClock):
    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def now(self) -> float:
        return super().now() - self._seconds


class GivenIds:
    """A source of ids that returns given ids in order."""

    def __init__(self, *ids: str) -> None:
        self._ids = iter(ids)

    def new(self, prefix: str) -> str:
        return f"{prefix}_{next(self._ids)}"


async def write_samples(cloud: OfflineCloud, events: Path, agent: AnyAgent) -> None:
    """Write an open run of `agent` for each session in the state machine's events, and one that `sweep` finds. Also write
    the API key in the authoriser's events, and the token in the event for /metrics."""
    now = _executor(cloud, SystemClock())
    for session_id, run_id in _runs(events):
        await now.execute(agent, QUESTION, session_id=session_id, run_id=run_id, user_id=USER)
    session_id, run_id = ORPHAN
    earlier = _executor(cloud, ShiftedClock(LONG_AGO_S))
    await earlier.execute(agent, QUESTION, session_id=session_id, run_id=run_id, user_id=USER)
    await write_key(now.store, events)
    _, token = _read(events, "health_metrics")["headers"]["authorization"].split()
    retained = cloud.client("secretsmanager")
    retained.put_secret_value(SecretId=cloud.outputs["MetricsSecretArn"], SecretString=token)


async def write_key(store: StateStore, events: Path) -> None:
    """Write the API key in the authoriser's events as a key of `USER`."""
    _, key_id, secret = _read(events, "ws_authorize")["headers"]["Authorization"].split("_")
    half = len(secret) // 2
    await ApiKeys(store, SystemClock()).create(
        GivenIds(key_id, secret[:half], secret[half:]), Principal(USER), name="sample"
    )


def _runs(events: Path) -> list[tuple[str, str]]:
    """Return each distinct (session, run) in the events of a state machine, and in those of its end."""
    known = [_read(events, name) for name in ("call_model", "fail_run")]
    known.append(json.loads(_read(events, "fail_run_status")["detail"]["input"]))
    return [(event["session_id"], event["run_id"]) for event in known]


def _read(events: Path, name: str) -> dict[str, Any]:
    event: dict[str, Any] = json.loads((events / f"{name}.json").read_text(encoding="utf-8"))
    return event


def _executor(cloud: OfflineCloud, clock: SystemClock) -> StepFunctionsExecutor:
    tables = {name: cloud.table(name) for name in ("sessions", "streams", "control")}
    store = DynamoDBStateStore(cloud.client("dynamodb"), tables, clock=clock)  # type: ignore[arg-type]
    log = DirectStreams(store, clock=clock)
    chunks = cloud.outputs.get("ChunkStream")
    agents = Agents(None, None)
    engine = Engine(
        store=store,
        streams=KinesisStreams(cloud.client("kinesis"), chunks, log, clock) if chunks else log,
        clock=clock,
        ids=SystemIds(),
        models=agents.model_of,
        agents=agents.named,
        hooks=HookManager(None),
        budgets=RowBudgets(store),
        placement=IN_FUNCTIONS,
        launcher=IdleLauncher(),
    )
    return StepFunctionsExecutor(engine, agents)
