"""The model of a walk with people: plain lists of what clients sent and were told, compared with the rows at the end."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from tests.properties.people_cast import DEFAULT, PeopleCast, tag_of
from tests.properties.protocol_watch import View
from tests.properties.protocol_world import Change, World

from helix.core.entries import CallRow
from helix.core.json import JsonValue
from helix.core.session_row import SessionRow
from helix.ports.state_store import Key, Value

UNKNOWN = "unknown"
"""The outcome of a request whose client or service died before the answer."""


@dataclass
class Request:
    """A request of a client. `begun` and `ended` are its places in the order of all events that clients see."""

    begun: int
    ended: int | None = None
    outcome: str = UNKNOWN
    """`ok`, the name of the error that refused it, or `unknown`."""
    value: Any = None


@dataclass
class Sent:
    """A message that a client sent, perhaps several times under one key. `how` is `when_running`, or another verb."""

    session: str
    tag: str
    how: str
    requests: list[Request] = field(default_factory=list)
    withdrawals: list[Request] = field(default_factory=list)
    queued_id: str = ""

    @property
    def accepted(self) -> list[Request]:
        return [request for request in self.requests if request.outcome == "ok"]

    @property
    def withdrawn(self) -> bool:
        return any(one.value == "withdrawn" for one in self.withdrawals)


@dataclass
class Reply:
    """An answer that a client gave to a call's questions: a value to each."""

    session: str
    call_id: str
    values: list[JsonValue]
    request: Request
    late: bool = False
    """Whether the answer names a round that was over."""


class Ledger:
    """What clients know. `deleted` are sessions that a client deleted: nothing is known about their rows."""

    def __init__(self, world: World, cast: PeopleCast) -> None:
        self.world, self.cast, self.view = world, cast, View(world)
        self.sent: list[Sent] = []
        self.replies: list[Reply] = []
        self.deleted: set[str] = set()
        self.events = 0
        self.moves: Counter[str] = Counter()
        world.observers.append(self._committed)

    def now(self) -> int:
        self.events += 1
        return self.events

    def _committed(self, name: str, changes: list[Change]) -> None:
        self.moves[name] += 1
        for key, before, after in changes:
            if (key.table, key.sort) == ("sessions", "session") and before is not None and after is None:
                self.deleted.add(key.partition)

    # --- messages ---------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Check everything that holds once the world is at rest."""
        for sent in self.sent:
            if sent.session not in self.deleted:
                self._message(sent)
        for session in self.view.sessions():
            if session.session_id not in self.deleted:
                self._order(session)
        self._answers()
        done = Counter(key for key in self.cast.done if key.split("/")[0] not in self.deleted)
        repeated = [key for key, times in done.items() if times > 1]
        assert self.world.far or not repeated, f"effect_once: {repeated} were pledged more than once"

    def _message(self, sent: Sent) -> None:
        if self.view.session(sent.session) is None:
            assert not sent.accepted, f"inbox_once: {sent} was accepted, and there is no session"
            return
        places, waits = self.places(sent), self._waits(sent)
        visible = self.visible(sent.session).count(sent.tag)
        assert visible <= 1, f"inbox_once: {sent.tag} is {visible} times in the history of {sent.session}: {sent}"
        again = self.is_rewound(sent.session)
        assert again or len(places) + waits <= 1, f"inbox_once: {sent} is at {places} and waits {waits} times"
        if waits:
            assert not places or again, f"inbox_once: {sent} is at {places} and waits"
        runs = {request.value for request in sent.accepted}
        assert len(runs) <= 1, f"one_run_per_key: {sent} got the runs {runs}"
        if sent.withdrawn:
            assert not places and not waits, f"inbox_once: {sent} was withdrawn, and is at {places}, waits {waits}"
        elif sent.accepted:
            gone = any(one.outcome == UNKNOWN for one in sent.withdrawals)
            assert places or waits or gone, f"inbox_once: {sent} was accepted and is nowhere"
            if not again:
                assert visible or waits or gone, f"inbox_once: {sent} was accepted, and history does not have it"
        elif all(request.outcome != UNKNOWN for request in sent.requests):
            assert not places and not waits, f"inbox_once: {sent} was refused, and is at {places}, waits {waits}"
        for one in sent.withdrawals:
            if one.value == "delivered":
                assert places, f"inbox_once: {sent} was reported as delivered, and is not in history"
            elif one.value == "not_found" and not again:
                others = [w for w in sent.withdrawals if w is not one and w.value in ("withdrawn", None)]
                assert others, f"inbox_once: {sent} was not found, although nobody took it back"

    def places(self, sent: Sent) -> list[str]:
        """Return the keys of the rows of messages, in any lineage, that have the message."""
        rows = self.world.rows("sessions", sent.session, "m#")
        return [sort for sort, value in rows if value["kind"] == "user" and tag_of(value["content"]) == sent.tag]

    def _waits(self, sent: Sent) -> int:
        rows = self.world.rows("sessions", sent.session, "i#")
        return sum(tag_of(value["content"]) == sent.tag for _, value in rows)

    def visible(self, session_id: str) -> list[str]:
        session = self.view.session(session_id)
        assert session is not None
        rows = self.view.history(session_id, session.lineage, session.count)
        return [tag_of(row["content"]) for row in rows if row["kind"] == "user"]

    def is_rewound(self, session_id: str) -> bool:
        """Return whether the session has another lineage, whose rows repeat messages or leave them behind."""
        session = self.view.session(session_id)
        return session is not None and (session.lineages > 0 or session.forked_from is not None)

    def _order(self, session: SessionRow) -> None:
        """Check that messages of one kind are in history in the order in which they were accepted."""
        if self.is_rewound(session.session_id):
            return
        places = {tag: place for place, tag in enumerate(self.visible(session.session_id))}
        known = [s for s in self.sent if s.session == session.session_id and s.tag in places and s.accepted]
        for first in known:
            for second in known:
                accepted = min(request.ended or 0 for request in first.accepted)
                if second.how == "interrupt" and not second.queued_id:
                    continue  # such a message waits behind no other if nothing runs
                if first.how == second.how and accepted < min(r.begun for r in second.requests):
                    where = f"{first} and {second} in {session.session_id}"
                    assert places[first.tag] < places[second.tag], f"inbox_order: {where}"

    # --- cut answers ------------------------------------------------------------------------------------------------

    def check_cuts(self, cuts: list[Key]) -> None:
        """Check that each cut answer is in history, and that no answer is there twice, whole or cut."""
        for session in self.view.sessions():
            if self.is_rewound(session.session_id):
                continue
            rows = self.view.history(session.session_id, session.lineage, session.count)
            said = [row["content"].rstrip("*.") for row in rows if row["kind"] == "assistant" and row.get("content")]
            twice = [text for text, times in Counter(said).items() if times > 1]
            assert not twice, f"cut_once: {twice} are in the history of {session.session_id} more than once"
            for key in cuts:
                if key.partition == session.session_id and key.partition not in self.deleted:
                    row = self.world.mirror.get(key)
                    assert row in rows, f"cut_once: {key} is not in history: {row}"

    # --- questions --------------------------------------------------------------------------------------------------

    def _answers(self) -> None:
        seen: dict[tuple[str, str], set[str]] = {}
        for one in self.cast.seen:
            if one.key.split("/")[0] in self.deleted:
                continue  # another session may have its id
            seen.setdefault((one.key, one.question), set()).add(repr(one.answer))
        for place, answers in seen.items():
            assert len(answers) == 1, f"one_answer: the tool of {place} got {answers}"
        given = {repr(value) for reply in self.replies for value in reply.values} | {repr(DEFAULT)}
        foreign = {answer for answers in seen.values() for answer in answers} - given
        assert not foreign, f"one_answer: tools got {foreign}, which no one answered"
        rows = self._call_rows()
        stored = [repr(q.data) for _, row in rows for q in row.questions if q.answered]
        for reply in self.replies:
            if reply.request.outcome != "ok" or self.is_gone(reply.session):
                continue
            same = (row for key, row in rows if row.call_id == reply.call_id and key.partition != reply.session)
            if any(row.by == "answer" for row in same):
                continue  # ids are unique in a session: a call of another session of the tree may have taken the answer
            assert not reply.late, f"one_answer: {reply} was accepted for another round"
            lost = [value for value in reply.values if repr(value) not in stored]
            assert not lost, f"one_answer: {reply} was accepted, and its answers {lost} are nowhere"
        for key, row in rows:
            lineage = int(key.sort.split("#")[1])
            if row.state == "done" and row.by == "tool" and row.success and row.tool_name in ("survey", "pledge"):
                for question in row.questions:
                    assert question.answered, f"one_answer: {key} is done with an open question: {question}"
                    got = seen.get((f"{key.partition}/{lineage}/{row.call_id}", question.text))
                    copied = self.is_rewound(key.partition)
                    assert copied or got == {repr(question.data)}, (
                        f"one_answer: {key} has {question}, its tool got {got}"
                    )

    def is_gone(self, session_id: str) -> bool:
        return session_id in self.deleted or self.view.session(session_id) is None

    def _call_rows(self) -> list[tuple[Key, CallRow]]:
        values: list[tuple[Key, Value]] = [
            (key, value)
            for key, value in sorted(self.world.mirror.items())
            if key.table == "sessions" and value.get("kind") == "call" and key.partition not in self.deleted
        ]
        return [(key, CallRow.model_validate(value)) for key, value in values]
