"""A small world for the sequencer: sessions whose workers stream, stage, crash and return, over a log that keeps every
record at least once. It also has the invariants of docs/protocol.md#invariants that the stream must hold.

The world is a miniature of the protocol's store: one staged answer per (lineage, step), and claims and turns that only
grow. All randomness comes from the given `Random`, so a seed is a history.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any

from helix.core import sequencer
from helix.core.sequencer import Head, StreamRecord
from helix.core.wire import StreamMessage

Admit = Callable[[str, Head, list[StreamRecord]], tuple[Head, list[StreamMessage]]]
Key = tuple[str, int, int, int]  # session, lineage, step, attempt
CALLS = 2


@dataclass
class Session:
    """The true state of one session, as a store would have it."""

    name: str
    turn: int = 0
    over: bool = True
    step: int = 1
    version: int = 0
    lineage: int = 0
    lineages: dict[int, int] = field(default_factory=dict)
    claims: dict[Any, int] = field(default_factory=dict)
    staged: dict[tuple[int, int], int] = field(default_factory=dict)
    done: dict[str, int] = field(default_factory=dict)

    @property
    def last(self) -> tuple[int, int] | None:
        steps = [(step, attempt) for (lineage, step), attempt in self.staged.items() if lineage == self.lineage]
        return max(steps, default=None)

    def calls(self, lineage: int, step: int) -> list[str]:
        return [f"{self.name}/{lineage}/{step}/{number}" for number in range(step % (CALLS + 1))]

    def claim(self, key: Any) -> int:
        self.claims[key] = self.claims.get(key, 0) + 1
        return self.claims[key]


class World:
    def __init__(self, random: Random, sessions: tuple[str, ...] = ("root", "child")) -> None:
        self.random = random
        self.sessions = [Session(name) for name in sessions]
        self.processes: list[Iterator[None]] = []
        self.log: list[StreamRecord] = []
        self.underway: list[StreamRecord] = []
        self.texts: dict[Key, str] = {}
        self.ends: list[tuple[Session, int]] = []

    def run(self, actions: int) -> list[StreamRecord]:
        for session in self.sessions:
            self.new_turn(session)
        weights = {self.advance: 40, self.deliver_again: 4, self.crash: 2, self.turn_over: 2}
        weights |= {self.duplicate: 4, self.end_again: 2, self.stop: 1}
        for _ in range(actions):
            self.random.choices(
                [
                    self.advance,
                    self.deliver_again,
                    self.crash,
                    self.turn_over,
                    self.duplicate,
                    self.end_again,
                    self.stop,
                ],
                weights=[40, 4, 2, 2, 4, 2, 1],
            )[0]()
        self.settle()
        return self.log

    # --- events ---------------------------------------------------------------------------------------------------

    def advance(self) -> None:
        if self.processes:
            process = self.random.choice(self.processes)
            if next(process, "ended") == "ended":
                self.processes.remove(process)

    def deliver_again(self) -> None:
        session = self.random.choice(self.sessions)
        self.processes.append(self.worker(session, session.turn))

    def crash(self) -> None:
        if self.processes:
            self.processes.remove(self.random.choice(self.processes))

    def turn_over(self) -> None:
        self.new_turn(self.random.choice(self.sessions))

    def duplicate(self) -> None:
        if self.underway:
            self.log.append(self.underway.pop(self.random.randrange(len(self.underway))))

    def end_again(self) -> None:
        if self.ends:
            self.put_end(*self.random.choice(self.ends))

    def stop(self) -> None:
        """Interrupt the run, whatever its workers are doing."""
        session = self.random.choice(self.sessions)
        if not session.over:
            session.over = True
            self.put_end(session, session.turn)

    def settle(self) -> None:
        """Do what redelivery and the sweep do in the end, so that every session is over and its end is on the stream."""
        for session in self.sessions:
            if not session.over:
                for _ in self.worker(session, session.turn, last_step=session.step):
                    pass
            self.put_end(session, session.turn)
        self.log += self.underway

    # --- workers --------------------------------------------------------------------------------------------------

    def new_turn(self, session: Session) -> None:
        """Start a new turn at any time: execute, resume, retry, takeover or rewind."""
        mode = self.random.choice(["continue", "close", "rewind"]) if session.turn else "continue"
        if session.turn:
            self.ends.append((session, session.turn))
            if self.random.random() < 0.5:
                self.put_end(session, session.turn)
        session.turn += 1
        session.over = False
        closed = []
        if mode == "close" and (session.lineage, session.step) in session.staged:
            closed = [call_id for call_id in session.calls(session.lineage, session.step) if call_id in session.claims]
            session.done = {call_id: session.claims[call_id] for call_id in closed} | session.done
            session.step += 1
        if mode == "rewind":
            boundary, old = self.random.randint(1, session.step), session.lineage
            session.lineage = session.turn
            session.step = boundary
            for step in range(1, boundary):
                if (old, step) in session.staged:
                    session.staged[session.lineage, step] = session.staged[old, step]
        session.lineages[session.turn] = session.lineage
        self.put(session, session.turn, "run", mark="started", last=session.last)
        for call_id in closed:  # a call with an unknown outcome ends as such
            self.tell_again(session, session.turn, session.step - 1, call_id)
        self.processes.append(self.worker(session, session.turn))

    def worker(self, session: Session, turn: int, last_step: int | None = None) -> Iterator[None]:
        """Play one worker of a run. The run may have several workers, and one may live on after its time."""
        lineage = session.lineages[turn]
        while session.turn == turn and not session.over:
            step = session.step
            if (lineage, step) in session.staged:
                attempt = session.staged[lineage, step]
                self.put(session, turn, "attempt", "step_committed", step=step, attempt=attempt, mark="committed")
            else:
                attempt, n = session.claim((lineage, step)), 0
                key = (session.name, lineage, step, attempt)
                self.texts[key] = ""
                for n in range(self.random.randint(0, 3)):
                    yield
                    piece = f"{step}.{attempt}.{n} "
                    self.texts[key] += piece
                    self.put(session, turn, "attempt", "text_delta", step=step, attempt=attempt, n=n, delta=piece)
                    n += 1
                yield
                fenced = session.turn != turn or session.over or session.step != step
                if fenced or session.claims[lineage, step] != attempt or (lineage, step) in session.staged:
                    return
                session.staged[lineage, step] = attempt
                yield
                self.put(session, turn, "attempt", "step_committed", step=step, attempt=attempt, n=n, mark="committed")
            yield
            calls = session.calls(lineage, step)
            for call_id in calls:
                while session.turn == turn and not session.over and session.step == step:
                    if call_id in session.done:
                        self.tell_again(session, turn, step, call_id)
                        break
                    yield from self.call(session, turn, step, call_id)
            if session.turn != turn or session.over or session.step != step:
                return
            session.version += 1
            session.step += 1
            version = session.version
            if step == last_step or self.random.random() < 0.15:
                session.over = True
            yield
            self.put(session, turn, "fold", "state_patch", step=step, version=version, patches=[])
            yield
            if session.over and session.turn == turn:
                self.ends.append((session, turn))
                self.put_end(session, turn)

    def call(self, session: Session, turn: int, step: int, call_id: str) -> Iterator[None]:
        claim = session.claim(call_id)
        where: dict[str, Any] = {"step": step, "attempt": claim, "call_id": call_id, "tool_call_id": call_id}
        self.put(session, turn, "call", "tool_start", **where, n=0)
        yield
        self.put(session, turn, "call", "custom", **where, n=1)
        yield
        if session.turn == turn and not session.over and session.claims[call_id] == claim:
            session.done[call_id] = claim
            yield
            self.put(session, turn, "call", "tool_end", **where, n=2, mark="committed")
            yield

    def tell_again(self, session: Session, turn: int, step: int, call_id: str) -> None:
        """Stream the end of a finished call again, by a worker that did not execute it and has no sequence numbers."""
        claim = session.done[call_id]
        where: dict[str, Any] = {"step": step, "attempt": claim, "call_id": call_id, "tool_call_id": call_id}
        self.put(session, turn, "call", "tool_end", **where, mark="committed")

    def put_end(self, session: Session, turn: int) -> None:
        self.put(session, turn, "run", mark="end", last=session.last, status="completed")

    def put(self, session: Session, turn: int, kind: Any, chunk: str | None = None, **fields: Any) -> None:
        record = {k: fields.pop(k) for k in list(fields) if k in StreamRecord.model_fields}
        body = {"type": chunk, "session_id": session.name, "step": record.get("step"), "attempt": record.get("attempt")}
        made = StreamRecord(
            session_id=session.name,
            run_id=f"run_{turn}",
            turn=turn,
            kind=kind,
            time=float(len(self.log) + 1),
            chunks=[{**body, **fields}] if chunk else [],
            **record,
        )
        self.log.append(made)
        if self.random.random() < 0.3:  # sent again, or on its way twice, so the other copy arrives at any time
            self.underway.append(made)


def project(world: World, admit: Admit = sequencer.admit, random: Random | None = None) -> list[StreamMessage]:
    """Project the stream of the world's log, in batches cut by `random`."""
    head, rest = Head(), list(world.log)
    out: list[StreamMessage] = []
    while rest:
        size = random.randint(1, 5) if random else len(rest)
        head, messages = admit("root", head, rest[:size])
        # the head is stored between two admissions
        head, out, rest = Head.model_validate_json(head.model_dump_json()), out + messages, rest[size:]
    return out


def violation(world: World, stream: list[StreamMessage]) -> str | None:
    """Return the first broken invariant, or None."""
    if [message.sequence for message in stream] != list(range(1, len(stream) + 1)):
        return "stream_gapless: sequences are not 1, 2, 3"
    for session in world.sessions:
        mine = [message for message in stream if message.session_id == session.name]
        if problem := _turns(session, mine) or _texts(world, session, mine) or _calls(session, mine) or _folds(mine):
            return f"{session.name}: {problem}"
    return None


def _turns(session: Session, stream: list[StreamMessage]) -> str | None:
    turn, ended = 0, 0
    for message in stream:
        if message.turn < turn:
            return f"end_truthful: a {message.kind} of turn {message.turn} comes after turn {turn} began"
        turn = message.turn
        if turn == ended:
            return f"end_truthful: a {message.kind} of turn {turn} comes after its end"
        if message.kind != "chunk":
            ended = turn
    return None if ended == session.turn else "end_truthful: the last turn has no end"


def _texts(world: World, session: Session, stream: list[StreamMessage]) -> str | None:
    shown: dict[Key, str] = {}
    closed: dict[Key, str] = {}
    for message in stream:
        chunk: dict[str, Any] = message.chunk or {}
        if chunk.get("type") == "stream_resync":
            return "stream_gapless: a resync, though nothing was lost"
        if chunk.get("type") not in ("text_delta", "step_committed", "step_discarded"):
            continue
        key = (session.name, session.lineages[message.turn], chunk["step"], chunk["attempt"])
        if key in closed:
            return f"final_is_committed: {chunk['type']} of {key} after its {closed[key]}"
        if chunk["type"] == "text_delta":
            if any(other != key for other in shown):
                return f"final_is_committed: text of {key} while {list(shown)} is open"
            shown[key] = shown.get(key, "") + str(chunk["delta"])
            continue
        closed[key] = chunk["type"]
        text = shown.pop(key, "")
        committed = session.staged.get(key[1:3]) == key[3]
        if chunk["type"] == "step_committed" and (not committed or text != world.texts[key]):
            return f"final_is_committed: {key} is final as {text!r}"
        left_behind = session.lineages.get(message.turn + 1, key[1]) != key[1]
        if chunk["type"] == "step_discarded" and committed and not left_behind:
            return f"final_is_committed: {key} is discarded, though it was committed"
    if shown:
        return f"final_is_committed: {list(shown)} stays open"
    for (lineage, step), attempt in session.staged.items():
        key = (session.name, lineage, step, attempt)
        if world.texts.get(key) and key not in closed:
            return f"final_is_committed: {key} is never committed on the stream"
    return None


def _calls(session: Session, stream: list[StreamMessage]) -> str | None:
    claims: dict[str, tuple[int, list[str]]] = {}
    turns: dict[str, int] = {}
    for message in stream:
        chunk: dict[str, Any] = message.chunk or {}
        if chunk.get("type") not in ("tool_start", "custom", "tool_end"):
            continue
        call_id = chunk["tool_call_id"]
        claim, seen = claims.get(call_id, (0, []))
        if chunk["attempt"] < claim or seen[-1:] == ["tool_end"]:
            return f"stream_gapless: {chunk['type']} of claim {chunk['attempt']} after {seen} of claim {claim}"
        seen = [*seen, chunk["type"]] if chunk["attempt"] == claim else [chunk["type"]]
        expected = [["tool_start"], ["tool_start", "custom"], ["tool_start", "custom", "tool_end"]]
        unknown = [["tool_end"], ["tool_start", "tool_end"]]  # a later turn closed it before it got further
        if seen not in expected and not (seen in unknown and message.turn > turns[call_id]):
            return f"stream_gapless: claim {chunk['attempt']} of {call_id} shows {seen}"
        turns.setdefault(call_id, message.turn)
        claims[call_id] = chunk["attempt"], seen
    for call_id, claim in session.done.items():
        _, lineage, step, _ = call_id.split("/")
        if int(lineage) != session.lineage or int(step) >= session.step:
            continue  # a rewind abandoned it, or its step is still open and the next worker will stream it
        if claims.get(call_id, (0, []))[1][-1:] != ["tool_end"]:
            return f"stream_gapless: call {call_id} is done, and its end is not shown"
        if claims[call_id][0] != claim:
            return f"stream_gapless: the end of {call_id} is of claim {claims[call_id][0]}, not of {claim}"
    return None


def _folds(stream: list[StreamMessage]) -> str | None:
    folds = [(m.turn, m.chunk["step"]) for m in stream if m.chunk and m.chunk.get("type") == "state_patch"]
    return None if len(set(folds)) == len(folds) else "stream_gapless: a fold is shown twice"


def mutant(old: str, new: str) -> Admit:
    """Return `admit` of a sequencer with one piece of its text replaced, which removes a rule."""
    source = inspect.getsource(sequencer._Admission)
    assert source.count(old) == 1, f"the sequencer has {source.count(old)} places {old!r}: update the mutant"
    space = dict(vars(sequencer))
    exec(source.replace(old, new), space)
    exec(inspect.getsource(sequencer.admit), space)
    admit: Admit = space["admit"]
    return admit


_ATTEMPT = "if mine < current or (mine == current and not session.open):"
_TURN = "if record.turn < session.turn:"
_OVER = "if session.over:\n            return\n        "
_SETTLE = "self._close_attempt(session, record)\n        "
_LAST = "committed = record.last == (session.step, session.attempt)"

# One rule each. Removing any of them must break an invariant in some history.
MUTANTS: dict[str, tuple[str, str]] = {
    "n of an attempt": ("if record.n <= session.n:", "if False:"),
    "n of a call": ('if record.mark != "committed" and record.n <= n:', "if False:"),
    "an end of a call needs no n": ('if record.mark != "committed" and record.n <= n:', "if record.n <= n:"),
    "claim of a call": ("if ended or record.attempt < claim:", "if ended:"),
    "one tool_end per call": ("if ended or", "if"),
    "calls of an older step": ("if record.step < session.step:", "if False:"),
    "older attempts": (_ATTEMPT, "if mine == current and not session.open:"),
    "closed attempts": (_ATTEMPT, "if mine < current:"),
    "a newer attempt discards": ("if session.open:\n                self._mark(", "if 0:\n                self._mark("),
    "older turns": (_TURN, "if False:"),
    "older turns of ends": (_TURN, 'if record.turn < session.turn and record.mark != "end":'),
    "nothing after the end": (f"{_OVER}if record.kind", "if record.kind"),
    "one end": (f"{_OVER}self._close_attempt", "self._close_attempt"),
    "a start settles": (f"{_SETTLE}retained", "retained"),
    "an end settles": (f"{_SETTLE}self._emit", "self._emit"),
    "settling commits": (_LAST, "committed = False"),
    "settling discards": (_LAST, "committed = True"),
    "a start keeps the step": (
        "retained = record.last is not None and record.last[0] == session.step",
        "retained = False",
    ),
    "version of a fold": ("if record.version > session.version:", "if True:"),
}
