"""What other systems report to the calls that end elsewhere, and what must be true of it at the end of a walk."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from random import Random

from tests.properties.people_cast import Left, PeopleCast
from tests.properties.people_ledger import UNKNOWN, Ledger, Request

from helix.core.elsewhere import CallToken
from helix.core.entries import CallRow
from helix.core.row_keys import message_sort

HOWS = ["complete", "complete", "complete", "fail", "prolong"]


@dataclass
class Report:
    """A report with the token of a call. `value` is its result or error, the same one if it is repeated."""

    left: Left
    token: str
    how: str
    value: str
    request: Request

    @property
    def is_forged(self) -> bool:
        return self.token != self.left.token

    @property
    def told(self) -> tuple[str, str]:
        return self.how, self.value

    @property
    def taken(self) -> bool:
        return self.request.outcome == "ok"


class Reports:
    """The reports of a walk."""

    def __init__(self, ledger: Ledger, cast: PeopleCast) -> None:
        self.ledger, self.cast, self.sent = ledger, cast, list[Report]()

    def choose(self, rng: Random, request: Request) -> Report:
        """Choose a report: to a recent call rather than to an old one, new or repeated, with a right token or a forged
        one."""
        left = rng.choice(self.cast.left[rng.choice([0, -3, -3, -3]) :])
        earlier = [one for one in self.sent if one.left.key == left.key and one.how != "prolong"]
        forged, repeats = rng.random() < 0.15, rng.random() < 0.5
        if earlier and repeats and not forged:
            how, value = rng.choice(earlier).told
        else:
            how, value = rng.choice(HOWS), f"parcel {request.begun}."
        report = Report(left, self._forged(rng, left.token) if forged else left.token, how, value, request)
        self.sent.append(report)
        return report

    def _forged(self, rng: Random, token: str) -> str:
        """Return a token that nobody was given: another secret, or the place of another call."""
        parts = CallToken.parse(token)
        others = [CallToken.parse(one.token) for one in self.cast.left]
        other = rng.choice([one for one in others if one.secret != parts.secret] or [parts])
        made = [replace(parts, secret=parts.secret[::-1]), replace(parts, index=parts.index + 1)]
        made.append(replace(other, secret=parts.secret[:-1] + "x"))
        return str(rng.choice(made))

    # --- at the end -------------------------------------------------------------------------------------------------

    def check(self) -> None:
        calls: dict[str, list[Report]] = defaultdict(list)
        for report in self.sent:
            if report.is_forged:
                fine = report.request.outcome in ("InvalidCallTokenError", UNKNOWN)
                assert fine, f"forged_token: {report} was not refused as such"
            else:
                calls[report.left.key].append(report)
        for key, reports in calls.items():
            self._call(key, reports)
        for where, row in self._rows():
            sent = [one for one in calls[where] if one.how != "prolong" and one.value in (row.content or "")]
            if any(verdict.refuses for verdict in row.verdicts):
                continue
            if row.by == "answer" or (row.state != "done" and row.content is not None):
                assert sent, f"forged_token: {where} has a result that nobody reported: {row}"
                assert any(one.request.outcome in ("ok", UNKNOWN) for one in sent), (
                    f"one_result: {where}: {sent}, {row}"
                )

    def _call(self, key: str, reports: list[Report]) -> None:
        results = [one for one in reports if one.how != "prolong"]
        taken = [one for one in results if one.taken]
        told = {one.told for one in taken}
        assert len(told) <= 1, f"one_result: {key} was ended as {told}"
        session_id = key.split("/")[0]
        if not taken or self.ledger.is_gone(session_id):
            return
        ended = min(one.request.ended or 0 for one in taken)
        row, dropped = self._row(taken[0].token), False
        if row is not None:
            dropped = row.by in ("close", "policy") and self.judges(session_id, row.call_id)
            dropped |= any(verdict.refuses for verdict in row.verdicts)
            kept = row.content is not None and taken[0].value in row.content and row.by in ("answer", None)
            assert kept or dropped or self.ledger.is_rewound(session_id), f"one_result: {taken[0]} is lost: {row}"
        for later in (one for one in reports if one.request.begun > ended and one.request.outcome != UNKNOWN):
            same = later.told in told
            if later.taken != same and not dropped:
                fate = "refused" if same else "accepted"
                raise AssertionError(f"one_result: {later} was {fate} after {taken[0]}: {row}")

    def judges(self, session_id: str, call_id: str) -> bool:
        """Return whether guards of the agent that made the call judge results. A message that closes the step drops a
        result that they have not judged."""
        session = self.ledger.view.session(session_id)
        assert session is not None
        answers = self.ledger.world.rows("sessions", session_id, "m#")
        made = (v for _, v in answers if any(call["id"] == call_id for call in v.get("tool_calls") or ()))
        return any(self.cast.agents[answer.get("agent") or session.agent_type].guards for answer in made)

    def _row(self, token: str) -> CallRow | None:
        place = CallToken.parse(token)
        value = self.ledger.view.get(place.session_id, message_sort(place.lineage, place.index))
        return None if value is None or value["kind"] != "call" else CallRow.model_validate(value)

    def _rows(self) -> Iterator[tuple[str, CallRow]]:
        """Return the rows of calls that took tokens, by the call's idempotency key."""
        for left in self.cast.left:
            row = None if self.ledger.is_gone(left.key.split("/")[0]) else self._row(left.token)
            if row is not None and row.call_id == left.key.split("/")[2]:
                yield left.key, row
