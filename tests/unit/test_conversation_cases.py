"""One fixture for both folds of a conversation, in Python and in TypeScript.

`tests/fixtures/conversation_cases.json` has streams (recorded and random ones), and the result of the Python fold for
each message. `clients/js/test/conversation.test.ts` compares the fold in TypeScript with it.
`HELIX_RECORD=1 pytest tests/unit/test_conversation_cases.py` writes the changes and items of the streams in it anew.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, assert_never

from pydantic import TypeAdapter

from helix.core.conversation import changes as ch
from helix.core.conversation.conversation import Conversation
from helix.core.conversation.items import Call, Item, Notice, Part, Step, User
from helix.core.files import FilePart
from helix.core.messages import AnyMessage, Citation
from helix.core.rows import Pending
from helix.core.wire import StreamMessage

PLACE = Path(__file__).parents[1] / "fixtures" / "conversation_cases.json"
MESSAGES: TypeAdapter[list[AnyMessage]] = TypeAdapter(list[AnyMessage])
PENDING: TypeAdapter[list[Pending]] = TypeAdapter(list[Pending])


def of_step(step: Step | None) -> str | None:
    return f"{step.conversation.id} {step.run_id} {step.step}/{step.attempt}" if step is not None else None


def of_part(part: Part) -> str:
    return f"{of_step(part.step)}/{part.index} {part.kind}"


def of_call(call: Call) -> str:
    return f"{of_step(call.step)} {call.id} {call.state}"


def of_files(files: Sequence[FilePart]) -> list[Any]:
    return [[file.model_dump(mode="json") for file in files]] if files else []


def of_source(source: Citation) -> list[Any]:
    return [source.start, source.end, source.url, source.title, source.quote]


def of_change(change: ch.Change) -> list[Any]:
    name = type(change).__name__
    match change:
        case ch.PartGrew(part, delta):
            return [name, of_part(part), delta]
        case ch.PartBegan(part) | ch.PartEnded(part):
            return [name, of_part(part)]
        case ch.StepBegan(step, replaces):
            return [name, of_step(step), of_step(replaces)]
        case ch.StepCommitted(step) | ch.StepDiscarded(step):
            return [name, of_step(step), step.state, step.retained]
        case ch.TextCited(step, source):
            return [name, of_step(step), of_source(source)]
        case ch.CallAsked(call) | ch.CallStarted(call) | ch.CallEnded(call):
            return [name, of_call(call)]
        case ch.ChildBegan(call, child) | ch.ChildEnded(call, child, _):
            return [name, of_call(call), child.id, child.status]
        case ch.RunBegan(conversation, run_id, mode, retained):
            return [name, conversation.id, run_id, mode, change.continues, of_step(retained)]
        case ch.RunEnded(conversation, kind, status, error):
            return [name, conversation.id, kind, status, error]
        case _:
            return [name, change.conversation.id]


def of_item(item: Item) -> list[Any]:
    match item:
        case User(text, run_id, files):
            return ["user", text, run_id, *of_files(files)]
        case Notice(kind, text, tone, code, queued, hidden):
            return ["notice", kind, text, tone, code, queued, hidden]
        case Step():
            parts = [[part.kind, part.text] for part in item.parts]
            usage = item.usage and item.usage.model_dump(mode="json")
            about = [item.state, item.retained, item.why, item.model, usage, *(["cut"] if item.cut else [])]
            served = {"served": [shown(call) for call in item.served.values()]} if item.served else {}
            cited = {"sources": [of_source(source) for source in item.sources]} if item.citations else {}
            calls = [shown(call) for call in item.calls]
            return ["step", of_step(item), parts, about, calls, *([served | cited] if served or cited else [])]
        case _:
            assert_never(item)


def shown(call: Call) -> list[Any]:
    asked: list[Any] = [call.kind, call.parameters, call.reason, call.edited and call.edited.by]
    if call.round:
        asked += [call.round, [[question.text, question.data] for question in call.questions]]
    asked += [{"asked": call.asked}] if call.asked is not None else []
    ended = [call.result, call.error, call.child and call.child.id, *of_files(call.files)]
    return [of_call(call), call.name, call.arguments, call.attempt, asked, ended]


def folded(case: dict[str, Any]) -> dict[str, Any]:
    """The case with the changes of each message, and the items at the end, as the fold makes them."""
    conversation = Conversation(case["session_id"])
    if (stored := case.get("stored")) is not None:
        children = {call_id: (child["id"], child["agent"]) for call_id, child in stored["children"].items()}
        conversation.load(MESSAGES.validate_python(stored["messages"]), children, stored["sequence"])
    takes = []
    for taken in case["takes"]:
        message = StreamMessage.model_validate({"stream_id": case["session_id"], **taken["message"]})
        takes.append({**taken, "changes": [of_change(change) for change in conversation.take(message)]})
    conversation.expect(PENDING.validate_python(case.get("pending", [])))
    found = [
        {
            "about": [one.id, one.agent, one.call and one.call.id, one.status, one.run_id],
            "items": [of_item(item) for item in one.items],
        }
        for one in conversation.below.values()
    ]
    return {**case, "takes": takes, "conversations": found, "waiting": [call.id for call in conversation.waiting()]}


def written(cases: list[dict[str, Any]]) -> str:
    """JSON with a line for each message, so that a change is seen in its place."""
    return "[\n" + ",\n".join(_lines(case) for case in cases) + "\n]\n"


def _lines(case: dict[str, Any]) -> str:
    takes = ",\n".join(json.dumps(taken, ensure_ascii=False) for taken in case["takes"])
    rest = [f"{json.dumps(name)}: {json.dumps(value)}" for name, value in case.items() if name != "takes"]
    return "{" + ",\n".join(rest) + ',\n"takes": [\n' + takes + "\n]}"


def test_the_fixture_has_what_the_fold_makes_of_its_streams() -> None:
    cases = json.loads(PLACE.read_text("utf-8"))
    now = [folded(case) for case in cases]
    if os.environ.get("HELIX_RECORD"):
        PLACE.write_text(written(now), encoding="utf-8")
    else:
        assert now == cases


def test_the_fixture_has_every_change() -> None:
    cases = json.loads(PLACE.read_text("utf-8"))
    names = {change[0] for case in cases for taken in case["takes"] for change in taken["changes"]}
    assert names == {name for name, cls in vars(ch).items() if isinstance(cls, type) and cls.__module__ == ch.__name__}
