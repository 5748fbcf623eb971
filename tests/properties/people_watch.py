"""What the walks with people check at each transaction, and how each judgement of a guard is checked when it begins."""

from __future__ import annotations

from typing import Any

from tests.properties.people_cast import Judged, PeopleCast, tag_of
from tests.properties.protocol_cast import Cast, Purchase
from tests.properties.protocol_checks import Checks
from tests.properties.protocol_watch import Watcher
from tests.properties.protocol_world import World

from helix.core.session_row import SessionRow
from helix.core.verdicts import WITHHELD
from helix.engine.claims.liveness import DEAD
from helix.ports.state_store import Key, Value

MOVES = {"call_later": {"later"}, "prolong_call": {"deadline"}}
MOVES["end_call_early"] = {"content", "success", "plain", "ended_at", "deaths"}
"""The transactions that change only these fields of a call's row."""
Told = tuple[str, str, tuple[str, ...]]


class PeopleWatcher(Watcher):
    cast: PeopleCast

    def __init__(self, world: World, cast: Cast) -> None:
        super().__init__(world, cast)
        assert isinstance(cast, PeopleCast)
        self.cast = cast
        self.cast.observe_judged = self.judges
        self.cuts: list[Key] = []

    def judges(self, judged: Judged) -> None:
        """Check that the value has no stored verdict of this guard. A process that paused may repeat what another one did
        meanwhile, because it cannot know."""
        if self.world.far or (judged.actor is not None and judged.actor.stood):
            return
        for verdict in self.verdicts(judged.session_id):
            same = judged.of == verdict.get("of") if judged.of else judged.hash == verdict.get("hash")
            if (verdict["guard"], verdict["on"]) == (judged.guard, judged.on) and same:
                what = judged.of or judged.hash
                self.wrong("judged_once", f"{judged.guard} judges {judged.on} {what} of {judged.session_id} again")

    def _session(self, name: str, sid: str, before: Value | None, after: Value | None) -> None:
        """Check that the active agent is the target of the last handoff in history."""
        super()._session(name, sid, before, after)
        if after is None or after["status"] == "deleting":
            return
        now = SessionRow.at(sid, after)
        history = self.view.history(sid, now.lineage, now.count)
        active = next((entry["handoff"] for entry in reversed(history) if entry.get("handoff")), "")
        if now.active_agent != active:
            self.wrong("active_follows", f"{name}: {now.active_agent!r} is active in {sid}, after {active!r} took over")

    def bought(self, bought: Purchase) -> None:
        """Check that the active agent asks."""
        super().bought(bought)
        session = self.view.session(bought.session_id)
        live = session is not None and session.claim is not None and session.run_id == bought.run
        if live and session is not None and bought.agent != (session.active_agent or session.agent_type):
            self.wrong(
                "active_follows", f"{bought.agent!r} asks in {bought.session_id}: {session.active_agent!r} is active"
            )

    def _entry(self, name: str, key: Key, before: Value | None, after: Value | None, was: Value | None) -> None:
        """Check how a call waits for its result from elsewhere, and then all that holds for every call."""
        if before is not None and after is not None and before["kind"] == after["kind"] == "call":
            moved = {field for field in before.keys() | after.keys() if before.get(field) != after.get(field)}
            early = before["state"] == "claimed" and None not in (before.get("later"), before.get("content"))
            if name in MOVES:
                if not moved <= MOVES[name]:
                    self.wrong("one_result", f"{name} changed {moved} of {key}")
                return
            if before.get("ask") == "elsewhere" and after["state"] == "claimed" and after["deadline"] == DEAD:
                return  # a heartbeat is missing
            waits = before["state"] == "claimed" and after.get("ask") == "elsewhere"
            if waits and (name != "call_result" or before["claim"] != after["claim"] or early):
                self.wrong("one_result", f"{name}: {key} waits, although {before['owner']} lost it or it has a result")
            if waits:
                return
            if early and (after["state"] == "approved" or after.get("by") == "answer"):
                if after["content"] != before["content"] and not after.get("verdicts"):
                    self.wrong("one_result", f"{name}: {key} had {before['content']}, and has {after['content']}")
                return
        super()._entry(name, key, before, after, was)

    def verdicts(self, session_id: str) -> list[Value]:
        """Return the verdicts that the rows of history and of the open step have."""
        session = self.view.session(session_id)
        if session is None:
            return []
        end = session.count if session.open is None else session.open.base + 1
        rows: list[Value] = self.view.history(session_id, session.lineage, end)
        rows += [row.model_dump(mode="json") for row in self.view.open_calls(session) if row is not None]
        return [verdict for row in rows for verdict in row.get("verdicts", ())]

    def _staged(self, name: str, place: str, after: Value, was: Value | None) -> None:
        """Check an answer as guards left it: they may have replaced its text and what the model saw of the messages."""
        session = SessionRow.at(place.split()[0], was) if was is not None else None
        if session is None or session.status != "running" or session.run_id != after["run_id"]:
            self.wrong("zombie_invisible", f"{name} put {place} for {after['run_id']}, which does not run")
            return
        if session.claim is None or session.claim.attempt_id != after["attempt_id"]:
            self.wrong("zombie_invisible", f"{name} put {place} by {after['attempt_id']}, which holds no claim")
        if after.get("content") is None:  # refused, or a message before it was
            return
        said = after["content"].removesuffix("*")
        if after.get("stop_reason") == "interrupted":
            self._cut(name, place, after["content"])
            said = f"{said.removesuffix('.')}."
        bought = [p for p in self.cast.ghost.purchases if p.text == said]
        if len(bought) != 1 or bought[0].session_id != session.session_id:
            self.wrong("answer_fits_history", f"{place} holds an answer that was not bought: {after.get('content')!r}")
            return
        told = self.view.told(session.session_id, session.lineage, session.count)
        if not _same(_bare(bought[0].history), _bare(told)):
            self.wrong("answer_fits_history", f"{place} was computed from other messages than those before it")

    def _cut(self, name: str, place: str, content: str) -> None:
        """Check the answer that a stop cut off: its run is interrupted in the same transaction."""
        session_id, sort = place.split()
        session = self.view.session(session_id)
        self.cuts.append(Key("sessions", session_id, sort))
        self.cast.cut.add(content)
        if name != "end_interrupted" or session is None or session.status != "interrupted":
            self.wrong("cut_once", f"{name} put {place}, which is cut, and {session_id} is not interrupted")
        elif not self.cast.agents[session.active_agent or session.agent_type].keep_partial:
            self.wrong("cut_once", f"{place} is cut, although its agent keeps no such answers")


def _bare(told: list[Any]) -> list[Told]:
    """Return the messages without what guards may change: by the id of a user's message, and by call."""
    found: list[Told] = []
    for role, content, calls in told:
        if role == "user":
            found.append((role, tag_of(content) if content != WITHHELD else "", ()))
        elif role == "tool" or content or calls:
            found.append((role, "", calls))
    return found


def _same(seen: list[Told], stored: list[Told]) -> bool:
    """Return whether the model saw the stored messages. A message that a guard withheld has no id."""
    return len(seen) == len(stored) and all(
        one == other or (one[0] == other[0] == "user" and not one[1]) for one, other in zip(seen, stored, strict=True)
    )


class PeopleChecks(Checks):
    withholds = True
