"""Check every transaction when it commits, for those of docs/protocol.md#invariants that one change can break.

It reads the mirror, which has every committed row, and never asks the engine.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.properties.protocol_cast import Cast, Purchase, Started
from tests.properties.protocol_play import MARGIN_S
from tests.properties.protocol_world import Change, World

from helix.core.entries import CallRow
from helix.core.lineage import ROOT, find_spans
from helix.core.row_keys import lineage_sort, message_sort, run_sort, stop_sort
from helix.core.rows import CheckpointRow, LineageRow
from helix.core.session_row import SessionRow
from helix.engine.calls.tool import MAX_DEATHS
from helix.ports.state_store import Key, Value

DEADLINES = {"lease_expires", "claim"}
"""The fields of a session's row that a heartbeat may change."""
POLICY = {"free": "retry", "once": "skip", "care": "ask", "gated": "retry", "fatal": "retry", "done": "retry"}
POLICY |= {"survey": "retry", "pledge": "skip", "send": "retry", "ask_user": "retry", "ship": "retry"}
ENDS = {"completed", "failed", "interrupted", "paused"}


class View:
    """The rows of the mirror, parsed."""

    def __init__(self, world: World) -> None:
        self.world = world

    def get(self, session_id: str, sort: str) -> Value | None:
        return self.world.mirror.get(Key("sessions", session_id, sort))

    def session(self, session_id: str) -> SessionRow | None:
        value = self.get(session_id, "session")
        return None if value is None else SessionRow.at(session_id, value)

    def sessions(self) -> Iterator[SessionRow]:
        for key, value in sorted(self.world.mirror.items()):
            if key.table == "sessions" and key.sort == "session":
                yield SessionRow.at(key.partition, value)

    def history(self, session_id: str, lineage: int, count: int) -> list[Value]:
        value = self.get(session_id, lineage_sort(lineage))
        row = ROOT if lineage == 0 else LineageRow.model_validate(value)
        found = []
        for owner, first, end in find_spans(row, 0, count):
            for index in range(first, end):
                entry = self.get(session_id, message_sort(owner, index))
                if entry is None:
                    raise AssertionError(
                        f"pairs_whole: message {index} of {session_id} ({lineage}, {count}) is not there"
                    )
                found.append(entry)
        return found

    def told(self, session_id: str, lineage: int, count: int) -> list[Any]:
        """Return the history as the model reads it, in the form of `fingerprint`."""
        found: list[Any] = []
        for entry in self.history(session_id, lineage, count):
            content = entry.get("content") or ""
            match entry["kind"]:
                case "user":
                    found.append(("user", content, ()))
                case "assistant":
                    found.append(("assistant", content, tuple(call["id"] for call in entry.get("tool_calls", ()))))
                case _:
                    found.append(("tool", content, (entry["call_id"],)))
        return found

    def open_calls(self, session: SessionRow) -> list[CallRow | None]:
        if session.open is None:
            return []
        found: list[CallRow | None] = []
        for i in range(session.open.calls):
            value = self.get(session.session_id, message_sort(session.lineage, session.open.base + 1 + i))
            found.append(None if value is None else CallRow.model_validate(value))
        return found


class Watcher:
    def __init__(self, world: World, cast: Cast) -> None:
        self.world, self.cast, self.view = world, cast, View(world)
        self.claims: set[tuple[str, float, int]] = set()
        self.remembered: dict[tuple[str, str], tuple[int, int, list[Any]]] = {}
        self.rode: set[tuple[str, str | None, int]] = set()  # claims that were written with their answer
        self.rulings: dict[str, int] = {}  # approvals of an unknown outcome: each allows one more start
        world.observers.append(self.committed)

    def wrong(self, law: str, what: str) -> None:
        self.world.violations.append(f"{law}: {what}")

    def committed(self, name: str, changes: list[Change]) -> None:
        rows = {key: before for key, before, _ in changes}
        for key, before, after in changes:
            if key.table == "control":
                self._control(key, after)
            if key.table != "sessions" or key.partition.startswith(("index#", "facets#", "users#")):
                continue
            if key.sort == "session":
                self._session(name, key.partition, before, after)
            elif key.sort.startswith("m#"):
                was = rows.get(Key("sessions", key.partition, "session")) or self.view.get(key.partition, "session")
                self._entry(name, key, before, after, was)
        for key, _, after in changes:
            if key.table == "sessions" and key.sort.startswith("c#") and after is not None:
                self._checkpoint(key, after)

    # --- the session row ------------------------------------------------------------------------------------------

    def _session(self, name: str, sid: str, before: Value | None, after: Value | None) -> None:
        if after is None:
            self.remembered = {k: v for k, v in self.remembered.items() if k[0] != sid}
            ghost = self.cast.ghost  # another session may be created under this id
            ghost.started = [s for s in ghost.started if not s.key.startswith(f"{sid}/")]
            return
        now = SessionRow.at(sid, after)
        if before is None:
            if now.status not in ("running", "completed"):
                self.wrong("legal_transitions", f"{sid} begins {now.status}")
            return
        was = SessionRow.at(sid, before)
        if name == "heartbeat":
            self._heartbeat(sid, was, now)
        elif now.version != was.version + 1:
            self.wrong("one_winner_per_claim", f"{name} wrote {sid} with version {was.version} -> {now.version}")
        if now.run_id != was.run_id:
            place = (sid, now.created_at, was.version)
            if place in self.claims:
                self.wrong("one_winner_per_claim", f"two claims of {sid} at version {was.version}")
            self.claims.add(place)
            aborted = (
                name == "claim_abort"
                and now.aborted
                and was.status in ("interrupted", "paused")
                and now.status == "failed"
            )
            if (not aborted and now.status != "running") or (was.status == "running" and name != "claim_takeover"):
                self.wrong("legal_transitions", f"{name} of {sid}: {was.status} -> {now.status} under a new run")
            old = self.view.get(sid, run_sort(was.run_id)) if was.run_id else None
            if old is not None and old["status"] not in ("completed", "failed", "superseded"):
                self.wrong("legal_transitions", f"run {was.run_id} is {old['status']} after its successor was claimed")
            if name == "claim_takeover" and not self.world.far and not 0 < was.lease_expires < self.world.clock.now():
                self.wrong("zombie_invisible", f"{sid} was taken over although its holder's claim was alive")
        elif now.status != was.status:
            if now.status != "deleting" and (was.status != "running" or now.status not in ENDS):
                self.wrong("legal_transitions", f"{name} of {sid}: {was.status} -> {now.status}")
            elif (
                now.status == "deleting"
                and was.status == "running"
                and not self.world.far
                and not 0 < was.lease_expires < self.world.clock.now()
            ):
                self.wrong("legal_transitions", f"{sid} was deleted while it ran")
        run = self.view.get(sid, run_sort(now.run_id)) if now.run_id else None
        if now.status != "deleting" and run is not None and run["status"] != now.status:
            self.wrong("legal_transitions", f"{name}: session {sid} is {now.status}, its run {run['status']}")
        self._claim(name, was, now)
        if now.status == "interrupted" and was.status == "running" and not self._stopped(now):
            self.wrong("interrupt_own_run", f"{sid} was interrupted without a stop of its run")
        if now.count > was.count and now.run_id == was.run_id and now.open is None and was.open is not None:
            if was.open.base != was.count:
                self.wrong(
                    "answer_fits_history", f"{sid}: a step at {was.open.base} was folded onto {was.count} messages"
                )
            if any(row is None or row.state != "done" for row in self.view.open_calls(was)):
                self.wrong("pairs_whole", f"{sid}: step {was.open.step} was folded before all its calls were done")

    def _heartbeat(self, sid: str, was: SessionRow, now: SessionRow) -> None:
        """Check that only deadlines move, and the number of attempts that ran out of their worker's time, which a worker
        stores as it lets go of its claim. An attempt at a step that a supervisor or a clock ended must not return."""
        kept = [row.model_dump(exclude=DEADLINES) for row in (was, now)]
        claims = [
            row.claim.model_dump(exclude={"deadline", "late"}) if row.claim is not None else None for row in (was, now)
        ]
        late = [row.claim.late if row.claim is not None else 0 for row in (was, now)]
        if kept[0] != kept[1] or claims[0] != claims[1] or late[1] - late[0] not in (0, 1):
            self.wrong("zombie_invisible", f"a heartbeat changed more of {sid} than deadlines")
        if was.claim is None or now.claim is None or was.lease_owner is not None:
            return
        if was.claim.deadline < self.world.clock.now() < now.claim.deadline:
            self.wrong("zombie_invisible", f"a heartbeat brought the dead attempt {was.claim.attempt_id} back")

    def _claim(self, name: str, was: SessionRow, now: SessionRow) -> None:
        if now.claim is None or (was.claim is not None and was.claim.attempt_id == now.claim.attempt_id):
            return
        if self.view.get(now.session_id, message_sort(now.lineage, now.count)) is not None:
            self.wrong("no_answer_rebought", f"{name}: step {now.claim.step} of {now.session_id} is staged already")
        held = was.claim
        alive = held is not None and held.step == now.claim.step and held.deadline >= self.world.clock.now()
        same = held is not None and _owner(held.attempt_id) == _owner(now.claim.attempt_id)
        if alive and not same and held is not None and held.run_id == now.run_id == was.run_id:
            self.wrong("no_answer_rebought", f"two live attempts at step {held.step} of {now.session_id}")

    def _stopped(self, session: SessionRow) -> bool:
        """Return whether a stop ended the run: a stop of its own run, or of a run of the sessions above it since it was
        created. Those may start their next run while this one is still about to stop."""
        if self.view.get(session.session_id, stop_sort(session.run_id)) is not None:
            return True
        current = session.parent
        while current is not None:
            stops = [sort for sort, _ in self.world.rows("sessions", current.session_id, "x#")]
            if any(sort >= stop_sort(current.run_id) for sort in stops):  # run ids sort by turn
                return True
            above = self.view.session(current.session_id)
            current = above.parent if above is not None else None
        return False

    # --- messages and calls ---------------------------------------------------------------------------------------

    def _entry(self, name: str, key: Key, before: Value | None, after: Value | None, was: Value | None) -> None:
        place = f"{key.partition} {key.sort}"
        if after is None:
            session = self.view.session(key.partition)
            if name == "release_call" and before is not None and before.get("state") == "claimed":
                self._released(place, CallRow.model_validate(before))
            elif session is not None and session.status != "deleting" and session.parent is None:
                self.wrong("checkpoint_forever", f"{name} deleted {place}")
            return
        if after["kind"] != "call":
            if before is not None and before != after and name != "copy_messages":
                self.wrong("staged_answer_immutable", f"{name} replaced {place}")
            if after["kind"] == "assistant" and before is None and name != "copy_messages":
                self._staged(name, place, after, was)
            return
        row = CallRow.model_validate(after)
        running = was is not None and (was["status"], was["run_id"]) == ("running", row.run_id)
        if name in ("claim_call", "claim_calls") and row.state == "claimed" and row.run_id and not running:
            self.wrong("zombie_invisible", f"{place} was claimed by {row.run_id}, which does not run")
        if before is None:
            if name in ("stage", "claim_calls") and row.state == "claimed" and row.child is None:
                self.rode.add((place, row.owner, row.claim))
            return
        old = CallRow.model_validate(before)
        if old == row or name == "copy_messages":
            return
        now = self.world.clock.now()
        if old.state == "done":
            self.wrong(
                "result_immutable",
                f"{name} replaced the result of {place}: {old.by} {old.content} -> {row.by} {row.content}",
            )
        elif old.state == "asked" and row.by != "close" and row.state not in ("approved", "done"):
            self.wrong("first_answer_wins", f"{name}: {place} asked -> {row.state}")
        elif old.state == "asked" and old.ask == "unknown" and row.state == "approved":
            ident = f"{key.partition}/{row.call_id}"
            self.rulings[ident] = self.rulings.get(ident, 0) + 1
        elif old.state == "approved" and row.state not in ("claimed", "done"):
            self.wrong("first_answer_wins", f"{name}: {place} approved -> {row.state}")
        elif old.state == "claimed" and old.child is None:
            if name in ("heartbeat", "expire_call", "roll_over_silent"):
                if row != old.model_copy(update={"deadline": row.deadline, "released": row.released}):
                    self.wrong("zombie_invisible", f"{name} changed more of {place} than its deadline")
                return
            given = old.content is not None  # a result that the guards of this worker judge
            unjudged = name == "call_result" and row.is_unjudged and not given and (row.by, row.owner) == ("tool", None)
            rode = (place, old.owner, old.claim) in self.rode and not given
            if rode and (row.by in ("policy", "close") or row.ask == "unknown"):
                self._unknown(key, place, old)
            dead = old.deadline is not None and old.deadline < now
            policy = "retry" if given else POLICY.get(row.tool_name)
            crashed = row.by == "policy" and row.deaths == MAX_DEATHS
            taken = {
                "retry": row.state == "claimed" or crashed,
                "skip": row.by == "policy",
                "ask": row.state == "asked",
            }
            counted = policy == "retry" and (row.state == "claimed" or crashed) and not old.released
            if row.deaths != (0 if unjudged else old.deaths + counted):
                self.wrong("deaths_counted", f"{name}: {place} counts {row.deaths} deaths after {old.deaths}")
            if name == "release_call" and row.state == "approved":
                if not row.questions and not given:  # earlier executions asked the questions
                    self._released(place, old)
                return
            by = (old.by or "answer",) if given else ("tool", "plan")
            mine = row.state == "done" and row.owner == old.owner and row.claim == old.claim and row.by in by
            asks = (row.ask == "question" or unjudged) and row.claim == old.claim
            if not mine and not asks and row.by != "close" and not (dead and taken[policy or "skip"]):
                self.wrong(
                    "no_finished_tool_again",
                    f"{name}: {place} claimed by {old.owner} -> {row.state} {row.by} {row.owner}",
                )

    def _unknown(self, key: Key, place: str, old: CallRow) -> None:
        """Check a call whose outcome counts as unknown although its claim was written with its answer. Its tool must have
        started."""
        ident = f"{key.partition}/{int(key.sort.split('#')[1])}/{old.call_id}"
        if POLICY.get(old.tool_name) != "retry" and not any(s.key == ident for s in self.cast.ghost.started):
            self.wrong("unknown_has_begun", f"{place}: the tool {old.tool_name} never began")

    def _released(self, place: str, old: CallRow) -> None:
        """Check that the tool of a returned claim never started."""
        if any(
            s.key.endswith(f"/{old.call_id}") and s.key.startswith(place.split()[0] + "/")
            for s in self.cast.ghost.started
        ):
            lineage = int(place.split("#")[1])
            if any(s.key == f"{place.split()[0]}/{lineage}/{old.call_id}" for s in self.cast.ghost.started):
                self.wrong("no_finished_tool_again", f"{place} was given back after its tool started")

    def _staged(self, name: str, place: str, after: Value, was: Value | None) -> None:
        session = SessionRow.at(place.split()[0], was) if was is not None else None
        if session is None or session.status != "running" or session.run_id != after["run_id"]:
            self.wrong("zombie_invisible", f"{name} put {place} for {after['run_id']}, which does not run")
            return
        if session.claim is None or session.claim.attempt_id != after["attempt_id"]:
            self.wrong("zombie_invisible", f"{name} put {place} by {after['attempt_id']}, which holds no claim")
        bought = [p for p in self.cast.ghost.purchases if p.text == after.get("content")]
        if len(bought) != 1 or bought[0].session_id != session.session_id:
            self.wrong("answer_fits_history", f"{place} holds an answer that was not bought: {after.get('content')!r}")
        elif bought[0].history != self.view.told(session.session_id, session.lineage, session.count):
            self.wrong("answer_fits_history", f"{place} was computed from other messages than those before it")

    def started(self, start: Started) -> None:
        """Check the start of a tool. The process that starts it must hold the call's claim, and no other live process
        may."""
        key = start.key
        sid, lineage, call_id = key.split("/")
        rows = [v for s, v in self.world.rows("sessions", sid, f"m#{int(lineage):06d}") if v.get("call_id") == call_id]
        done = [
            v for v in rows if v["state"] == "done" and v.get("by") in ("tool", "answer", "child", "policy", "plan")
        ]
        # The clocks differ by more than the margin, so a live worker's claim counts as expired. Repeatable calls may be
        # repeated then.
        if done and not (self.world.far and start.tool == "free"):
            self.wrong("no_finished_tool_again", f"{start.tool} {key} starts after its result ({done[0].get('by')})")
        before = [s for s in self.cast.ghost.started if s.key == key]
        if start.tool in ("once", "care", "fatal") and start.tool != "fatal":
            allowed = 1 + self.rulings.get(f"{sid}/{call_id}", 0)
            if len(before) + 1 > allowed and not self.world.far:
                self.wrong("no_finished_tool_again", f"{start.tool} {key} starts {len(before) + 1} times")
        for other in before:
            at_work = not other.over and other.actor is not None and not other.actor.dead and not other.actor.stood
            if at_work and other.actor is not None and not self.world.far:
                self.wrong(
                    "no_finished_tool_again", f"{start.tool} {key} starts while {other.actor.name} still runs it"
                )
        for row in rows:
            deadline = row.get("deadline")
            too_late = deadline is not None and deadline - MARGIN_S <= self.world.clock.now()
            if row["state"] == "claimed" and too_late and (start.actor is None or not start.actor.stood):
                self.wrong("no_finished_tool_again", f"{start.tool} {key} starts too close to its claim's deadline")

    def bought(self, bought: Purchase) -> None:
        """Check the start of a model call. Its caller must have a live claim, and no other live process may have one."""
        session = self.view.session(bought.session_id)
        claim = session.claim if session is not None else None
        actor = bought.actor
        assert session is not None and actor is not None
        where = f"{actor.name} asks for a step of {bought.session_id}"
        bought.run = session.run_id
        if claim is not None and claim.run_id == session.run_id and _owner(claim.attempt_id) == actor.holds:
            if claim.deadline - MARGIN_S <= self.world.clock.now():
                self.wrong("no_answer_rebought", f"{where} after the deadline of its claim")
        elif actor.skew == 0 or not self.world.far:
            self.wrong("no_answer_rebought", f"{where} without a claim: {claim}")
        for other in self.cast.ghost.purchases:
            at_work = other.actor is not None and not other.over and not other.actor.dead and not other.actor.stood
            same = (other.session_id, other.run) == (bought.session_id, session.run_id)
            if same and at_work and other.actor is not actor and not self.world.far:
                self.wrong("no_answer_rebought", f"{where} while {other.actor and other.actor.name} asks for it")

    # --- checkpoints and budgets ----------------------------------------------------------------------------------

    def _checkpoint(self, key: Key, after: Value) -> None:
        lineage, count = int(after.get("lineage", 0)), int(after.get("count", 0))
        told = self.view.told(key.partition, lineage, count)
        ident = CheckpointRow.at(key.partition, key.sort, after).id
        check_pairs(f"checkpoint {ident}", told)
        self.remembered[key.partition, ident] = (lineage, count, told)

    def _control(self, key: Key, after: Value | None) -> None:
        if key.sort == "budget" and after is not None and after["remaining"] < 0:
            self.wrong("budget_exact", f"{key.partition} has {after['remaining']} left")


def _owner(attempt_id: str) -> str:
    return attempt_id.rpartition(".")[0]


def check_pairs(where: str, told: list[Any]) -> None:
    expected: list[str] = []
    for role, _, calls in told:
        if role == "tool":
            if not expected or expected.pop(0) != calls[0]:
                raise AssertionError(f"pairs_whole: {where}: a result without its call, or twice: {told}")
        elif expected:
            raise AssertionError(f"pairs_whole: {where}: a message follows an unanswered call: {told}")
        else:
            expected = list(calls)
    if expected:
        raise AssertionError(f"pairs_whole: {where}: ends with unanswered calls: {told}")
