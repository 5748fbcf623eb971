"""The machine of the walks with people: what clients ask for, recorded in the ledger, and the end of a walk."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

from tests.properties.inbox_watch import InboxWatch
from tests.properties.people_cast import MARKS, PeopleCast
from tests.properties.people_fold import check_folds
from tests.properties.people_ledger import Ledger, Reply, Request, Sent
from tests.properties.people_reports import Report, Reports
from tests.properties.people_stores import DynamoStores
from tests.properties.people_watch import PeopleChecks, PeopleWatcher
from tests.properties.protocol_cast import Purchase
from tests.properties.protocol_company import ProtocolMachine
from tests.properties.protocol_play import SETTINGS
from tests.properties.protocol_world import Call

from helix.core.entries import CallRow
from helix.core.errors import CallerError
from helix.core.handles import Confirmation
from helix.core.json import JsonValue
from helix.core.questions import open_questions
from helix.ports.state_store import StateStore
from helix.runtime.executor import Executor
from helix.services.waits import PARTITION

SESSIONS = {"a": "solo", "b": "boss", "c": "clerk"}
SOLO = ["survey>text", "free+survey>text", "pledge>text", "send+free>text", "send>send>text", "ask_user>text"]
SOLO += [
    "survey+pledge>text",
    "gated+once>text",
    "care>free>text",
    "text",
    "boom",
    "form+ask_user>text",
    "free>fatal>text",
]
SOLO += ["ship>text", "ship+free>text", "ship+survey>text", "free>pal>ship>text", "pal+once>home>text", "pal>text>text"]
SOLO += ["once+send>text", "survey>pledge>text", "pledge+once>text"]
BOSS = [
    *SOLO,
    "kid>text",
    "kidask>text",
    "kidask+survey>text",
    "kidsend>text",
    "kidship+free>text",
    "kidgate+ask_user>text",
    "kidform+kid>text",
]
HOWS = ["steer", "steer", "steer", "queue", "queue", "queue", "interrupt", "refuse"]
Ask = Callable[[Executor], Coroutine[Any, Any, Any]]


class PeopleMachine(ProtocolMachine):
    casts, watchers, checkers = PeopleCast, PeopleWatcher, PeopleChecks
    cast: PeopleCast
    watcher: PeopleWatcher

    def __init__(self) -> None:
        super().__init__()
        self.agents = dict(SESSIONS)
        self.ledger = Ledger(self.world, self.cast)
        self.reports = Reports(self.ledger, self.cast)
        self.inbox = InboxWatch(self.world)
        self.tags = 0
        self.rng = Random(0)

    def _store(self) -> StateStore:
        return DynamoStores() if self.kind == "dynamodb" else super()._store()

    def plan(self, session_id: str, n: int) -> str:
        plans = BOSS if self.agents[session_id] == "boss" else SOLO
        return self.tagged(plans[n % len(plans)])

    def tagged(self, plan: str, mark: str = "") -> str:
        self.tags += 1
        return f"{plan} ~{self.tags}{' ' if mark else ''}{mark}"

    def ask(
        self, p: int, name: str, work: Ask, request: Request, told: Callable[[Any], Any] = lambda value: None
    ) -> None:
        """Let a client ask: of a process, or of a function if `p` is 4 or 5. The request knows its outcome afterwards."""

        async def asked(executor: Executor) -> None:
            try:
                request.value = told(await work(executor))
            except CallerError as error:
                request.ended, request.outcome = self.ledger.now(), type(error).__name__
                raise
            request.ended, request.outcome = self.ledger.now(), "ok"

        if p < 4:
            process = self.process(p)
            process.do(asked(process.executor))
        else:
            self.cloud.do(name, asked)

    def request(self) -> Request:
        return Request(self.ledger.now())

    # --- acts -------------------------------------------------------------------------------------------------------

    def speak(self, rng: Random, how: str = "", then: int = 0) -> None:
        """Send a message in any way. Some are sent twice under one key, by two clients at once."""
        how, sid = how or rng.choice(HOWS), rng.choice(sorted(self.agents))
        agent = self.agent(sid)
        if rng.random() < 0.1 and (children := self._children()):
            sid, how = rng.choice(children), "steer"
            agent = self.cast.agents["helper"]
        plans = BOSS if agent.name == "boss" else SOLO
        mark = rng.choice(MARKS) if agent.guards and rng.random() < 0.15 else ""
        text = self.tagged(rng.choice(plans), mark)
        sent = Sent(sid, str(self.tags), how)
        self.ledger.sent.append(sent)
        key = f"key{self.tags}" if rng.random() < 0.4 else None
        for _ in range(rng.choice([1, 2]) if key else 1):
            self._send(rng.randrange(6), agent, sent, text, key)
        self.after(then)
        if key and rng.random() < 0.5:
            self._send(rng.randrange(6), agent, sent, text, key)
        self.after()

    def _send(self, p: int, agent: Any, sent: Sent, text: str, key: str | None) -> None:
        self.say(f"{sent.how} {sent.session} {text!r} by {p} key={key}")
        how: Any = sent.how
        request = self.request()
        sent.requests.append(request)

        def told(handle: Any) -> str:
            if handle.queued_id is not None:
                sent.queued_id = handle.queued_id
            return str(handle.run_id)

        self.ask(
            p,
            "execute",
            lambda x: x.execute(agent, text, session_id=sent.session, when_running=how, key=key),
            request,
            told,
        )

    def _children(self) -> list[str]:
        return [s.session_id for s in self.sessions() if s.parent is not None and s.status in ("running", "paused")]

    def withdraw(self, rng: Random, then: int = 0) -> None:
        known = [sent for sent in self.ledger.sent if sent.queued_id]
        if not known:
            return
        waiting = [s for s in known if any(k.sort == f"i#{s.queued_id}" for k in self.world.mirror)]
        sent = rng.choice(waiting or known[-3:])
        for _ in range(rng.choice([1, 1, 2])):
            p, request = rng.randrange(6), self.request()
            self.say(f"withdraw {sent.tag} of {sent.session} by {p}")
            sent.withdrawals.append(request)
            self.ask(p, "withdraw", lambda x: x.withdraw(sent.session, sent.queued_id), request, lambda value: value)
        self.after(then)

    def reply(self, rng: Random, then: int = 0) -> None:
        """Answer a call that asks: rightly or not, once or twice, of this round or of another one."""
        asked = [
            (key, CallRow.model_validate(value))
            for key, value in sorted(self.world.mirror.items())
            if key.table == "sessions" and value.get("kind") == "call" and value["state"] == "asked"
        ]
        asked = [(key, row) for key, row in asked if self._root(key.partition) in self.agents]
        if not asked:
            return
        key, row = rng.choice(asked)
        sid = self._root(key.partition)
        for _ in range(rng.choice([1, 1, 1, 2, 3])):
            self._respond(rng, sid, key.partition, row)
        self.after(then)

    def _respond(self, rng: Random, sid: str, owner: str, row: CallRow) -> None:
        p, agent = rng.randrange(6), self.agent(sid)
        if row.ask != "question":
            confirmation = Confirmation(row.call_id, rng.random() < 0.8)
            if row.ask == "client":
                confirmation = Confirmation(row.call_id, data={"x": self.request().begun})
            values: list[JsonValue] | None = None
        else:
            fits = rng.random() < 0.8
            values = [self._value(question.answer_schema, fits) for question in open_questions(row.questions)]
            data: JsonValue = values[0] if len(values) == 1 else [*values]
            number = rng.choice([None, row.claim, row.claim, row.claim, row.claim - 1])
            confirmation = Confirmation(row.call_id, rng.random() < 0.95, data, round=number)
        request = self.request()
        self.say(f"reply {owner} {row.call_id} {row.ask} {confirmation.data} round={confirmation.round} by {p}")
        if values is not None and confirmation.approved:
            self.ledger.replies.append(Reply(owner, row.call_id, values, request, number == row.claim - 1))
        self.ask(p, "answer", lambda x: x.answer(agent, sid, confirmation), request)

    def _value(self, schema: dict[str, Any], fits: bool) -> JsonValue:
        n = self.request().begun
        return n if (schema["type"] == "integer") == fits else f"v{n}"

    def report(self, rng: Random, then: int = 0) -> None:
        """Report to a call that ends elsewhere, once or several times, through one or several services."""
        for _ in range(rng.choice([1, 1, 2, 3]) if self.cast.left else 0):
            p, report = rng.randrange(6), self.reports.choose(rng, self.request())
            self.say(f"report {report.how} {report.value} of {report.left.key} forged={report.is_forged} by {p}")
            self._report(p, report)
        self.after(then)

    def cut(self, rng: Random, then: int = 0) -> None:
        """Stop a run in the middle of an answer, as a person who has read its beginning."""
        found = self.until(self._keepers)
        if not found:
            return
        (call, bought), p = rng.choice(found), rng.randrange(6)
        sid = self._root(bought.session_id)
        self.say(f"cut {call.name} of {sid} by {p}")
        self.world.held = [call]
        self.ask(p, "interrupt", lambda x: x.interrupt(sid, "stop"), self.request())
        self.after(20)
        self.world.advance(SETTINGS.stop_poll_s + 1)
        self.after(20)
        self.world.held = []
        self.after(then)

    def _keepers(self) -> list[tuple[Call, Purchase]]:
        """Return the model calls under way whose agents keep cut answers."""
        calls = [call for call in self.world.choices() if call.kind == "model"]
        bought = [(call, self.cast.ghost.purchases[int(call.name.removeprefix("#")) - 1]) for call in calls]
        return [(call, one) for call, one in bought if self.cast.agents[one.agent].keep_partial]

    def _report(self, p: int, report: Report) -> None:
        verbs: dict[str, Ask] = {
            "complete": lambda x: x.complete_call(report.token, report.value),
            "fail": lambda x: x.fail_call(report.token, report.value),
            "prolong": lambda x: x.prolong_call(report.token),
        }
        self.ask(p, f"{report.how}_call", verbs[report.how], report.request)

    # --- the end ----------------------------------------------------------------------------------------------------

    def _sweep(self) -> bool:
        """Let time pass until the next wait ends, if nothing else is left to do."""
        if super()._sweep():
            return True
        waits = list(self.world.rows("control", PARTITION))
        if not waits:
            return False
        due = min(float(sort.partition("#")[0]) for sort, _ in waits)
        self.say("the next wait is due")
        self.world.advance(max(due - self.world.clock.now(), 0) + 1)
        self.cloud.sweep()
        return True

    def finish(self) -> None:
        """Check everything, and then that each session runs, stops and is deleted."""
        self.drain()
        self.checks.at_rest()
        self.inbox.at_rest()
        self.ledger.check()
        self.ledger.check_cuts(self.watcher.cuts)
        self.reports.check()
        self.world.loop.run_until_complete(self._shipped())
        self.world.loop.run_until_complete(check_folds(self))
        self.raise_limit(more=100_000)
        for sid in sorted(self.agents):
            if self.watcher.view.session(sid) is not None:
                self._use(sid)
        self.checks.at_rest()

    def _use(self, sid: str) -> None:
        process, agent = self.processes[0], self.agent(sid)
        request = self.request()
        self.ask(0, "execute", lambda x: x.execute(agent, self.tagged("text"), session_id=sid), request)
        self.drain()
        session = self.watcher.view.session(sid)
        assert request.outcome == "ok" and session is not None, f"never_stuck: {sid} takes no message: {request}"
        self.ask(0, "execute", lambda x: x.execute(agent, self.tagged("free>text"), session_id=sid), request)
        self._everybody(30)
        process.do(process.executor.abort(agent, sid, "enough"))
        self.drain()
        self.checks.deleted.add(sid)
        deletion = self.request()
        self.ask(0, "delete", lambda x: x.delete(sid), deletion)
        self.drain()
        assert deletion.outcome == "ok", f"never_stuck: {sid} cannot be deleted: {deletion}"
        left = [key for key in self.world.mirror if key.partition == sid and key.table in ("sessions", "streams")]
        assert not left, f"nothing_left: {left}"

    def figures(self) -> Counter[str]:
        """Return what happened in the walk, by kind."""
        ledger, moves = self.ledger, self.ledger.moves
        told = Counter(f"requests: {one.outcome}" for sent in ledger.sent for one in sent.requests)
        told += Counter(f"replies: {reply.request.outcome}" for reply in ledger.replies)
        told += Counter(f"messages: {fate}" for fate, times in self.inbox.moved.items() for _ in range(times))
        told += Counter(f"verdicts: {judged.on}" for judged in self.cast.judged)
        told += Counter(f"reports: {one.request.outcome}" for one in self.reports.sent if not one.is_forged)
        told["reports: forged"] = sum(one.is_forged for one in self.reports.sent)
        told["answers: cut"] = len(self.watcher.cuts)
        told["answers: of an agent that took over"] = sum(bought.agent == "pal" for bought in self.cast.ghost.purchases)
        told["answers that tools got"] = len(self.cast.seen)
        told["model calls"] = len(self.cast.ghost.purchases)
        told["workers killed"] = sum(actor.dead for actor in self.world.actors)
        for name in ("claim_takeover", "stop_interrupt", "end_wait", "end_paused", "stop_abort"):
            told[f"transactions: {name}"] = moves[name]
        told["transactions"] = moves.total()
        return told
