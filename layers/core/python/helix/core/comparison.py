"""The comparison of two runs: what was asked and answered, and their steps side by side.

Law: no I/O. A side is a run with the runs that it continues, or a whole session. Ids and times are not compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from helix.core.alignment import TextPiece, align, compare_texts
from helix.core.entries import AnyEntry, AssistantRow, CallRow, UserRow
from helix.core.json import JsonObject, JsonValue, dumps
from helix.core.messages import Record
from helix.core.patches import equals_json
from helix.core.usage import Usage

MOST_TEXT: Final = 2_000
"""The maximum length, in characters, of a text of a step."""
MOST_TEXTS: Final = 1_000_000
"""The maximum length, in characters, of the texts of all steps together. The more steps, the shorter each text is cut."""
MOST_ANSWER: Final = 20_000
"""The maximum length, in characters, of an input or answer that is compared word by word."""
MOST_CHANGES: Final = 500
"""The maximum number of differences between the states."""
Aspect = Literal["message", "text", "calls", "results", "model"]


class ComparedCall(Record):
    """A call of a tool or a sub-agent. Long texts are cut."""

    call_id: str
    """The id of the call in its session."""
    name: str
    """The name of the tool."""
    arguments: str
    """The arguments of the execution, as JSON text."""
    edited: bool
    """Whether a person or a guard changed the model's arguments."""
    result: str
    """The text of the result. Empty without one."""
    success: bool | None
    """Whether the call succeeded. None without a result."""


class ComparedStep(Record):
    """A step: an answer of the model with its calls. Long texts are cut."""

    step: int
    """The number of the step in its session."""
    messages: list[str]
    """The user's messages before the answer, after the previous one."""
    text: str
    """The text of the answer."""
    calls: list[ComparedCall]
    """The calls of the answer, in the model's order."""
    model: str | None
    """The model that answered. None if it is not known."""
    seconds: float
    """The time from the end of the previous step, or from the message, to the last result. It includes waits for people."""
    usage: Usage
    """The usage of the model call, the tools and the sub-agents."""


class StepPair(Record):
    """Two steps that correspond to each other, or one that only one side has."""

    left: ComparedStep | None
    """The step of the left side. None if only the right side has the step."""
    right: ComparedStep | None
    """The step of the right side. None if only the left side has the step."""
    differs: list[Aspect]
    """What differs between the two steps. Empty if they are the same, or if only one side has the step."""

    @property
    def is_same(self) -> bool:
        return self.left is not None and self.right is not None and not self.differs


class StateDifference(Record):
    """A place where the two custom states differ."""

    path: list[str]
    """The keys and indexes that lead to the value. Empty for the whole state."""
    only: Literal["left", "right"] | None
    """The side that has the value, if only one has it."""
    left: JsonValue
    """The value of the left side. None also if it has none. A value with more than 2,000 characters of JSON is the
    beginning of that text."""
    right: JsonValue
    """The value of the right side, like that of the left one."""


class ComparedSide(Record):
    """The facts of one side."""

    session_id: str
    """The session."""
    run_id: str | None
    """The run. None: the whole session."""
    agent: str
    """The name of the session's agent."""
    status: str
    """The status of the run or session."""
    steps: int
    """The number of steps."""
    seconds: float
    """The sum of the steps' times, without the time between an answer and the next message."""
    usage: Usage
    """The sum of the steps' usage."""
    models: list[str]
    """The models that answered, in the order of their first answers."""


class Comparison(Record):
    """The result of `compare`."""

    left: ComparedSide
    """The side that the request named first."""
    right: ComparedSide
    """The other side."""
    input: list[TextPiece]
    """The first message of both sides, word by word. Long messages are cut."""
    answer: list[TextPiece]
    """The last answer of both sides, word by word: the text, or the output as JSON. Long answers are cut."""
    steps: list[StepPair]
    """The steps of both sides in order."""
    first_difference: int | None
    """The index in `steps` of the first pair whose steps are not the same. None if all are the same."""
    state: list[StateDifference]
    """The differences between the custom states at the ends of both sides."""
    more_state: bool
    """Whether there are more differences than `state` has."""


@dataclass(frozen=True, slots=True)
class Side:
    """The stored data of one side."""

    session_id: str
    run_id: str | None
    agent: str
    status: str
    entries: Sequence[AnyEntry]
    """The messages of the side, in the order of history."""
    state: JsonObject
    """The custom state at the end."""


def compare_sides(left: Side, right: Side) -> Comparison:
    """Compare two sides."""
    one, other = _steps(left.entries), _steps(right.entries)
    keys = [[_Key(step) for step in steps] for steps in (one, other)]
    aligned = align(keys[0], keys[1], _Key.score)
    if aligned is None:
        both = range(max(len(one), len(other)))
        aligned = [(n if n < len(one) else None, n if n < len(other) else None) for n in both]
    pairs = [_pair(None if i is None else one[i], None if j is None else other[j]) for i, j in aligned]
    differences = _differences(left.state, right.state, [])
    return Comparison(
        left=_facts(left, one),
        right=_facts(right, other),
        input=compare_texts(_input(left), _input(right)),
        answer=compare_texts(_answer(left), _answer(right)),
        steps=_cut_pairs(pairs),
        first_difference=next((n for n, pair in enumerate(pairs) if not pair.is_same), None),
        state=differences[:MOST_CHANGES],
        more_state=len(differences) > MOST_CHANGES,
    )


# --- steps ----------------------------------------------------------------------------------------------------------------


def _steps(entries: Sequence[AnyEntry]) -> list[ComparedStep]:
    """Return the steps of consecutive messages. A message after the last answer has no step yet."""
    found: list[ComparedStep] = []
    messages: list[str] = []
    began = 0.0
    for place, entry in enumerate(entries):
        if isinstance(entry, UserRow):
            began = entry.created_at if not messages else began
            messages.append(entry.content or ", ".join(file.name or file.media_type for file in entry.files))
        if not isinstance(entry, AssistantRow):
            continue
        rows = [row for row in entries[place + 1 : place + 1 + len(entry.tool_calls)] if isinstance(row, CallRow)]
        ended = max([entry.created_at, *(row.ended_at or 0 for row in rows)])
        found.append(
            ComparedStep(
                step=entry.step,
                messages=messages,
                text=entry.content or "",
                calls=_calls(entry, rows),
                model=entry.model,
                seconds=max(0.0, ended - began) if began else 0.0,
                usage=sum((row.usage for row in rows if row.usage is not None), entry.usage),
            )
        )
        messages, began = [], ended
    return found


def _calls(answer: AssistantRow, rows: Sequence[CallRow]) -> list[ComparedCall]:
    results = {row.call_id: row for row in rows}
    found = []
    for request in answer.tool_calls:
        row = results.get(request.id)
        edited = row.edited if row is not None else None
        found.append(
            ComparedCall(
                call_id=request.id,
                name=request.name,
                arguments=dumps(edited.arguments if edited is not None else request.arguments),
                edited=edited is not None,
                result=(row.content or "") if row is not None else "",
                success=row.success if row is not None else None,
            )
        )
    return found


class _Key:
    """A step as it is aligned. Two steps are equal if nothing differs between them."""

    def __init__(self, step: ComparedStep) -> None:
        self._step = step
        self._names = [call.name for call in step.calls]
        self._calls = [(call.name, call.arguments) for call in step.calls]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Key) and not _aspects(self._step, other._step)

    def score(self, other: _Key) -> int:
        """Return how well two steps correspond: 0 if they do not."""
        if self._names != other._names:
            return 0
        if self._calls != other._calls:
            return 1
        return 3 if self == other else 2


def _aspects(left: ComparedStep, right: ComparedStep) -> list[Aspect]:
    calls, others = left.calls, right.calls
    same: dict[Aspect, bool] = {
        "message": left.messages == right.messages,
        "text": left.text == right.text,
        "calls": [(c.name, c.arguments) for c in calls] == [(c.name, c.arguments) for c in others],
        "results": [(c.result, c.success) for c in calls] == [(c.result, c.success) for c in others],
        "model": left.model == right.model,
    }
    return [aspect for aspect, is_same in same.items() if not is_same]


def _pair(left: ComparedStep | None, right: ComparedStep | None) -> StepPair:
    return StepPair(left=left, right=right, differs=_aspects(left, right) if left and right else [])


def _cut_pairs(pairs: Sequence[StepPair]) -> list[StepPair]:
    steps = [step for pair in pairs for step in (pair.left, pair.right) if step is not None]
    texts = sum(1 + len(step.messages) + 2 * len(step.calls) for step in steps)
    most = min(MOST_TEXT, max(1, MOST_TEXTS // max(1, texts)))
    return [
        pair.model_copy(update={"left": _cut_step(pair.left, most), "right": _cut_step(pair.right, most)})
        for pair in pairs
    ]


def _cut_step(step: ComparedStep | None, most: int) -> ComparedStep | None:
    if step is None:
        return None
    calls = [
        call.model_copy(update={"arguments": _cut(call.arguments, most), "result": _cut(call.result, most)})
        for call in step.calls
    ]
    texts = {"messages": [_cut(text, most) for text in step.messages], "text": _cut(step.text, most)}
    return step.model_copy(update={**texts, "calls": calls})


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


# --- a side ---------------------------------------------------------------------------------------------------------------


def _facts(side: Side, steps: Sequence[ComparedStep]) -> ComparedSide:
    return ComparedSide(
        session_id=side.session_id,
        run_id=side.run_id,
        agent=side.agent,
        status=side.status,
        steps=len(steps),
        seconds=sum(step.seconds for step in steps),
        usage=sum((step.usage for step in steps), Usage()),
        models=list(dict.fromkeys(step.model for step in steps if step.model is not None)),
    )


def _input(side: Side) -> str:
    return _cut(next((entry.content for entry in side.entries if isinstance(entry, UserRow)), ""), MOST_ANSWER)


def _answer(side: Side) -> str:
    last = next((entry for entry in reversed(side.entries) if isinstance(entry, AssistantRow)), None)
    if last is None:
        return ""
    output = last.finish.get("output") if last.finish is not None else None
    return _cut(dumps(output) if output is not None else last.content or "", MOST_ANSWER)


# --- state ----------------------------------------------------------------------------------------------------------------


def _differences(left: JsonValue, right: JsonValue, path: list[str]) -> list[StateDifference]:
    """Return the places where two values differ. Lists are compared index by index."""
    here, there = _members(left), _members(right)
    if here is None or there is None or isinstance(left, dict) != isinstance(right, dict):
        same = equals_json(left, right)
        return [] if same else [_difference(path, None, left, right)]
    found: list[StateDifference] = []
    for name in here | there:
        place = [*path, name]
        if name in here and name in there:
            found += _differences(here[name], there[name], place)
        else:
            only: Literal["left", "right"] = "left" if name in here else "right"
            found.append(_difference(place, only, here.get(name), there.get(name)))
    return found


def _difference(
    path: list[str], only: Literal["left", "right"] | None, left: JsonValue, right: JsonValue
) -> StateDifference:
    return StateDifference(path=path, only=only, left=_cut_value(left), right=_cut_value(right))


def _cut_value(value: JsonValue) -> JsonValue:
    text = dumps(value)
    return value if len(text) <= MOST_TEXT else _cut(text, MOST_TEXT)


def _members(value: JsonValue) -> dict[str, JsonValue] | None:
    """Return the parts of an object or a list by their names. None for other values."""
    if isinstance(value, dict):
        return value
    return {str(n): item for n, item in enumerate(value)} if isinstance(value, list) else None
