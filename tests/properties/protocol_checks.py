"""Check the whole store after every rule, and the conditions that hold once nothing moves any more
(docs/protocol.md#invariants)."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from tests.properties.protocol_cast import MONEY, Cast
from tests.properties.protocol_watch import View, Watcher, check_pairs
from tests.properties.protocol_world import World

from helix.core.row_keys import run_sort
from helix.core.rows import CheckpointRow
from helix.core.run_row import RunRow
from helix.core.session_row import SessionRow
from helix.ports.state_store import Key, Row
from helix.services.segment_rows import segment_head, segment_messages

FINAL = ("completed", "failed")
STATELESS = ("ask_user",)
"""The tools that change no state."""


class Checks:
    withholds = False
    """Whether an attempt may go on after its text was taken back, because guards replace texts."""

    def __init__(self, world: World, cast: Cast, watcher: Watcher) -> None:
        self.world, self.cast, self.watcher, self.view = world, cast, watcher, View(world)
        self._judged = -1
        self.deleted: set[str] = set()

    def always(self) -> None:
        self.world.check()
        if self.world.writes == self._judged:
            return
        self._judged = self.world.writes
        for session in self.view.sessions():
            if session.status == "deleting" or self._half_deleted(session):
                continue
            check_pairs(session.session_id, self.view.told(session.session_id, session.lineage, session.count))
            if session.status == "paused":
                self._pause(session)
        for (sid, ident), (lineage, count, told) in self.watcher.remembered.items():
            session_row = self.view.session(sid)
            if session_row is None or session_row.status == "deleting" or self._half_deleted(session_row):
                continue
            if self.view.told(sid, lineage, count) != told:
                raise AssertionError(
                    f"checkpoint_forever: {ident} of {sid} holds other messages than when it was written"
                )
        self._budgets()
        self._slots()
        for stream_id in {k.partition for k in self.world.mirror if k.table == "streams" and "#" not in k.partition}:
            self._stream(stream_id)

    def _half_deleted(self, session: SessionRow) -> bool:
        """Return whether a sub-agent's session has a root that is being deleted."""
        if session.parent is None:
            return False
        above = self.view.session(session.parent.session_id)
        return above is None or above.status == "deleting" or self._half_deleted(above)

    def _pause(self, session: SessionRow) -> None:
        sort = run_sort(session.run_id)
        run = RunRow.at(session.session_id, sort, self.view.get(session.session_id, sort))
        if run.reason == "budget_exceeded":
            return
        calls = [row for row in self.view.open_calls(session) if row is not None and row.state != "done"]
        if not any(row.state == "asked" or row.child is not None for row in calls):
            raise AssertionError(f"no_answer_lost: {session.session_id} is paused and nothing is left to answer")

    # --- budgets --------------------------------------------------------------------------------------------------

    def _draws(self) -> dict[str, list[tuple[str, dict[str, Any]]]]:
        found = defaultdict(list)
        for key, value in self.world.mirror.items():
            if key.table == "control" and key.sort.startswith("draw#"):
                found[value["budget"]].append((key.partition.removeprefix("run#"), value))
        return found

    def _budgets(self) -> None:
        draws = self._draws()
        for key, value in self.world.mirror.items():
            if key.table == "control" and key.sort == "budget":
                name = key.partition.removeprefix("budget#")
                drawn = sum(d["amount"] - (d["returned"] if d["state"] == "returned" else 0) for _, d in draws[name])
                if value["limit"] != value["remaining"] + drawn:
                    raise AssertionError(f"budget_exact: {name}: {value} but {drawn} drawn")
                reserved = sum(d["reserved"] for _, d in draws[name] if d["state"] == "open")
                if value.get("reserved", 0) != reserved:
                    raise AssertionError(f"budget_exact: {name}: {value} but {reserved} reserved")

    # --- slots ----------------------------------------------------------------------------------------------------

    def _slots(self) -> tuple[int, int]:
        """Check slot_exact: counters equal the rows, and no more slots are held than allowed. Return (held, waiting)."""
        rows = {what: [k for k in self.world.mirror if f"#{what}#" in k.partition] for what in ("slots", "tickets")}
        held, waiting = len(rows["slots"]), len(rows["tickets"])
        account = self.world.mirror.get(Key("control", "admission", "account"))
        if account is not None:
            bound = account["default"]
            if (account["running"], account["queued"]) != (held, waiting) or held > bound:
                raise AssertionError(f"slot_exact: {account}, but {held} are held and {waiting} wait")
        names = [self.world.mirror[key]["run_id"] for key in (*rows["slots"], *rows["tickets"])]
        if len(names) != len(set(names)):
            raise AssertionError(f"slot_exact: a run works and waits: {names}")
        return held, waiting

    # --- the stream -----------------------------------------------------------------------------------------------

    def segments(self, stream_id: str) -> list[Row]:
        rows = self.world.rows("streams", stream_id)
        return [Row(Key("streams", stream_id, sort), value) for sort, value in rows]

    def messages(self, stream_id: str) -> list[dict[str, Any]]:
        found = (message for row in self.segments(stream_id) for message in segment_messages(row))
        return [message.model_dump() for message in found]

    def _stream(self, stream_id: str) -> None:
        messages = self.messages(stream_id)
        numbers = [m["sequence"] for m in messages]
        if numbers != list(range(1, len(numbers) + 1)):
            raise AssertionError(f"stream_gapless: {stream_id}: sequences {numbers}")
        texts: dict[tuple[str, int, int, int], str] = defaultdict(str)
        ended: dict[str, int] = {}
        turns: dict[str, int] = {}
        ends_of_calls: set[tuple[str, str, str]] = set()
        bought = self.cast.texts()
        for m in messages:
            sid, turn = m["session_id"], m["turn"]
            if turn < turns.get(sid, 0):
                raise AssertionError(f"end_truthful: {stream_id}: {m} of turn {turn} after turn {turns[sid]}")
            turns[sid] = turn
            if ended.get(sid) == turn:
                raise AssertionError(f"end_truthful: {stream_id}: {m} after the end of its turn")
            if m["kind"] != "chunk":
                ended[sid] = turn
                continue
            chunk = m["chunk"]
            place = (sid, turn, chunk.get("step", 0), chunk.get("attempt", 0))
            if chunk["type"] == "text_delta":
                texts[place] += chunk["delta"]
            elif chunk["type"] == "step_committed":
                if texts[place] not in bought and texts[place]:
                    raise AssertionError(
                        f"final_is_committed: {stream_id}: step {place} was committed as {texts[place]!r}"
                    )
                texts[place] += "!"
            elif chunk["type"] == "step_discarded":
                texts[place] = "" if self.withholds else f"{texts[place]}x"
            elif chunk["type"] == "tool_end":
                call = (sid, str(turn), chunk["tool_call_id"])
                if call in ends_of_calls:
                    raise AssertionError(f"stream_gapless: {stream_id}: two tool_end of {call}")
                ends_of_calls.add(call)

    # --- at rest --------------------------------------------------------------------------------------------------

    def at_rest(self) -> None:
        self.always()
        if self._slots() != (0, 0):
            raise AssertionError(f"slot_exact: {self._slots()} are held and wait for ever")
        spent = self._spent()
        for session in self.view.sessions():
            sid = session.session_id
            if self._half_deleted(session):
                continue
            if session.status in ("running", "deleting"):
                raise AssertionError(f"never_stuck: {sid} is {session.status} and nothing will ever move it")
            for sort, value in self.world.rows("sessions", sid, "r#"):
                run = RunRow.at(sid, sort, value)
                if run.effects != "done":
                    raise AssertionError(
                        f"effects_once: {run.run_id} of {sid} is {run.status} and its effects never happened"
                    )
                self._end_told(session, run)
            self._family(session)
            self._state(session)
        self._leftovers()
        runs = {key.sort[2:] for key in self.world.mirror if key.sort.startswith("r#")}
        for budget, draws in self._draws().items():
            for (
                run_id,
                draw,
            ) in draws:  # a zombie of a deleted session may still draw, which only a sweep of all draws finds
                if draw["state"] != "returned" and not (spent["gone"] and run_id not in runs):
                    raise AssertionError(f"budget_exact: a draw of {run_id} from {budget} is never returned: {draw}")
            total = sum(d["amount"] - d.get("returned", 0) for _, d in draws)
            if not spent["gone"] and total != spent[budget]:
                raise AssertionError(f"budget_exact: {budget}: drawn {total}, spent and assumed {spent[budget]}")
        paid, paid_from = sum(p.cost for p in self.cast.ghost.purchases), MONEY.window(0)[0]
        if not spent["gone"] and paid_from in spent and spent[paid_from] < paid:
            raise AssertionError(f"budget_exact: the models were paid {paid}, the budget knows of {spent[paid_from]}")

    def _leftovers(self) -> None:
        """Check that nothing is left of a deleted session and its sub-agents. A copy whose process died leaves the rows
        that it marked."""
        copying = {key.partition for key in self.world.mirror if key.sort == "copying"}
        for key in self.world.mirror:
            if key.table not in ("sessions", "streams") or "#" in key.partition or key.partition in copying:
                continue
            if self.view.session(key.partition) is None:
                raise AssertionError(f"nothing_left: {key} is left of a session that is not there")

    def _spent(self) -> dict[str, int]:
        total: dict[str, int] = defaultdict(int)
        for key, value in self.world.mirror.items():
            if key.table == "sessions" and key.sort.startswith("r#"):
                run = RunRow.at(key.partition, key.sort, value)
                for block in run.blocks:
                    open_claim = 0
                    if run.claim is not None and not block.closed:
                        open_claim = run.claim.micros if block.unit == "micros" else run.claim.tokens
                    total[block.budget] += block.spent + block.assumed + open_claim
        total["gone"] = int(bool(self.deleted))
        return total

    def _end_told(self, session: SessionRow, run: RunRow) -> None:
        """Check that the stream ends the turn with its own status, unless the next turn had begun there before."""
        own = [m for m in self.messages(session.stream_id) if m["session_id"] == session.session_id]
        ends = [m for m in own if m["turn"] == run.turn and m["kind"] != "chunk"]
        wanted = "interrupted" if run.status == "superseded" else run.status
        if len(ends) > 1:
            raise AssertionError(f"end_truthful: {run.run_id} ends twice: {ends}")
        if ends and run.status != "superseded" and ends[0]["status"] != wanted:
            raise AssertionError(f"end_truthful: {run.run_id} is {run.status}, the stream says {ends[0]}")
        if not ends and run.turn == session.turn:
            raise AssertionError(f"end_truthful: the stream never ends {run.run_id} of {session.session_id}")
        if run.turn == session.turn and run.status == "completed":
            told = self.view.told(session.session_id, session.lineage, session.count)
            answers = [text for role, text, _ in told if role == "assistant"]
            shown = "".join(
                m["chunk"]["delta"] for m in own if m["kind"] == "chunk" and m["chunk"]["type"] == "text_delta"
            )
            if answers and answers[-1] not in shown:
                raise AssertionError(f"final_is_committed: {answers[-1]} of {session.session_id} never came: {shown}")
        head = segment_head(self.segments(session.stream_id)[-1])
        if head.sessions.get(session.session_id) and not head.sessions[session.session_id].over:
            raise AssertionError(f"end_truthful: {session.session_id} rests, its stream does not")

    def _family(self, session: SessionRow) -> None:
        """Check one_child, told_once and parent_wakes."""
        children = [
            s for s in self.view.sessions() if s.parent is not None and s.parent.session_id == session.session_id
        ]
        calls = [(c.parent.run_id, c.parent.call_id) for c in children if c.parent]
        if len(set(calls)) != len(calls):
            raise AssertionError(f"one_child: two children for one call of {session.session_id}: {calls}")
        for row in self.view.open_calls(session):
            if row is None or row.child is None or row.state == "done":
                continue
            child = self.view.session(row.child.session_id)
            if child is not None and child.status in FINAL:
                raise AssertionError(
                    f"parent_wakes: {session.session_id} waits for {child.session_id}, which is {child.status}"
                )

    def _state(self, session: SessionRow) -> None:
        """Check that the custom state equals the changes of the successful tools in history, in order."""
        if session.forked_from is not None or not session.state_at:
            return
        entries = self.view.history(session.session_id, session.lineage, session.count)
        calls = [e for e in entries if e["kind"] == "call" and e.get("success")]
        # A call that ended elsewhere has the changes of its tool, unless the tool's worker died.
        calls = [e for e in calls if e.get("by") == "tool" or (e.get("by") == "answer" and e.get("patches"))]
        wanted = [f"{e['tool_name']} {e['call_id']}" for e in calls if e["tool_name"] not in STATELESS]
        rows = self.world.rows("sessions", session.session_id, "c#")
        points = [CheckpointRow.at(session.session_id, sort, value) for sort, value in rows]
        point = next((point for point in points if point.id == session.state_at), None)
        if point is None or (point.state or {}).get("log", []) != wanted:
            raise AssertionError(
                f"answer_fits_history: state of {session.session_id} is {point}, history says {wanted}"
            )
