"""`helix chat` on its screen, driven by Textual's pilot: what it shows, and what a user can do there."""

from __future__ import annotations

import re
from typing import Any

import pytest
from tests.support.chat_screen import screen
from tests.support_gateway import BRISK, executor_of
from tests.support_run import Gate, Text, a_tool, agent, call, calls, gated
from textual.widgets import Button, Input, OptionList, TextArea

from helix import ScriptedModel, create_sub_agent_tool
from helix.cli.chat.answer_form import AnswerForm
from helix.cli.chat.blocks import CallBlock, FoldHeading, ReasoningBlock
from helix.cli.chat.texts import ModelText
from helix.client import HelixClient
from helix.core.conversation.items import User
from helix.core.errors import ModelError
from helix.gateway.loopback import LoopbackGateway

pytestmark = pytest.mark.slow

FORBIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\U000e0020-\U000e007f]")


def echo(done: list[str] | None = None, **fields: Any) -> Any:
    async def execute(given: Any, ctx: Any) -> str:
        (done if done is not None else []).append(given.text)
        return f"echoed {given.text}"

    return a_tool("echo", execute, input_schema=Text, **fields)


async def test_an_earlier_message_in_the_prompt_writes_no_control_characters() -> None:
    async with screen(executor_of(["Done."])) as s:
        await s.type("abc\u202edef\u200f \x9b2J \U000e0041 end")
        await s.ended()
        await s.press("up")
        await s.until(lambda: "abc\ufffddef\ufffd" in s.text.split("Done.")[-1])
        assert not FORBIDDEN.search(s.text.replace("\n", ""))


async def test_an_approval_with_edited_arguments_is_answered_in_place_and_loses_nothing() -> None:
    done: list[str] = []
    helper = agent("helper", tools=[echo(done, require_approval=True)])
    script = [calls(call("echo", text="A7"), content="I shall **echo**."), "It is done."]
    async with screen(executor_of(script, helper)) as s:
        await s.type("Echo, please")
        await s.until("Approve echo?")
        assert "text: string" in s.text and "I shall echo." in s.text and "waits for you" in s.text
        area = s.app.query_one(AnswerForm).query_one(TextArea)

        area.text = '{"words": "A8"}'  # not from the tool's schema: the service reports it
        await s.press("ctrl+s")
        await s.until("text: Field required")
        assert area.text == '{"words": "A8"}' and not done
        area.text = '["A8"'
        await s.press("ctrl+s")
        await s.until("--arguments must be a JSON object")
        area.text = '{"text": "A8"}'
        await s.press("ctrl+s")
        await s.ended()
        assert done == ["A8"] and not s.app.query(AnswerForm)
        assert "It is done." in s.text and 'echo(text="A8") edited → echoed A8' in s.text
        assert s.app.focused is s.app.prompt


async def test_a_denial_has_a_reason_that_the_model_reads() -> None:
    helper = agent("helper", tools=[echo(require_approval=True)])
    model = ScriptedModel([calls(call("echo", text="A7")), "Then not."])
    async with screen(executor_of(model, helper)) as s:
        await s.type("Echo, please")
        await s.until("Approve echo?")
        s.app.query_one(Input).value = "too loud"
        await s.until(lambda: isinstance(s.app.focused, Button))
        await s.press("tab", "enter")
        await s.ended()
        assert "✗ echo" in s.text and "too loud" in str(model.requests[-1])


async def test_a_clients_result_is_asked_for() -> None:
    helper = agent("helper", tools=[a_tool("locate", "client", input_schema=Text)])
    model = ScriptedModel([calls(call("locate", text="here")), "Found."])
    async with screen(executor_of(model, helper)) as s:
        await s.type("Where am I?")
        await s.until("Give the result of locate?")
        await s.press("ctrl+s")
        await s.until("type the result")
        s.app.query_one(AnswerForm).query_one(TextArea).text = '{"town": "Ulm"}'
        await s.press("ctrl+s")
        await s.ended()
        assert "Ulm" in str(model.requests[-1]) and "Found." in s.text


async def test_reasoning_calls_and_sub_agents_are_folded_and_open() -> None:
    below, gate = agent("below", tools=[echo()], output_schema=Text), Gate()
    boss = agent("boss", tools=[create_sub_agent_tool(below, Text)])
    script = {
        "boss": [{**calls(call("subagent__below", text="go")), "thinking": "I wonder."}, "All is said."],
        "below": [
            calls(call("echo", text="deep"), content="From below."),
            gated(gate, calls(call("__finish__", text="Up."))),
        ],
    }
    executor = executor_of(script, boss)
    async with screen(executor, "boss") as s:
        await s.type("Go")
        await s.until("From below.")  # open, while it works
        gate.open()
        await s.ended()
        assert '✓ echo(text="deep") → echoed deep' in s.text and "✓ below(" in s.text
        assert "I wonder." not in s.text
        s.app.query_one(ReasoningBlock).query_one(FoldHeading).focus()
        await s.press("enter")
        await s.until("I wonder.")
        session_id = s.app.session.session_id
    async with screen(executor, "boss", session_id) as s:  # stored content is folded, and is read when a user opens it
        await s.until("All is said.")
        assert "From below." not in s.text
        s.app.query_one(CallBlock).query_one(FoldHeading).focus()
        await s.press("enter")
        await s.until("From below.")


async def test_a_discarded_attempt_is_struck() -> None:
    class Flaky(ScriptedModel):
        async def generate_step(self, request: Any) -> Any:
            request.callbacks.on_text_delta("half an answer")
            request.callbacks.on_error(ModelError("overloaded", retryable=True))
            return await super().generate_step(request)

    async with screen(executor_of(Flaky(["A whole answer."]))) as s:
        await s.type("Go")
        await s.ended()
        await s.until("was discarded")
        parts = [part for strip in s.app.screen._compositor.render_strips() for part in strip]
        struck = [part.text for part in parts if part.style is not None and part.style.strike]
        assert "".join(struck).strip() == "half an answer" and "A whole answer." in s.text


@pytest.mark.slow
async def test_branch_back_sessions_cost_and_help_on_a_narrow_screen() -> None:
    executor = executor_of(["One.", "Two.", "Three."])
    async with screen(executor, size=(60, 30)) as s:
        await s.type("/cost")
        await s.until("needs a session")
        await s.type("First")
        await s.ended()
        await s.type("Second")
        await s.until("Two.")
        await s.ended()
        first = s.app.session.session_id

        await s.type("/branch")
        await s.until("Branch from")
        points = s.app.screen.query_one(OptionList)
        points.highlighted = next(i for i, o in enumerate(points.options) if str(o.prompt).startswith("step 1 "))
        await s.press("enter")
        await s.until(
            lambda: s.app.session.session_id not in (None, first) and "Two." not in s.text and "One." in s.text
        )
        await s.type("Other")
        await s.until("Three.")
        await s.type("/back")
        await s.until(lambda: s.app.session.session_id == first and "Two." in s.text and "Three." not in s.text)
        await s.type("/branch 9")
        await s.until("step 9 has no checkpoint")

        await s.type("/sessions")
        await s.until("Enter chooses")
        await s.press("enter")
        await s.until("Three.")
        await s.type("/cost")
        await s.until("in all")
        assert "quantity" in s.text and "scripted" in s.text
        await s.press("escape")
        await s.type("/help")
        await s.until("/branch")
        await s.press("end")
        await s.until("Escape, Ctrl+C")
        await s.press("escape")
        await s.type("/nonsense")
        await s.until("is not a command")
        assert max(len(line) for line in s.text.splitlines()) <= 60


async def test_a_message_waits_for_the_run_and_an_interrupt_sends_it() -> None:
    gate = Gate()
    model = ScriptedModel([gated(gate, "Never said."), "Steered.", "Last."])
    async with screen(executor_of(model)) as s:
        await s.type("Begin")
        await gate.reached()
        await s.type("Rather this")
        await s.until("Escape interrupts the run")
        await s.type("Then that")
        await s.until("⧗ Then that")
        await s.press("escape")
        await s.until("Last.")
        await s.ended()
        assert "Interrupted." in s.text and not s.app.session.inbox and "⧗" not in s.text
        told = [m.content for m in model.requests[-1].messages if m.role == "user"]
        assert told == ["Begin", "Rather this", "Then that"]
        s.app.prompt.text = ""
        await s.press("up")
        assert s.app.prompt.text == "Then that"
        await s.press("up", "up", "down", "down", "down")
        assert s.app.prompt.text == ""


async def test_waiting_messages_are_withdrawn_and_steer_the_run() -> None:
    gate = Gate()
    helper = agent("helper", tools=[a_tool("work", lambda args, ctx: gate.wait())])
    executor = executor_of([calls(call("work"), content="I look."), "As you say."], helper)
    async with screen(executor) as s:
        await s.type("/withdraw")
        await s.until("needs a session")
        await s.type("Begin")
        await gate.reached()
        await s.type("/steer")
        await s.until("no message waits")
        for text in ("One", "Two", "Three"):
            await s.type(text)
            await s.until(f"⧗ {text}")
        await s.type("/withdraw 2")
        await s.until(lambda: "⧗ Two" not in s.text)
        assert s.app.prompt.text == "Two", "its text can be changed and sent again"
        s.app.prompt.text = ""
        await s.type("/withdraw 9")
        await s.until("there is no waiting message 9")
        await s.type("/steer")
        await s.until(lambda: [m.mode for m in s.app.session.inbox] == ["steer", "queue"])
        await s.type("/steer And this")
        await s.until("⧗ And this")
        await s.type("/withdraw")
        await s.until(lambda: "⧗ Three" not in s.text)
        s.app.prompt.text = ""
        gate.open()
        await s.until("As you say.")
        await s.ended()
        messages = (await executor.sessions.get_messages(str(s.app.session.session_id))).messages
        assert [m.content for m in messages if m.role == "user"] == ["Begin", "One", "And this"]


async def test_the_second_interrupt_leaves() -> None:
    gate = Gate()
    async with screen(executor_of([gated(gate, "Never said.")])) as s:
        await s.type("Begin")
        await gate.reached()
        s.app.session.stopping = True  # as after the first, unless the run stops at once
        await s.press("ctrl+c")
        await s.until(lambda: not s.app.is_running or s.app._exit)
    async with screen(executor_of([])) as s:
        await s.press("ctrl+c")
        assert not s.app._exit
        await s.press("ctrl+c")
        assert s.app._exit


HOSTILE = "\x1b]0;owned\x07 \x9b2J \u202eabc &#x202e;def [red]red[/] [@click=app.exit]x[/] <b>bold</b> `\u2066`"


async def test_hostile_text_is_shown_and_does_nothing() -> None:
    helper = agent("helper", tools=[echo(require_approval=True)])
    script = [{**calls(call("echo", text=HOSTILE), content=HOSTILE), "thinking": HOSTILE}, HOSTILE]
    async with screen(executor_of(script, helper), size=(120, 50)) as s:
        await s.type(HOSTILE)
        await s.until("Approve echo?")
        await s.press("ctrl+s")
        await s.ended()
        for fold in [*s.app.query(ReasoningBlock), *s.app.query(CallBlock)]:
            await fold.open(True)
        await s.until("arguments")
        assert not FORBIDDEN.search(s.text.replace("\n", ""))
        for words in ("␛]0;owned", "[red]red[/]", "[@click=app.exit]x[/]", "<b>bold</b>"):
            assert s.text.count(words) >= 4, words
        assert "def" in s.text and s.app.is_running


async def test_a_server_that_is_gone_and_comes_back_is_gone_on_with() -> None:
    gate = Gate()
    executor = executor_of([gated(gate, "From before and after.")])
    servers = [LoopbackGateway(executor)]
    impatient = BRISK.__class__(**{**{f: getattr(BRISK, f) for f in BRISK.__slots__}, "give_up_s": 0.3})
    async with executor:
        await servers[0].__aenter__()
        async with screen(lambda: HelixClient(servers[-1].url, settings=impatient)) as s:
            await s.type("Go")
            await gate.reached()
            await servers[0].__aexit__(None, None, None)
            await s.until("connection lost")
            servers.append(LoopbackGateway(executor))
            await servers[1].__aenter__()
            gate.open()
            await s.until("From before and after.")
            await s.ended()
            assert len(list(s.app.query(ModelText))) == 1
        await servers[1].__aexit__(None, None, None)


async def test_a_refused_message_is_given_back() -> None:
    async with screen(executor_of([]), "nobody") as s:
        await s.type("Long and thought out")
        await s.until("there is no agent")
        assert s.app.prompt.text == "Long and thought out"
        assert not any(isinstance(item, User) for item in s.app.session.conversation.items)


async def test_a_paused_session_is_opened_with_its_question() -> None:
    helper = agent("helper", tools=[echo(require_approval=True)])
    executor = executor_of([calls(call("echo", text="A7")), "Done."], helper)
    handle = await executor.execute(helper, "Echo, please")
    await handle.result()
    async with screen(executor, session_id=handle.session_id) as s:
        await s.until("Approve echo?")
        assert s.text.count("echo(text=") == 1
        await s.press("ctrl+s")
        await s.ended()
        assert "Done." in s.text
