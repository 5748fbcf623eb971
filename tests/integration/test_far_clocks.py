"""Two workers over DynamoDB whose machines' clocks differ by five minutes. Neither takes over the other's live run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import botocore.session
import pytest
from tests.support.aws_resources import fresh, make_tables, moto, tables
from tests.support_run import Gate, a_tool, agent, call, calls, result_of

from helix import LocalExecutor, ScriptedModel
from helix.adapters.aws.clock import TableClock
from helix.adapters.aws.dynamodb import DynamoDBStateStore
from helix.core.errors import AgentAlreadyRunningError
from helix.core.registry import AgentRegistry
from helix.testing.aws import LockedClient
from helix.testing.clocks import ShiftedClock

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
FAR_S = 300.0


@pytest.fixture
def prefix() -> Iterator[str]:
    with moto() as clients:
        found = fresh()
        make_tables(clients["dynamodb"], found)
        yield found


def worker(prefix: str, ahead_s: float, script: Any) -> LocalExecutor:
    clock, session = TableClock(ShiftedClock(ahead_s)), botocore.session.get_session()
    clock.follow(session)
    store = DynamoDBStateStore(
        LockedClient(session.create_client("dynamodb")), tables(prefix), clock=clock, poll_s=0.02
    )
    return LocalExecutor(store, model=ScriptedModel(script), clock=clock, registry=AgentRegistry())


@pytest.mark.parametrize(("first_s", "second_s"), [(0.0, FAR_S), (FAR_S, 0.0), (-FAR_S, FAR_S)])
async def test_a_run_is_not_taken_over_by_a_worker_with_another_clock(
    prefix: str, first_s: float, second_s: float
) -> None:
    gate, ran = Gate(), []

    async def work(_: Any, __: Any) -> str:
        ran.append("work")
        await gate.wait()
        return "done"

    who = agent(tools=[a_tool("work", work)])
    script = [calls(call("work")), "finished"]
    first, second = worker(prefix, first_s, script), worker(prefix, second_s, script)
    handle = await first.execute(who, "go", session_id="ses_far")
    await gate.reached()
    with pytest.raises(AgentAlreadyRunningError):
        await second.resume(who, "ses_far")
    with pytest.raises(AgentAlreadyRunningError):
        await second.execute(who, "go on", session_id="ses_far")
    gate.open()
    assert (await result_of(handle)).output == "finished"
    assert ran == ["work"]
    await first.close()
    await second.close()
