"""What the client of a play was told, and its comparison with the session's history."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from helix.core.entries import read_waits
from helix.core.json import JsonValue
from helix.core.messages import AnyMessage, ToolResultMessage, UserMessage


@dataclass
class Sent:
    """A message that the client sent under one key. `how` is `when_running`. `outcome` is `ok` or the error's code."""

    text: str
    how: str
    outcome: str = ""
    runs: set[str] = field(default_factory=set)
    queued_id: str | None = None
    withdrawals: list[str] = field(default_factory=list)


@dataclass
class Answer:
    """An answer to a call. Its outcome is `unknown` if an earlier try of the same request had no answer."""

    call_id: str
    kind: str
    data: JsonValue
    outcome: str = ""


@dataclass
class Report:
    """A result of a call that ends elsewhere. `place` names the call."""

    place: str
    value: str
    forged: bool
    outcome: str = ""


@dataclass
class Told:
    sent: list[Sent] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
    reports: list[Report] = field(default_factory=list)


def check(told: Told, messages: Sequence[AnyMessage], *, judged: bool = False) -> None:
    """Check that each message is in history once and in order, each question has one answer, and each call that ended
    elsewhere has one result, which a right token brought. `judged`: guards judge results, and a message that closes the
    step drops a result that they have not judged."""
    said = [message.content for message in messages if isinstance(message, UserMessage)]
    for sent in told.sent:
        _message(sent, said)
    _order(told.sent, said)
    results = [message for message in messages if isinstance(message, ToolResultMessage)]
    _answers(told.answers, results)
    _reports(told.reports, results, judged)


def _message(sent: Sent, said: list[str]) -> None:
    times = said.count(sent.text)
    assert times <= 1, f"{sent} is in history {times} times"
    assert len(sent.runs) <= 1, f"{sent} got several runs"
    if "withdrawn" in sent.withdrawals:
        assert not times, f"{sent} was withdrawn, and is in history"
    elif "unknown" not in sent.withdrawals:
        assert times == (sent.outcome == "ok"), f"{sent} is in history {times} times"
    assert times or "delivered" not in sent.withdrawals, f"{sent} was not delivered"


def _order(sent: list[Sent], said: list[str]) -> None:
    """Check the order of messages of one kind. The client sent them one after the other. A message that interrupts waits
    behind no other if nothing runs."""
    for how in ("steer", "queue"):
        places = [said.index(one.text) for one in sent if one.how == how and one.text in said]
        assert places == sorted(places), f"messages that {how} are not in order: {sent}, {said}"


def _answers(answers: list[Answer], results: list[ToolResultMessage]) -> None:
    questions = {result.tool_call_id: [one.data for one in read_waits(result)[0]] for result in results}
    accepted = [one for one in answers if one.outcome == "ok"]
    for answer in (one for one in accepted if one.kind == "question"):
        given = answer.data if isinstance(answer.data, list) else [answer.data]
        stored = questions.get(answer.call_id, [])
        assert all(value in stored for value in given), f"{answer} was accepted, and the call has {stored}"
    surveys = [one for one in results if one.tool_name == "survey" and one.success]
    for result in surveys:
        colour, size, why = questions[result.tool_call_id]
        assert f"{size} {colour}, because {why}" in result.content, f"the tool got other answers: {result}"
        whole = [one for one in answers if one.call_id == result.tool_call_id and one.data == [size, why]]
        assert any(one.outcome in ("ok", "unknown") for one in whole), f"nobody gave the answers of {result}"
        assert sum(one.outcome == "ok" for one in whole) <= 1, f"one answer was accepted twice: {whole}"


def _reports(reports: list[Report], results: list[ToolResultMessage], judged: bool) -> None:
    contents = [result.content for result in results]
    assert "forged" not in contents, "a forged token ended a call"
    for report in reports:
        if report.forged:
            assert report.outcome == "invalid_call_token", f"{report} was not refused as such"
    for place in {report.place for report in reports}:
        told = [one for one in reports if one.place == place and not one.forged]
        values = {one.value for one in told if one.outcome == "ok"}
        assert len(values) <= 1, f"{place} ended twice: {told}"
        found = [content for content in contents if content in {one.value for one in told}]
        if judged and not found:
            continue
        assert found == [*values], f"{place} has the results {found}, and its system was told {told}"
        first = next((n for n, one in enumerate(told) if one.outcome == "ok"), len(told))
        for later in told[first:]:
            wanted = "ok" if later.value in values else "call_ended"
            assert later.outcome == wanted, f"{later} came after {told[first]}"
