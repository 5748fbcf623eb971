"""The demonstration model reacts to the question, tools and results, and says that it is a demonstration."""

import json
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field
from tests.support_demonstration import CHECKER, LIBRARIAN, Answer, Run, agent, read_page, search_pages

from helix.adapters.models.demo import NOTICE, DemonstrationModel
from helix.core.messages import AssistantMessage, ToolResultMessage, UserMessage
from helix.core.steps import ErrorStepResult, TextStepResult, ToolCallsStepResult
from helix.core.tools import FINISH_TOOL_NAME, tool
from helix.ports.model import LLMStreamCallbacks


async def test_it_searches_reads_delegates_and_answers_from_what_it_read() -> None:
    run = Run(LIBRARIAN)
    answer = await run.ask("When does a lease lapse?")
    assert [name for name, _ in run.called] == ["search_pages", "read_page", "subagent__checker"]
    assert run.called[0][1] == {"query": "lease lapse"}
    assert run.called[1][1]["path"] == "storage/leases.md"
    assert "A lease lapses after fifteen seconds without renewal." in answer.summary
    assert answer.sources == ["storage/leases.md"]
    assert answer.confidence == 1.0 and answer.topics == ["lease", "lapse"]
    assert "checker answered" in run.texts[-1] and "supported" in run.texts[-1]


async def test_another_question_gives_another_answer() -> None:
    answer = await Run(LIBRARIAN).ask("How long does soup simmer?")
    assert "A good soup simmers for two hours." in answer.summary
    assert answer.sources == ["cooking/soup.md"]


async def test_it_says_what_it_is_once_in_a_run_and_again_in_the_next() -> None:
    run = Run(LIBRARIAN)
    await run.ask("When does a lease lapse?")
    assert run.texts[0].startswith(NOTICE) and "not a language model" in NOTICE
    assert not any(NOTICE in text for text in run.texts[1:])
    run.texts.clear()
    await run.ask("How long does soup simmer?")
    assert run.texts[0].startswith(NOTICE)


async def test_nothing_found_is_said_plainly_after_a_second_try() -> None:
    run = Run(LIBRARIAN)
    answer = await run.ask("quantum chromodynamics")
    assert [arguments["query"] for _, arguments in run.called] == ["quantum chromodynamics", "chromodynamics"]
    assert answer.summary == "Nothing that was read says anything about: quantum chromodynamics."
    assert (answer.sources, answer.confidence) == ([], 0.0)


async def test_without_a_finish_tool_it_answers_in_text() -> None:
    text = await Run(agent(tools=[search_pages, read_page])).ask("When does a lease lapse?")
    assert "lapses after fifteen seconds" in text and text.endswith("Sources: storage/leases.md")


@pytest.mark.parametrize(
    ("message", "expected"),
    [("hi", "no word in this message"), ("", "no word"), ("Explain budgets", "no tool that could look it up")],
)
async def test_without_tools_it_says_so(message: str, expected: str) -> None:
    text = await Run(agent()).ask(message)
    assert text.startswith(NOTICE) and expected in text


async def test_unknown_tools_get_what_their_schema_asks_for() -> None:
    class Filter(BaseModel):
        kind: Literal["invoice", "receipt"]
        since: Annotated[str, Field(pattern=r"^\d{4}$")]

    @tool
    def order_status(
        order_id: str, filter: Filter, count: Annotated[int, Field(ge=10, multiple_of=5)]
    ) -> dict[str, Any]:
        """The state of an order and its invoice."""
        return {"id": order_id, "text": "The invoice of this order was paid in May, and the order has left the house."}

    run = Run(agent(tools=[order_status], output_schema=Answer))
    answer = await run.ask("What about the invoice of order A-1077 of 2024?")
    assert run.called == [
        ("order_status", {"order_id": "A-1077", "filter": {"kind": "invoice", "since": "2024"}, "count": 1080})
    ]
    assert "was paid in May" in answer.summary


async def test_a_tool_that_changes_the_world_runs_only_when_asked_for() -> None:
    done: list[str] = []

    @tool
    def refund_order(order_id: str) -> str:
        """Pay the money of an order back."""
        done.append(order_id)
        return "The money of the order has been paid back to the customer today."

    await Run(agent(tools=[refund_order])).ask("Where is the money of order 12?")
    assert done == []
    await Run(agent(tools=[refund_order])).ask("Please refund order 12.")
    assert done == ["12"]


async def test_failing_tools_do_not_keep_it_busy() -> None:
    @tool
    def find_anything(query: str) -> str:
        """Find anything."""
        raise OSError("index is down")

    run = Run(agent(tools=[find_anything], output_schema=Answer))
    answer = await run.ask("When does a lease lapse?")
    assert len(run.called) == 2 and answer.confidence == 0


async def test_structured_tasks_of_sub_agents_are_read_by_their_values() -> None:
    run = Run(CHECKER)
    verdict = await run.ask(json.dumps({"claim": "A lease lapses after fifteen seconds.", "strict": True}))
    assert run.called[0][1]["query"] == "lease lapses fifteen seconds"
    assert verdict.verdict == "supported"


async def test_tool_choice_is_obeyed() -> None:
    model = DemonstrationModel(delta_delay_s=0)
    run = Run(LIBRARIAN)
    run.messages.append(UserMessage(content="When does a lease lapse?"))
    forced = await model.generate_step(run.request(tool_choice=FINISH_TOOL_NAME))
    assert isinstance(forced, ToolCallsStepResult) and [c.name for c in forced.tool_calls] == [FINISH_TOOL_NAME]
    read = await model.generate_step(run.request(tool_choice="read_page"))
    assert isinstance(read, ToolCallsStepResult) and [c.name for c in read.tool_calls] == ["read_page"]
    assert isinstance(await model.generate_step(run.request(tool_choice="none")), TextStepResult)


async def test_the_same_request_gives_the_same_answer_in_every_process() -> None:
    run = Run(LIBRARIAN)
    run.messages.append(UserMessage(content="When does a lease lapse?"))
    first, second = [await DemonstrationModel(delta_delay_s=0).generate_step(run.request()) for _ in range(2)]
    assert first == second


async def test_call_ids_are_unique_in_a_session() -> None:
    run = Run(LIBRARIAN)
    await run.ask("When does a lease lapse?")
    run.messages.append(ToolResultMessage(tool_call_id="x", tool_name=FINISH_TOOL_NAME, content="{}"))
    await run.ask("How long does soup simmer?")
    ids = [c.id for m in run.messages if isinstance(m, AssistantMessage) for c in m.tool_calls]
    assert len(ids) == len(set(ids))


async def test_it_streams_small_deltas_and_reports_usage_at_its_imaginary_price() -> None:
    deltas: list[str] = []
    thoughts: list[tuple[str, bool]] = []
    callbacks = LLMStreamCallbacks(
        on_text_delta=deltas.append, on_thinking=lambda content, complete: thoughts.append((content, complete))
    )
    run = Run(LIBRARIAN)
    run.messages.append(UserMessage(content="When does a lease lapse?"))
    result = await DemonstrationModel(delta_delay_s=0).generate_step(run.request(callbacks=callbacks))
    assert isinstance(result, ToolCallsStepResult)
    assert "".join(deltas) == result.content and max(map(len, deltas)) <= 12
    assert thoughts[-1] == (result.thinking[0].text, True)
    usage = result.usage
    assert usage.prompt_tokens > 50 and usage.completion_tokens > 10 and usage.calls == 1 and usage.priced
    assert usage.cost_micros == usage.prompt_tokens + 4 * usage.completion_tokens
    assert result.model == "demonstration"


async def test_the_callers_deadline_is_kept() -> None:
    class Clock:
        slept = 0.0

        def now(self) -> float:
            return self.slept

        async def sleep(self, seconds: float) -> None:
            self.slept += seconds

    clock = Clock()
    run = Run(LIBRARIAN)
    run.messages.append(UserMessage(content="When does a lease lapse?"))
    result = await DemonstrationModel(delta_delay_s=1, clock=clock).generate_step(run.request(timeout_s=2.5))
    assert isinstance(result, ErrorStepResult) and result.retryable and clock.slept == 2.5
