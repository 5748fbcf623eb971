"""The fold of messages and chunks into a conversation, and the changes that its readers show."""

from __future__ import annotations

from typing import Any

import pytest

from helix.core import chunks as c
from helix.core.conversation import changes as ch
from helix.core.conversation.conversation import Conversation
from helix.core.conversation.items import Notice, Step
from helix.core.errors import DamagedRowError
from helix.core.messages import AssistantMessage, ThinkingContent, ToolCallRequest, ToolResultMessage, UserMessage
from helix.core.rows import Pending
from helix.core.wire import StreamMessage


class Stream:
    """A root conversation and the messages of its stream."""

    def __init__(self) -> None:
        self.conversation, self.sequence = Conversation("ses", "boss"), 0
        self.run_id = "run"

    def chunk(self, chunk: c.StreamChunk, session_id: str = "ses", run_id: str = "") -> list[str]:
        """Give the conversation a chunk; return the names of the changes."""
        body = chunk.model_dump(mode="json", exclude={"sequence"})
        return self._take(session_id, run_id or self.run_id, kind="chunk", chunk=body)

    def end(self, kind: str, status: str, session_id: str = "ses", run_id: str = "", **fields: Any) -> list[str]:
        return self._take(session_id, run_id or self.run_id, kind=kind, status=status, **fields)

    def _take(self, session_id: str, run_id: str, **fields: Any) -> list[str]:
        self.sequence += 1
        about = {"stream_id": "ses", "session_id": session_id, "run_id": run_id, "sequence": self.sequence}
        self.changes = self.conversation.take(StreamMessage(**about, **fields))
        return [type(change).__name__ for change in self.changes]

    @property
    def steps(self) -> list[Step]:
        return [item for item in self.conversation.items if isinstance(item, Step)]

    @property
    def notices(self) -> list[Notice]:
        return [item for item in self.conversation.items if isinstance(item, Notice)]


@pytest.fixture
def stream() -> Stream:
    return Stream()


def text(delta: str, attempt: int = 1, step: int = 1) -> c.TextDeltaChunk:
    return c.TextDeltaChunk(step=step, attempt=attempt, delta=delta)


def thought(content: str, whole: bool = False) -> c.ThinkingChunk:
    return c.ThinkingChunk(step=1, attempt=1, content=content, is_complete=whole)


def test_an_answer_has_its_parts_in_order(stream: Stream) -> None:
    begun = ["RunBegan", "StepBegan", "PartBegan", "PartGrew"]
    assert stream.chunk(thought("I won")) == begun
    assert stream.chunk(thought("der.")) == ["PartGrew"]
    assert stream.chunk(thought("I wonder.", whole=True)) == ["PartEnded"], "the whole block repeats its pieces"
    assert stream.chunk(thought("Again.", whole=True)) == ["PartBegan", "PartGrew", "PartEnded"]
    assert stream.chunk(text("Te")) == ["PartBegan", "PartGrew"]
    assert stream.chunk(text("a")) == ["PartGrew"]
    assert stream.chunk(thought("No")) == ["PartEnded", "PartBegan", "PartGrew"]
    assert stream.chunk(c.StepCommittedChunk(step=1, attempt=1, model="m")) == ["PartEnded", "StepCommitted"]
    (step,) = stream.steps
    assert [(part.kind, part.text) for part in step.parts] == [
        ("reasoning", "I wonder."),
        ("reasoning", "Again."),
        ("text", "Tea"),
        ("reasoning", "No"),
    ]
    assert (step.text, step.thinking, step.state, step.model) == ("Tea", "I wonder.\n\nAgain.\n\nNo", "committed", "m")
    assert stream.chunk(text("late")) == [], "a committed answer is final"


def test_a_discarded_attempt_stays_marked_and_the_next_one_is_another(stream: Stream) -> None:
    stream.chunk(text("Wro"))
    assert stream.chunk(c.StepDiscardedChunk(step=1, attempt=1, reason="lost")) == ["PartEnded", "StepDiscarded"]
    assert stream.chunk(text("Right", attempt=2)) == ["StepBegan", "PartBegan", "PartGrew"]
    assert [(step.text, step.state, step.why) for step in stream.steps] == [
        ("Wro", "discarded", "lost"),
        ("Right", "open", None),
    ]
    assert stream.chunk(c.StepDiscardedChunk(step=2, attempt=1)) == ["PartEnded", "StepDiscarded"]
    assert len(stream.steps) == 2, "an attempt that showed nothing has no item"


@pytest.mark.parametrize(
    ("mode", "step", "replaced"), [("continue", 1, True), ("continue", 2, False), (None, 1, False)]
)
def test_the_text_of_an_interrupted_run_is_retained_until_its_step_is_tried_again(
    stream: Stream, mode: str | None, step: int, replaced: bool
) -> None:
    stream.chunk(text("Half a"))
    stream.chunk(c.StepDiscardedChunk(step=1, attempt=1, status="interrupted"))
    (half,) = stream.steps
    assert half.retained
    stream.end("end", "interrupted")
    stream.run_id = "next"
    if mode is not None:
        stream.chunk(c.RunResumedChunk(previous_run_id="run", mode=mode))
        began, _ = stream.changes
        assert isinstance(began, ch.RunBegan) and began.continues and began.retained is half
    stream.chunk(text("All of it", step=step))
    (step_began,) = [change for change in stream.changes if isinstance(change, ch.StepBegan)]
    assert (step_began.replaces is half, half.retained) == (replaced, not replaced)


def test_a_call_goes_from_its_question_to_its_result(stream: Stream) -> None:
    names = {"step": 1, "tool_call_id": "c1", "tool_name": "pay"}
    stream.chunk(c.StepCommittedChunk(step=1, attempt=1))
    assert stream.chunk(c.ToolApprovalRequestChunk(**names, input={"n": 1}, reason="much")) == ["CallAsked"]
    (call,) = stream.conversation.waiting()
    assert (call.state, call.kind, call.arguments, call.reason) == ("waiting", "approval", {"n": 1}, "much")
    edited = c.ToolStartChunk(**names, attempt=1, arguments={"n": 2}, edited={"by": "ann", "at": 1.0})
    assert stream.chunk(edited) == ["CallStarted"]
    assert (call.state, call.arguments, call.edited and call.edited.by) == ("running", {"n": 2}, "ann")
    assert stream.end("fail", "failed", error="it broke") == ["RunEnded"]
    assert (call.state, stream.notices[-1].kind, stream.notices[-1].text) == ("open", "failed", "it broke")
    stream.run_id = "next"
    stream.chunk(c.ToolStartChunk(**names, attempt=2, arguments={"n": 2}))
    assert stream.chunk(c.ToolEndChunk(**names, result="paid")) == ["CallEnded"]
    assert (call.state, call.attempt, call.result) == ("done", 2, "paid")
    assert stream.steps[0].calls == [call], "a later run executes the call of the earlier answer"
    refused = c.ToolEndChunk(step=1, tool_call_id="c2", tool_name="pay", success=False, error="no", arguments={"n": 9})
    stream.chunk(refused)
    assert [(one.id, one.state, one.arguments) for one in stream.steps[0].calls][1] == ("c2", "failed", {"n": 9})


def test_a_sub_agent_has_its_own_conversation_below_its_call(stream: Stream) -> None:
    below = {"parent_tool_call_id": "c1", "sub_agent_id": "sub", "sub_agent_type": "helper", "step": 1}
    early = stream.chunk(text("Before its call"), "sub", "run2")
    assert early[0] == "RunBegan" and "sub" not in stream.conversation.below
    stream.chunk(c.ToolStartChunk(step=1, attempt=1, tool_call_id="c1", tool_name="subagent__helper"))
    assert stream.chunk(c.SubAgentStartChunk(**below)) == ["ChildBegan"]
    call = stream.conversation.calls["c1"]
    child = call.child
    assert child is not None and (child.agent, child.call, child.status) == ("helper", call, "running")
    assert isinstance(child.items[0], Step) and child.items[0].text == "Before its call"
    asked = c.ToolApprovalRequestChunk(step=1, tool_call_id="c1", tool_name="look")
    stream.chunk(asked, "sub", "run2")
    assert [one.step.conversation.id for one in stream.conversation.waiting()] == ["sub"]
    assert stream.chunk(c.SubAgentEndChunk(**below, status="completed", result=4)) == ["ChildEnded"]
    assert (child.status, call.state, call.result) == ("completed", "done", 4)


def test_stored_messages_and_the_later_chunks_are_one_conversation() -> None:
    conversation = Conversation("ses")
    answer = AssistantMessage(
        content="Look.",
        step=1,
        run_id="run",
        thinking=[ThinkingContent(text="Hm."), ThinkingContent(redacted="x")],
        tool_calls=[
            ToolCallRequest(id="c1", name="look", arguments={"n": 1}),
            ToolCallRequest(id="c2", name="subagent__helper"),
        ],
    )
    edited = {"edited": {"by": "ann", "at": 1.0, "arguments": {"n": 2}}}
    result = ToolResultMessage(
        tool_call_id="c1", tool_name="look", content="seen", step=1, run_id="run", metadata=edited
    )
    conversation.load([UserMessage(content="Hi", run_id="run"), answer, result], {"c2": ("sub", "helper")}, 5)

    def message(sequence: int, session_id: str, **chunk: Any) -> StreamMessage:
        about = {"stream_id": "ses", "session_id": session_id, "run_id": "run", "sequence": sequence}
        return StreamMessage(**about, kind="chunk", chunk=chunk)

    _, step = conversation.items
    assert isinstance(step, Step) and (step.text, step.thinking) == ("Look.", "Hm.\n\n(redacted)")
    assert (step.calls[0].arguments, step.calls[0].edited) == ({"n": 2}, step.calls[0].edited)
    assert step.calls[0].edited is not None and step.calls[0].edited.by == "ann"
    assert conversation.take(message(4, "ses", type="text_delta", step=1, attempt=1, delta="Look.")) == []
    assert conversation.take(message(6, "sub", type="text_delta", step=1, attempt=1, delta="old")) == []
    assert conversation.take(message(5, "ses", type="text_delta", step=2, attempt=1, delta="New")) != []
    assert [item.text for item in conversation.items] == ["Hi", "Look.", "New"]
    conversation.expect([Pending(call_id="c9", tool_name="pay", reason="much")])
    assert [call.reason for call in conversation.waiting()] == ["much"]


def test_the_same_chunks_without_their_messages_make_the_same_conversation(stream: Stream) -> None:
    alone = Conversation("ses")
    for chunk in (thought("I"), text("Te"), text("a"), c.StepDiscardedChunk(step=1, attempt=1), text("Ok", attempt=2)):
        names = stream.chunk(chunk)
        alone_names = alone.add(chunk.model_copy(update={"agent_id": "ses", "run_id": "run"}))
        assert names == [type(change).__name__ for change in alone_names]
    assert [step.text for step in stream.steps] == [i.text for i in alone.items if isinstance(i, Step)] == ["Tea", "Ok"]


def test_a_notice_is_not_repeated_and_a_chunk_without_a_meaning_is_passed_on(stream: Stream) -> None:
    for _ in range(2):
        stream.chunk(c.RunQueuedChunk(queued=2, expires_at=1.0, reason="stopped"))
    stream.chunk(c.ErrorChunk(error="busy", code="model_error"))
    stream.chunk(c.ErrorChunk(error="over", recoverable=False))
    stream.chunk(c.RunPausedChunk(reason="budget_exceeded"))
    assert [notice.kind for notice in stream.notices] == ["queued", "error", "budget"]
    assert stream.chunk(c.UnknownChunk(type="later", more=1)) == ["Unknown"]
    for kind in ("text_delta", "thinking", "tool_end"):
        with pytest.raises(DamagedRowError):
            stream._take("ses", "run", kind="chunk", chunk={"type": kind})


def test_every_chunk_that_writers_know_makes_a_change(stream: Stream) -> None:
    given: dict[str, Any] = {
        "delta": "x", "content": "x", "tool_call_id": "c", "tool_name": "t", "parent_tool_call_id": "p",
        "sub_agent_id": "s", "sub_agent_type": "a", "status": "completed", "event_name": "e", "patches": [], "error": "e",
        "output": 1, "previous_run_id": "r", "mode": "continue", "queued": 1, "expires_at": 1.0, "checkpoint_id": "k",
        "step_count": 1, "message_count": 1, "superseded_run_id": "r", "by_run_id": "q", "reason": "r",
        "queued_id": "q", "state": "waiting",
    }  # fmt: skip
    stream.chunk(text("x"))
    for step, (kind, cls) in enumerate(c.CHUNK_CLASSES.items(), 2):
        fields = {name: given[name] for name, field in cls.model_fields.items() if field.is_required()}
        run_id = "other" if kind == "run_resumed" else ""
        chunk = c.parse_chunk({"type": kind, "step": step, "attempt": 1, **fields})
        assert stream.chunk(chunk, run_id=run_id), kind
