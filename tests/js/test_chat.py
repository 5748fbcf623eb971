"""`useChat` over `HelixChatTransport`: the SDK's own chat, on a real WebSocket server."""

from __future__ import annotations

from typing import Any, Self

import pytest
from tests.js.test_client import QUICK
from tests.support_gateway import WORDS, FaultySockets, executor_of, served
from tests.support_run import Gate, Text, a_tool, agent, call, calls, eventually, gated

from helix import Question, ScriptedModel, ToolContext, create_sub_agent_tool, tool
from helix.adapters.models.scripted import Entry

pytestmark = pytest.mark.slow
CHAT = "chat"  # an id for anonymous users, who have no prefix


class Page:
    """A page of the chat, by its name in the driver."""

    def __init__(self, typescript: Any, url: str, name: str = "page", chat: str = "chat", **about: Any) -> None:
        self._typescript = typescript
        self._about = {"page": name, "url": url, "agent": "helper", "chatId": chat, "settings": QUICK, **about}
        self.problems: list[Any] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._typescript("leave", page=self._about["page"])

    async def __call__(self, *steps: list[Any]) -> list[dict[str, Any]]:
        """Return the messages that the page shows after these steps."""
        found = await self._typescript("chat", **self._about, steps=steps)
        assert "error" not in found, found
        self.status, self.problems, self.connections = found["status"], found["problems"], found["connections"]
        messages: list[dict[str, Any]] = found["messages"]
        return messages


def texts(message: dict[str, Any]) -> str:
    return "".join(part["text"] for part in message["parts"] if part["type"] == "text")


def call_parts(message: dict[str, Any]) -> list[tuple[str, str]]:
    return [(part["toolCallId"], part["state"]) for part in message["parts"] if part["type"] == "dynamic-tool"]


def refund(**fields: Any) -> Any:
    return a_tool("refund", lambda args, ctx: f"refunded {args.text}", input_schema=Text, **fields)


async def test_a_conversation(typescript: Any) -> None:
    tool = a_tool("look", lambda args, ctx: "It rains.")
    script: list[Entry] = [calls(call("look"), content="Let me see. "), "Take a coat.", "Yes."]
    executor = executor_of(script, agent("helper", tools=[tool]))
    async with served(executor) as (gateway, _), Page(typescript, gateway.url) as page:
        messages = await page(["say", "May I go out?"], ["say", "Sure?"])
        assert (page.status, page.problems) == ("ready", [])
        assert [message["role"] for message in messages] == ["user", "assistant", "user", "assistant"]
        assert (texts(messages[1]), texts(messages[3])) == ("Let me see. Take a coat.", "Yes.")
        assert call_parts(messages[1]) == [("call_0", "output-available")]
        runs = (await executor.sessions.list_runs(CHAT)).runs
        assert messages[1]["metadata"] == {"sessionId": CHAT, "runId": runs[-1].run_id}
        assert messages[1]["id"] == runs[-1].run_id


async def test_several_approvals_one_with_other_arguments_and_one_denied(typescript: Any) -> None:
    """The continuation belongs to the same message of the page."""
    asked = calls(call("refund", text="A"), call("refund", text="B"), call("refund", text="C"), content="May I? ")
    executor = executor_of([asked, "It is done."], agent("helper", tools=[refund(require_approval=True)]))
    async with served(executor) as (gateway, _), Page(typescript, gateway.url) as page:
        messages = await page(["say", "Refund all"])
        assert call_parts(messages[1]) == [(f"call_{n}", "approval-requested") for n in range(3)]
        edited = {"arguments": {"call_1": {"text": "b"}}}
        approvals = [["call_0", True], ["call_1", True, None], ["call_2", False, "no", edited]]
        messages = await page(["answer", approvals], ["shows", "It is done."], ["ready"])
        assert page.problems == []
        assert [message["role"] for message in messages] == ["user", "assistant"]
        assert texts(messages[1]) == "May I? It is done."
        shown = [part for part in messages[1]["parts"] if part["type"] == "dynamic-tool"]
        assert [part["state"] for part in shown] == ["output-available", "output-available", "output-denied"]
        assert [part.get("output") for part in shown] == ["refunded A", "refunded b", None]


async def test_a_question_is_a_part_that_the_page_answers(typescript: Any) -> None:
    """The page goes on by itself after its answer, and shows each answer."""

    @tool
    async def book(ctx: ToolContext) -> str:
        """Book."""
        seat = await ctx.ask(Question("Which seat?", choices=["window", "aisle"]))
        return f"{seat} {await ctx.ask(Question('How many?', schema=int))}"

    executor = executor_of([calls(call("book"), content="One moment. "), "Booked."], agent("helper", tools=[book]))
    async with served(executor) as (gateway, _), Page(typescript, gateway.url) as page:
        messages = await page(["say", "Book"])
        assert call_parts(messages[1]) == [("call_0", "output-available"), ("call_0?1", "input-available")]
        await page(["output", "call_0?1", "aisle"], ["ready"])
        messages = await page(["output", "call_0?2", 2], ["shows", "Booked."], ["ready"])
        assert page.problems == []
        shown = [part for part in messages[1]["parts"] if part["type"] == "dynamic-tool"]
        assert [(part["toolCallId"], part.get("output")) for part in shown] == [
            ("call_0", "aisle 2"),
            ("call_0?1", "aisle"),
            ("call_0?2", 2),
        ]


async def test_the_approval_of_a_sub_agents_call(typescript: Any) -> None:
    child = agent("child", output_schema=Text, tools=[refund(require_approval=True)])
    asked = calls(call("subagent__child", message="go"), content="You do it. ")
    script: list[Entry] = [asked, calls(call("refund", text="A"), content="I ask.")]
    script += [calls(call("__finish__", text="allowed")), "All done."]
    executor = executor_of(script, agent("helper", tools=[create_sub_agent_tool(child)]))
    async with served(executor) as (gateway, _), Page(typescript, gateway.url) as page:
        messages = await page(["say", "Refund A"])
        (_, (below, state)) = call_parts(messages[1])
        assert state == "approval-requested" and below.endswith("/call_0")
        messages = await page(["answer", [[below, True]]], ["shows", "All done."], ["ready"])
        assert page.problems == []
        assert texts(messages[1]) == "You do it. All done."
        assert {state for _, state in call_parts(messages[1])} == {"output-available"}


async def test_the_result_of_a_tool_of_the_page(typescript: Any) -> None:
    form = a_tool("form", "client", input_schema=Text)
    executor = executor_of([calls(call("form", text="colour?")), "Noted."], agent("helper", tools=[form]))
    async with served(executor) as (gateway, _), Page(typescript, gateway.url) as page:
        await page(["say", "Ask me"])
        messages = await page(["output", "call_0", {"colour": "blue"}], ["shows", "Noted."], ["ready"])
        assert (page.problems, texts(messages[1])) == ([], "Noted.")
        (given,) = [part for part in messages[1]["parts"] if part["type"] == "dynamic-tool"]
        assert given["output"] == {"colour": "blue"}


async def test_stop_interrupts_the_run(typescript: Any) -> None:
    gate = Gate()
    executor = executor_of([gated(gate, "Never said."), "Again."])
    async with served(executor) as (gateway, client), Page(typescript, gateway.url) as page:
        await page(["begin", "Hi"])
        await gate.reached()
        await page(["stop"])
        handle = await client.handle(CHAT)
        assert page.status == "ready"
        assert (await handle.result(10)).status == "interrupted"
        messages = await page(["say", "And now?"])
        assert texts(messages[-1]) == "Again."
        gate.open()


async def test_a_message_while_the_agent_runs_waits_for_its_own_turn(typescript: Any) -> None:
    """The page that sends it shows both answers, each once, and so does a page that loads."""
    gate = Gate()
    executor = executor_of([gated(gate, "First done."), "Second done."])
    async with (
        served(executor) as (gateway, client),
        Page(typescript, gateway.url) as page,
        Page(typescript, gateway.url, "other tab") as other,
    ):
        await page(["begin", "Hi"])
        await gate.reached()
        await page(["begin", "And?"])

        async def waits() -> bool:
            return len((await client.get_session(CHAT)).inbox) == 1

        await eventually(waits)
        (message,) = (await client.get_session(CHAT)).inbox
        loaded = (await typescript("loaded", page="page", chatId=CHAT))["messages"]
        assert loaded[-1]["metadata"] == {"queuedId": message.id, "state": "waiting"}
        gate.open()
        messages = await page(["shows", "Second done."], ["ready"])
        assert [texts(one) for one in messages] == ["Hi", "And?", "First done.", "Second done."] or [
            texts(one) for one in messages
        ] == ["Hi", "First done.", "And?", "Second done."]
        assert page.problems == []
        assert [texts(one) for one in await other(["resume"])] == ["Second done."]
        assert [run.status for run in (await executor.sessions.list_runs(CHAT)).runs] == ["completed", "completed"]


async def test_a_steering_message_ends_its_own_response(typescript: Any) -> None:
    gate = Gate()
    look = a_tool("look", lambda args, ctx: gate.wait())
    script: list[Entry] = [calls(call("look"), content="Let me see. "), "As you say."]
    executor = executor_of(script, agent("helper", tools=[look]))
    async with served(executor) as (gateway, client), Page(typescript, gateway.url) as page:
        await page(["begin", "Hi"])
        await gate.reached()
        await page(["begin with", "Rather this", {"body": {"when_running": "steer"}}])

        async def waits() -> bool:
            return len((await client.get_session(CHAT)).inbox) == 1

        await eventually(waits)
        gate.open()
        messages = await page(["has", "As you say."], ["ready"])
        assert [texts(one) for one in messages] == ["Hi", "Let me see. As you say.", "Rather this"]
        (part,) = [part for part in messages[1]["parts"] if part["type"] == "data-message-queued"]
        assert part["data"]["content"] == "Rather this"
        loaded = (await typescript("loaded", page="page", chatId=CHAT))["messages"]
        assert [texts(one) for one in loaded] == [texts(one) for one in messages]
        assert loaded[1]["parts"] == messages[1]["parts"]


async def test_a_message_that_interrupts_takes_the_place_of_the_run(typescript: Any) -> None:
    gate = Gate()
    executor = executor_of([gated(gate, "Never said."), "Other plans."])
    async with (
        served(executor) as (gateway, _),
        Page(typescript, gateway.url) as page,
        Page(typescript, gateway.url, "other tab") as other,
    ):
        await page(["begin", "Hi"])
        await gate.reached()
        messages = await other(["say with", "Other plans", {"body": {"when_running": "interrupt"}}])
        assert (texts(messages[-1]), other.problems) == ("Other plans.", [])
        assert [texts(message) for message in await page(["ready"])] == ["Hi", ""]
        statuses = [run.status for run in (await executor.sessions.list_runs(CHAT)).runs]
        assert statuses == ["completed", "superseded"]
        gate.open()


async def test_a_page_that_comes_back_shows_the_run_from_its_beginning(typescript: Any) -> None:
    """It returns in the middle of a turn, after an approval, and twice at once as in React's strict mode, which stops
    nothing."""
    gate = Gate()
    asked = calls(call("refund", text="A"), content="May I? ")
    tools = [refund(require_approval=True), a_tool("wait", lambda args, ctx: gate.wait())]
    script: list[Entry] = [asked, calls(call("wait"), content="Wait. "), "It is done."]
    async with (
        served(executor_of(script, agent("helper", tools=tools))) as (gateway, client),
        Page(typescript, gateway.url) as page,
        Page(typescript, gateway.url, "other tab") as other,
    ):
        await page(["say", "Refund A"], ["answer without waiting", [["call_0", True]]], ["shows", "Wait."])
        await gate.reached()
        await other(["resume without waiting"], ["resume without waiting"], ["shows", "Wait."])
        gate.open()
        first, seen = await page(["ready"]), await other(["ready"])
        assert (page.problems, other.problems) == ([], [])
        assert [texts(message) for message in first] == ["Refund A", "May I? Wait. It is done."]
        assert [message["parts"] for message in seen] == [message["parts"] for message in first[1:]]
        assert (await (await client.handle(CHAT)).result(10)).status == "completed"
        assert await other(["resume"]) == seen


async def test_an_answer_that_another_tab_gave_shows_the_result(typescript: Any) -> None:
    """Otherwise the page would send an answer without a result again and again."""
    asked = calls(call("refund", text="A"), content="May I? ")
    executor = executor_of([asked, "It is done."], agent("helper", tools=[refund(require_approval=True)]))
    async with (
        served(executor) as (gateway, _),
        Page(typescript, gateway.url) as page,
        Page(typescript, gateway.url, "other tab") as other,
    ):
        await page(["say", "Refund A"])
        await other(["resume"])
        first = await page(["answer", [["call_0", True]]], ["shows", "It is done."], ["ready"])
        second = await other(["answer", [["call_0", True]]], ["shows", "It is done."], ["ready"])
        assert (page.problems, other.problems) == ([], [])
        assert call_parts(second[-1]) == call_parts(first[-1]) == [("call_0", "output-available")]


async def test_nothing_is_resumed_where_nothing_was_said(typescript: Any) -> None:
    async with served(executor_of([])) as (gateway, _), Page(typescript, gateway.url) as page:
        assert (await page(["resume"]), page.status, page.problems) == ([], "ready", [])


async def test_regenerate_answers_the_same_message_anew(typescript: Any) -> None:
    async with (
        served(executor_of(["One.", "Two.", "Another two.", "Another one."])) as (gateway, client),
        Page(typescript, gateway.url) as page,
    ):
        messages = await page(["say", "First"], ["say", "Second"])
        messages = await page(["regenerate", messages[-1]["id"]])
        assert [texts(message) for message in messages] == ["First", "One.", "Second", "Another two."]
        messages = await page(["regenerate", messages[1]["id"]])
        assert [texts(message) for message in messages] == ["First", "Another one."]
        stored: dict[str, Any] = await client.get_messages(CHAT)
        assert [message["content"] for message in stored["messages"]] == ["First", "Another one."]


async def test_an_edit_rewinds_to_before_its_message(typescript: Any) -> None:
    script = ["One.", "Two.", "Other.", "Third.", "Back.", "Set."]
    async with served(executor_of(script)) as (gateway, client), Page(typescript, gateway.url) as page:
        messages = await page(["say", "First"], ["say", "Second"])
        messages = await page(["edit", messages[0]["id"], "Changed"])
        assert [texts(message) for message in messages] == ["Changed", "Other."]
        messages = await page(["say", "More"], ["edit", messages[0]["id"], "First"])
        assert [texts(message) for message in messages] == ["First", "Back."], "back to the first text is an edit too"
        ident = messages[0]["id"]
        messages = await page(["change text", ident, "By setMessages"], ["regenerate", messages[1]["id"]])
        assert [texts(message) for message in messages] == ["By setMessages", "Set."]
        assert (page.problems, messages[0]["id"]) == ([], ident)
        stored: dict[str, Any] = await client.get_messages(CHAT)
        assert [message["content"] for message in stored["messages"]] == ["By setMessages", "Set."]
        loaded = await typescript("loaded", page="page", chatId="chat")
        assert loaded["messages"] == messages


async def test_an_edit_while_the_agent_runs_takes_its_place(typescript: Any) -> None:
    gate = Gate()
    executor = executor_of(["One.", gated(gate, "Never said."), "Other plans."])
    async with served(executor) as (gateway, _), Page(typescript, gateway.url) as page:
        messages = await page(["say", "Hi"], ["begin", "And?"])
        await gate.reached()
        messages = await page(["stop"], ["edit", messages[0]["id"], "Hello"])
        assert ([texts(message) for message in messages], page.problems) == (["Hello", "Other plans."], [])
        gate.open()


async def test_arguments_that_the_page_changed_are_executed(typescript: Any) -> None:
    asked = calls(call("refund", text="A"), call("refund", text="B"), content="May I? ")
    executor = executor_of([asked, "It is done."], agent("helper", tools=[refund(require_approval=True)]))
    async with served(executor) as (gateway, _), Page(typescript, gateway.url) as page:
        await page(["say", "Refund all"], ["change input", "call_0", {"text": "a"}])
        messages = await page(["answer", [["call_0", True], ["call_1", True]]], ["shows", "It is done."], ["ready"])
        shown = [part for part in messages[1]["parts"] if part["type"] == "dynamic-tool"]
        assert [part.get("output") for part in shown] == ["refunded a", "refunded B"]


async def test_a_part_that_is_not_supported_is_refused_by_name(typescript: Any) -> None:
    async with served(executor_of([])) as (gateway, _), Page(typescript, gateway.url) as page:
        await page(["send", {"parts": [{"type": "text", "text": "Look"}, {"type": "reasoning", "text": "Hm."}]}])
        assert [(problem["code"], "'reasoning'" in problem["message"]) for problem in page.problems] == [
            ("invalid_input", True)
        ]


async def test_a_request_that_is_refused_is_the_error_of_the_chat(typescript: Any) -> None:
    async with served(executor_of([])) as (gateway, _), Page(typescript, gateway.url) as page:
        page._about["agent"] = "nobody"
        await page(["say", "Hi"])
        assert (page.status, [problem["code"] for problem in page.problems]) == ("error", ["agent_not_found"])


@pytest.mark.parametrize("cut", range(1, 26))
async def test_a_page_whose_socket_is_cut_ends_as_one_whose_socket_is_not(cut: int, typescript: Any) -> None:
    tool = a_tool("look", lambda args, ctx: "It rains.")
    script: list[Entry] = [calls(call("look"), content="Let me see what there is. "), WORDS]

    async def shown(cut_after: list[int]) -> tuple[Any, int]:
        sockets = FaultySockets(cut_after=cut_after)
        executor = executor_of(ScriptedModel(script, delta_chars=30), agent("helper", tools=[tool]))
        async with served(executor, sockets=sockets) as (gateway, _), Page(typescript, gateway.url) as page:
            (_, answer) = await page(["say", "Hi"])
            assert (page.status, page.problems) == ("ready", [])
            assert len((await executor.sessions.list_runs(CHAT)).runs) == 1
            return answer["parts"], page.connections

    whole, once = await shown([])
    parts, connections = await shown([cut, cut])
    assert parts == whole
    assert once == 1 and (connections > 1 or cut > 3)  # later there may be no frame left to cut after
