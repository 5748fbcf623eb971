"""Guards and output checks of one structured output, and what readers of the stream see of it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.support_guards import Report, call, play, says
from tests.support_run import of_type

from helix import Allow, Block, Guard, Replace, Retry
from helix.core.conversation.conversation import Conversation
from helix.core.conversation.items import Notice, User


def report(text: str, ident: str = "c1") -> dict[str, Any]:
    return {"tool_calls": [call("__finish__", ident, text=text)]}


def final_output(chunks: Any) -> Any:
    """Return the output that a reader shows at the end. Text of discarded attempts does not count."""
    text = ""
    for chunk in chunks:
        if chunk.type == "step_discarded":
            text = ""
        elif chunk.type == "output_delta":
            text += chunk.delta
    return json.loads(text)


@pytest.mark.parametrize("hold", ["step", None])
async def test_readers_get_the_output_that_a_guard_put_in_place(hold: Any) -> None:
    guards = [Guard(output=says(Replace({"text": "none"}), "42"), hold=hold)]
    played = await play([report("42")], guards, output_schema=Report)
    assert played.result.output == Report(text="none")
    assert final_output(played.chunks) == {"text": "none"}
    seen = "".join(chunk.delta for chunk in of_type(played.chunks, "output_delta"))
    assert ("42" in seen) == (hold is None)


async def test_readers_never_get_a_held_output_that_a_guard_refused() -> None:
    guards = [Guard(output=says(Retry("no numbers"), "42"), hold="step")]
    played = await play([report("42"), report("none", "c2")], guards, output_schema=Report)
    assert played.result.output == Report(text="none")
    assert [json.loads(chunk.delta) for chunk in of_type(played.chunks, "output_delta")] == [{"text": "none"}]


async def test_readers_get_a_held_output_that_is_allowed() -> None:
    played = await play([report("none")], [Guard(output=says(Allow()), hold="step")], output_schema=Report)
    assert final_output(played.chunks) == {"text": "none"}


async def test_a_check_sees_what_the_guards_allowed_and_its_verdict_is_stored_too() -> None:
    checked: list[str] = []

    def check(output: Report) -> str | None:
        checked.append(output.text)
        return "say more" if output.text == "short" else None

    guards = [Guard(name="keys", output=says(Retry("no numbers"), "42"))]
    script: list[Any] = [report("42", "c1"), report("short", "c2"), report("long enough", "c3")]
    played = await play(script, guards, output_schema=Report, output_checks=[check], max_completion_retries=2)
    assert played.result.output == Report(text="long enough")
    assert checked == ["short", "long enough"]
    refused, short, accepted = await played.answers()
    assert [row.finish is None for row in (refused, short, accepted)] == [True, True, False]
    assert [row.verdicts[0].verdict for row in (refused, short, accepted)] == ["retry", "allow", "allow"]
    results = [json.loads(str(row.content)) for row in await played.calls()]
    assert results[1] == {"error": "say more"}


async def test_a_check_that_raises_ends_the_run_after_the_guards() -> None:
    def check(output: Report) -> str | None:
        raise RuntimeError("broken")

    guards = [Guard(output=says(Allow()))]
    played = await play([report("none")], guards, output_schema=Report, output_checks=[check])
    assert played.result.error_code == "output_check_failed"
    assert await played.answers() == []


async def test_a_withheld_answer_has_its_notice_after_a_reload_too() -> None:
    guards = [Guard(name="keys", output=says(Block("no keys"), "42"))]
    played = await play(["It is 42.", "I cannot say."], guards)
    live, loaded = Conversation("s"), Conversation("s")
    for chunk in played.chunks:
        live.add(chunk)
    loaded.load((await played.workers.sessions.get_messages("s")).messages, {})
    wanted = [("error", "guard 'keys' blocked the answer: no keys", "guard_blocked")]
    for shown in (live, loaded):
        notices = [(item.kind, item.text, item.code) for item in shown.items if isinstance(item, Notice)]
        assert notices == wanted
    places = [type(item).__name__ for item in loaded.items if not isinstance(item, User)]
    assert places == ["Step", "Notice", "Step"], "it stands where the answer would"
