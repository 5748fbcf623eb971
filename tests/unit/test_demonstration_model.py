"""The demonstration model: reacts to question, tools and results, always ends, and says what it is."""

import asyncio
import inspect
import json
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, Field
from pydantic_core import to_json

from helix.adapters.models.demo import MAX_ANSWERS, NOTICE, DemonstrationModel
from helix.adapters.models.evidence import keywords, sentences_of, stem
from helix.adapters.models.playback import calls_in_order
from helix.core.agents import Agent
from helix.core.config import LLMConfig
from helix.core.context import create_tool_context
from helix.core.messages import (
    AnyMessage,
    AssistantMessage,
    SystemMessage,
    ToolCallRequest,
    ToolResultMessage,
    UserMessage,
)
from helix.core.steps import ErrorStepResult, TextStepResult, ToolCallsStepResult
from helix.core.tools import FINISH_TOOL_NAME, create_sub_agent_tool, tool
from helix.ports.model import LLMGenerateInput, LLMStreamCallbacks, ToolSpec

PAGES = {
    "storage/leases.md": "# Leases\n\nA lease names the worker that holds a step. A lease lapses after fifteen seconds "
    "without renewal. Then another worker may claim the step.",
    "cooking/soup.md": "# Soup\n\nA good soup simmers for two hours. Add the salt at the end of the cooking time.",
}


class Hit(BaseModel):
    path: str
    line: int
    snippet: str


@tool
def search_pages(query: str, limit: int = 5) -> list[Hit]:
    """Search the pages."""
    wanted = {stem(w) for w in query.split()}
    return [
        Hit(path=path, line=1, snippet=text[:60])
        for path, text in PAGES.items()
        if wanted & {stem(w) for w in keywords(text, 99)}
    ][:limit]


@tool
def read_page(path: str, start_line: int = 1) -> str:
    """Read a page."""
    return PAGES[path]


class Answer(BaseModel):
    summary: str
    sources: list[str]
    confidence: float = Field(ge=0, le=1)
    topics: list[str] = []


class Verdict(BaseModel):
    verdict: Literal["unsupported", "supported"]
    quote: str = Field(max_length=200)


def agent(**options: Any) -> Agent[Any, Any]:
    return Agent(**{"name": "a", "system_prompt": "p", "llm_config": LLMConfig(model="m"), **options})


class Run:
    """Drives the model over an agent's real tools, as an engine would."""

    def __init__(self, agent: Agent[Any, Any], model: DemonstrationModel | None = None) -> None:
        self.agent, self.model = agent, model or DemonstrationModel(delta_delay_s=0)
        self.messages: list[AnyMessage] = [SystemMessage(content="p")]
        self.called: list[tuple[str, dict[str, Any]]] = []
        self.texts: list[str] = []
        self.answers = 0

    async def ask(self, message: str) -> Any:
        self.messages.append(UserMessage(content=message))
        for _ in range(MAX_ANSWERS):
            result = await self.model.generate_step(self.request())
            self.answers += 1
            assert isinstance(result, (TextStepResult, ToolCallsStepResult))
            self.texts.append(result.content or "")
            if isinstance(result, TextStepResult):
                self.messages.append(AssistantMessage(content=result.content))
                return result.content
            calls = calls_in_order(result)
            requests = [ToolCallRequest(id=c.id, name=c.name, arguments=c.arguments) for c in calls]
            self.messages.append(AssistantMessage(content=result.content, tool_calls=requests))
            for call in calls:
                if call.name == FINISH_TOOL_NAME:
                    assert self.agent.finish_tool is not None
                    return self.agent.finish_tool.input_schema.model_validate(call.arguments)
                self.called.append((call.name, dict(call.arguments)))
                content, success = await self.execute(call.name, call.arguments)
                self.messages.append(
                    ToolResultMessage(tool_call_id=call.id, tool_name=call.name, content=content, success=success)
                )
        raise AssertionError(f"no end within {MAX_ANSWERS} answers: {self.called}")

    def request(self, **options: Any) -> LLMGenerateInput:
        tools = [*self.agent.tools, *([self.agent.finish_tool] if self.agent.finish_tool else [])]
        specs = [ToolSpec(t.name, t.description, t.parameters) for t in tools]
        config = LLMConfig(model="demonstration")
        options = {"messages": tuple(self.messages), "tools": specs, **options}
        return LLMGenerateInput(config=config, agent_id="ses_1", agent_type=self.agent.name, **options)

    async def execute(self, name: str, arguments: dict[str, Any]) -> tuple[str, bool]:
        found = self.agent.find_tool(name)
        assert found is not None
        try:
            value: Any = found.input_schema.model_validate(arguments)
            if found.agent is not None:
                child = Run(found.agent)
                value = await child.ask(json.dumps(arguments))
            else:
                assert found.execute is not None
                value = found.execute(value, create_tool_context(agent_id="ses_1", agent_type="a"))
                value = await value if inspect.isawaitable(value) else value
        except Exception as error:
            return json.dumps({"error": str(error)}), False
        return value if isinstance(value, str) else to_json(value).decode(), True


CHECKER = agent(name="checker", tools=[search_pages], output_schema=Verdict)
LIBRARIAN = agent(tools=[search_pages, read_page, create_sub_agent_tool(CHECKER)], output_schema=Answer)


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


class Node(BaseModel):
    name: str
    children: list["Node"] = []


class Odd(BaseModel):
    node: Node
    either: int | str
    maybe: Answer | None
    pair: tuple[int, str]
    mapping: dict[str, int]
    level: Literal[1, 2, 3]
    flag: bool
    day: Annotated[str, Field(json_schema_extra={"format": "date"})]
    short: Annotated[str, Field(max_length=5)]
    padded: Annotated[str, Field(min_length=40)]
    many: Annotated[list[Hit], Field(min_length=2)]
    rating: Annotated[int, Field(ge=1, le=5)]
    ratio: Annotated[float, Field(gt=0, lt=1)]


@pytest.mark.parametrize("question", ["When does a lease lapse?", "nothing known", "7"])
async def test_odd_output_schemas_are_filled_validly(question: str) -> None:
    made = await Run(agent(tools=[search_pages, read_page], output_schema=Odd)).ask(question)
    assert isinstance(made, Odd) and len(made.many) >= 2


NAMES = st.sampled_from(
    ["search", "read_file", "get_user", "note", "delete_all", "lookup", "calculate", "listThings", "ask", "x1"]
)
TYPES: dict[str, Any] = {"str": str, "int": int, "float": float, "bool": bool, "list": list[str], "model": Hit}


def offered(name: str, types: Sequence[str], result: Any) -> Any:
    def function(**values: Any) -> Any:
        if isinstance(result, Exception):
            raise result
        return result

    parameters = [
        inspect.Parameter(f"p{i}_{kind}", inspect.Parameter.KEYWORD_ONLY, annotation=TYPES[kind])
        for i, kind in enumerate(types)
    ]
    function.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    function.__annotations__ = {p.name: p.annotation for p in parameters}
    return tool(name=name, description=f"{name} about leases")(function)


RESULTS: st.SearchStrategy[Any] = st.one_of(
    st.just(OSError("down")),
    st.text(max_size=200),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=60),
        lambda inner: (
            st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["path", "text", "id", "x"]), inner)
        ),
        max_leaves=8,
    ),
)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(NAMES, st.lists(st.sampled_from(sorted(TYPES)), max_size=3), RESULTS),
        max_size=5,
        unique_by=lambda t: t[0],
    ),
    st.text(max_size=80),
    st.booleans(),
)
def test_it_always_ends_with_valid_calls(
    tools: list[tuple[str, list[str], Any]], question: str, structured: bool
) -> None:
    made = agent(tools=[offered(*t) for t in tools], output_schema=Answer if structured else None)
    run = Run(made)
    execute: Callable[..., Any] = run.execute

    async def checked(name: str, arguments: dict[str, Any]) -> tuple[str, bool]:
        found = made.find_tool(name)
        assert found is not None
        found.input_schema.model_validate(arguments)
        return await execute(name, arguments)  # type: ignore[no-any-return]

    run.execute = checked  # type: ignore[method-assign]
    asyncio.run(run.ask(f"lease {question}"))
    for name in {name for name, _ in run.called}:
        assert sum(name == called for called, _ in run.called) <= 2


def test_sentences_are_prose_only() -> None:
    text = """# Title

Some prose that is hard
wrapped over two lines. And a *second* sentence with `code_name` inside it.

| a | table | row | here |

```python
not_prose = "a line of code, which nobody wants quoted"
```

- A list item that is long enough to be quoted here.
"""
    assert list(sentences_of(text)) == [
        "Some prose that is hard wrapped over two lines.",
        "And a second sentence with code_name inside it.",
        "A list item that is long enough to be quoted here.",
    ]


def test_keywords_drop_what_carries_nothing() -> None:
    assert keywords("What happens to a run whose process dies?") == ["run", "process", "dies"]
    assert keywords("") == [] and len(keywords(" ".join(f"word{n}" for n in range(30)))) == 6
    assert stem("processes") == stem("process") and stem("checkpoints") == stem("checkpoint")
