"""Stop a stage's runs and executions before the stage is deleted.

Law: the schedules are disabled first, because the sweep would restart stopped runs. Executions are stopped, because
CloudFormation deletes a state machine only after its last execution has ended, and a run may wait for days. If the data is
retained, each active or queued run is failed first, so that it can be retried later. The stage's own `fail_run` is invoked
for each run, because the event of a stopped execution may be lost. Parents fail before their sub-agents, because the
failure of a sub-agent wakes an active parent.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable, Iterator
from typing import Any

from botocore.exceptions import ClientError

from helix.cli.cloud.stack import Deployed
from helix.core.errors import DamagedRowError, RunNotFoundError
from helix.core.json import JsonObject
from helix.engine.history import History
from helix.ports.clock import Clock
from helix.ports.state_store import StateStore
from helix.services.open_runs import PARTITIONS, partition_name

PATIENCE_S = 300.0
LOOK_S = 1.0
PAGE = 100
AT_ONCE = 8
CAUSE = "the stage is being deleted (helix destroy)"
DELETION = "delete:"
"""The prefix of index entries that stand for deletions, not runs."""


@contextlib.contextmanager
def schedules_off(events: Any, deployed: Deployed) -> Iterator[None]:
    """Disable the stage's schedules before the block. They stay disabled afterwards, unless the block raises an error."""
    found = [events.describe_rule(Name=rule) for rule in deployed.rules]
    scheduled = [rule["Name"] for rule in found if rule.get("ScheduleExpression") and rule["State"] == "ENABLED"]
    try:
        for rule in scheduled:
            events.disable_rule(Name=rule)
        yield
    except BaseException:
        schedules_on(events, deployed)
        raise


def schedules_on(events: Any, deployed: Deployed) -> None:
    """Enable the schedules, as in the template. A previous deletion that did not finish may have left them disabled."""
    for rule in deployed.rules:
        with contextlib.suppress(ClientError):  # the rule has been deleted by now
            if events.describe_rule(Name=rule)["State"] == "DISABLED":
                events.enable_rule(Name=rule)


class Stopping:
    """Stops a stage's runs and executions. `store` is the stage's store if its data is retained, otherwise None."""

    def __init__(
        self, client: Callable[[str], Any], deployed: Deployed, fail_run: str, store: StateStore | None, clock: Clock
    ) -> None:
        self._states, self._functions = client("stepfunctions"), client("lambda")
        self._machines, self._fail_run = deployed.machines, fail_run
        self._store, self._clock = store, clock

    async def stop(self) -> int:
        """Stop executions and runs until none are left. The end of one may start the next in the queue. Return the number
        still left after `PATIENCE_S`."""
        until = self._clock.now() + PATIENCE_S
        while True:
            runs = await self._open_runs()
            await self._fail_all(runs)
            if not (left := self._stop_executions() + len(runs)) or self._clock.now() > until:
                return left
            await self._clock.sleep(LOOK_S)

    def _stop_executions(self) -> int:
        """Stop all running executions and return how many there were."""
        pages = self._states.get_paginator("list_executions")
        count = 0
        for machine in self._machines:
            for page in pages.paginate(stateMachineArn=machine, statusFilter="RUNNING"):
                for execution in page["executions"]:
                    with contextlib.suppress(self._states.exceptions.ValidationException):  # the execution has ended
                        self._states.stop_execution(
                            executionArn=execution["executionArn"], error="Helix.StageDeleted", cause=CAUSE
                        )
                    count += 1
        return count

    async def _open_runs(self) -> list[tuple[int, JsonObject]]:
        """Return a batch of runs that have not ended or whose effects are pending. Each item is the run's number of
        ancestors and the payload for `fail_run`."""
        if self._store is None:
            return []
        history, found = History(self._store), list[tuple[int, JsonObject]]()
        for number in range(PARTITIONS):
            for row in await self._store.query("control", partition_name(number), start="", limit=PAGE):
                session_id, run_id = row.value.get("session_id"), row.key.sort
                if isinstance(session_id, str) and not run_id.startswith(DELETION):
                    with contextlib.suppress(RunNotFoundError, DamagedRowError):  # such a run cannot continue
                        session, run = await history.with_run(session_id, run_id)
                        depth = len(session.ancestors) if session is not None else 0
                        found.append((depth, {"session_id": session_id, "run_id": run_id, "part": run.part}))
        return found

    async def _fail_all(self, runs: list[tuple[int, JsonObject]]) -> None:
        for depth in sorted({depth for depth, _ in runs}):
            level = [run for at, run in runs if at == depth]
            for start in range(0, len(level), AT_ONCE):
                await asyncio.gather(*(asyncio.to_thread(self._fail, run) for run in level[start : start + AT_ONCE]))

    def _fail(self, run: JsonObject) -> None:
        """Invoke `fail_run`. If the run does not end, the next round finds it again and counts it as remaining."""
        error: JsonObject = {"Error": "Helix.StageDeleted", "Cause": CAUSE}
        payload = json.dumps({**run, "error": error}).encode()
        self._functions.invoke(FunctionName=self._fail_run, Qualifier="live", Payload=payload)
