"""The bench on which the rights of deployed functions are probed. It prepares rows with the administrator's rights.

Law: a probe starts no execution, and invokes one function. So every refusal belongs to that function. `PROBES` names the
rights that each probe uses. A right without a probe is either granted to no role, or cannot be missed offline
(`test_iam.UNSEEN`).
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import quote

from tests.e2e.cloud_executor import AdminApplication
from tests.e2e.crash_play import Idle
from tests.support.cloud_agents.plans import ask, finish, plan, say, use
from tests.support.cloud_agents.tools import noise
from tests.support.offline_cloud import CloudForTests

from helix.core.delivery import Delivery, Position
from helix.core.sequencer import StreamRecord
from helix.engine.history import DELETING, session_key
from helix.engine.verbs import deliver_call, deliver_child, deliver_end, deliver_model
from helix.engine.writing import session_put
from helix.gateway.connections import Connections
from helix.ports.state_store import Delete, Key, Put, Update, When
from helix.services.open_runs import PARTITIONS, open_deletion_put, open_run_key, partition_name
from helix.services.stream_ends import segment_sort
from helix.testing.invariants import read_tree

LARGE = 700_000
HEAVY = {"heavy": noise(LARGE)}
"""The size of a session state that makes its row larger than an item."""
USER = "prober"
FAR = 4_102_444_800.0
Json = dict[str, Any]
_numbers = itertools.count(1)


@dataclass
class Bench:
    """The bench of one function's probes: an engine with the administrator's rights, and sessions of its own."""

    cloud: CloudForTests
    app: AdminApplication
    function: str
    _lost: list[Key] = field(default_factory=list)

    @staticmethod
    def of(cloud: CloudForTests, function: str) -> Bench:
        app = AdminApplication(cloud)
        app.settings = replace(app.settings, model="import:tests.support.cloud_agents:model")
        app.engine.launcher = Idle()
        return Bench(cloud, app, function)

    @property
    def engine(self) -> Any:
        return self.app.engine

    def fresh(self) -> str:
        return f"{USER}:{self.function}_{next(_numbers)}"

    def delivery(self) -> Delivery:
        return Delivery(self.app.ids.new("d"), self.app.clock.now() + 60)

    async def claimed(self, *steps: Json, agent: str = "", state: Json | None = None, **options: Any) -> Position:
        """Claim a run, and leave it unexecuted."""
        session = self.fresh()
        who = agent or ("roomy" if self.function.startswith("roomy") else "talker")
        message = {"message": plan(*steps), "state": state or {}}
        given = {"session_id": session, "user_id": USER, **options}
        handle = await self.app.executor.execute(self.app.agents.named(who), message, **given)
        return Position(session, handle.run_id, 1, 1)

    async def staged(self, *steps: Json, **options: Any) -> tuple[Position, list[str]]:
        """Buy the first step of a run. Return the step's position and its calls."""
        place = await self.claimed(*steps, **options)
        move = await deliver_model(self.engine, place, self.delivery())
        return place, [call.call_id for call in move.calls]

    async def done(self, *steps: Json, **options: Any) -> Position:
        """Execute the calls of the first step, too. Return the position of the next step."""
        place, calls = await self.staged(*steps, **options)
        for call_id in calls:
            await deliver_call(self.engine, place, call_id, self.delivery())
        return replace(place, step=2)

    async def ended(self, *steps: Json, **options: Any) -> Position:
        """Play a run to its end, and leave its effects open."""
        place = await self.claimed(*(steps or (say("Done."),)), **options)
        return await self.to_the_end(place)

    async def child(
        self, *steps: Json, beside: Any = (), agent: str = "boss", **options: Any
    ) -> tuple[Position, Position, str]:
        """Start a sub-agent. Return the parent's position, the sub-agent's position, and the call that waits."""
        asked = use(ask("helper", plan(*steps)), *beside)
        above, calls = await self.staged(asked, finish(summary="all"), agent=agent, **options)
        await deliver_child(self.engine, above, calls[0], f"token of {above.session_id}", self.delivery())
        child = (await read_tree(self.app.store, above.session_id))[1]
        assert child.session is not None
        return above, Position(child.session_id, child.session.run_id, 1, 1), calls[0]

    async def calls(self, above: Position, below: Position) -> list[str]:
        """Pause the sub-agent and its parent, and return the calls that the sub-agent asks about."""
        await deliver_model(self.engine, below, self.delivery())  # this also writes the questions for people
        paused = await self.engine.history.existing(below.session_id)
        asked = [row.call_id for row in (await self.engine.history.open_rows(paused)).calls if row.state == "asked"]
        await self.bought(replace(below, step=2))
        await self.finished(below)
        session = await self.engine.history.existing(above.session_id)
        rows = await self.engine.history.open_rows(session)
        for request in rows.answer.tool_calls[1:]:
            await deliver_call(self.engine, above, request.id, self.delivery())
        await self.bought(replace(above, step=2))
        return asked

    async def to_the_end(self, place: Position) -> Position:
        while (move := await deliver_model(self.engine, place, self.delivery())).kind == "on":
            for call in move.calls:
                await deliver_call(self.engine, replace(place, step=move.step - 1), call.call_id, self.delivery())
            place = replace(place, step=move.step)
        return place

    async def lost(self, stream_id: str) -> None:
        """Point the stream's last row to an object that does not exist. It fails the projector, too, until `clean`."""
        key = Key("streams", stream_id, segment_sort(10**9))
        await self.app.store.transact("lose", [Put(key, {"messages": [], "lost": noise(LARGE)})])
        bucket, s3 = self.app.settings.bucket, self.cloud.aws("s3")
        found = s3.list_objects_v2(Bucket=bucket, Prefix=f"overflow/{quote(stream_id, safe='')}/streams/")["Contents"]
        s3.delete_objects(Bucket=bucket, Delete={"Objects": [{"Key": one["Key"]} for one in found]})
        self._lost.append(key)

    async def clean(self) -> None:
        """Remove what would fail the projector or give a later sweep work to do."""
        while self._lost:
            await self.app.store.transact("clean", [Delete(self._lost.pop())])
        for number in range(PARTITIONS) if self.function == "sweep" else ():
            for row in await self.app.store.query("control", partition_name(number)):
                await self.app.store.transact("clean", [Delete(row.key)])

    async def stream_of(self, place: Position) -> str:
        stream_id: str = (await self.engine.history.existing(place.session_id)).stream_id
        return stream_id

    async def hidden(self, place: Position) -> None:
        """Begin a deletion, and leave it unfinished."""
        session = await self.engine.history.existing(place.session_id)
        hidden = session.model_copy(update={"status": DELETING, "version": session.version + 1})
        unchanged = When(equal={"version": session.version})
        await self.app.store.transact("begin_delete", [session_put(hidden, unchanged), open_deletion_put(hidden, 0.0)])

    async def finished(self, place: Position) -> None:
        await deliver_end(self.engine, place.session_id, place.run_id, self.delivery())

    async def bought(self, place: Position) -> None:
        await deliver_model(self.engine, place, self.delivery())

    async def connected(self, *, operator: bool = False) -> str:
        """Store a connection that has hung up without Helix noticing."""
        name = f"{self.function}{next(_numbers)}="
        await Connections(self.app.store, self.app.clock).open(name, USER, FAR, operator=operator)
        return name

    async def old(self, place: Position) -> None:
        """Move the open run's claim and its last write past the sweep's grace period."""
        ages = [
            Update(open_run_key(place.run_id), set={"started_at": 0.0}),
            Update(session_key(place.session_id), set={"updated_at": 0.0}),
        ]
        await self.app.store.transact("age", ages)


def payload(place: Position, **more: Any) -> Json:
    told = {"session_id": place.session_id, "run_id": place.run_id, "part": place.part}
    return {**told, "step": place.step, "events": place.events, **more}


def of_call(place: Position, call_id: str, **more: Any) -> Json:
    return payload(place, call={"step": 1, "id": call_id}, **more)


Prepare = Callable[[Bench], Awaitable[Json]]


@dataclass(frozen=True)
class Probe:
    """A probe. `prepare` returns the event for the function. `rights` are pairs of a resource and an action."""

    verb: str
    prepare: Prepare
    rights: tuple[tuple[str, str], ...]


PROBES: dict[str, Probe] = {}
SERVICES = {
    "sessions": "dynamodb",
    "streams": "dynamodb",
    "control": "dynamodb",
    "objects": "s3",
    "files": "s3",
    "bucket": "s3",
    "failed": "s3",
    "failures": "sqs",
    "chunks": "kinesis",
    "machines": "states",
    "executions": "states",
    "tokens": "states",
    "connections": "execute-api",
    "notices": "sns",
    "token": "secretsmanager",
    "aliases": "lambda",
    "sweep": "lambda",
    "metrics": "cloudwatch",
    "guardrails": "bedrock",
    "logs": "logs",
}
"""The short names of the resources that rights are on, and the service of each one's actions."""


def probe(verb: str, **rights: str) -> Callable[[Prepare], Prepare]:
    """Register a probe. `rights` maps a resource to its actions, separated by spaces. A right that several probes use is
    named by one of them."""
    named = tuple(
        (what, f"{SERVICES[what]}:{action}") for what, actions in rights.items() for action in actions.split()
    )

    def add(function: Prepare) -> Prepare:
        PROBES[function.__name__] = Probe(verb, function, named)
        return function

    return add


def replace_text(record: StreamRecord, text: str) -> StreamRecord:
    chunk = {"type": "error", "error": text, "code": "x"}
    return record.model_copy(update={"chunks": [chunk]})


def started(stream_id: str, text: str = "") -> StreamRecord:
    record = StreamRecord(session_id=stream_id, run_id="run_x", turn=1, agent_type="talker", kind="run", mark="started")
    return replace_text(record, text) if text else record


def event_of(connection_id: str, body: Json | None = None, **more: Any) -> Json:
    context = {"connectionId": connection_id, "authorizer": {"principal": USER, "expires_at": str(FAR)}}
    return {"requestContext": context, "headers": {}, "body": json.dumps(body) if body else None, **more}
