"""The demonstration model, which lets an agent really run without a language model or credentials.

It is a deterministic program. It picks the keywords of the question, calls the agent's tools with them, and answers
with sentences that the tools returned. It understands nothing, and says so at the start of each run.

Law: the answer depends on the request alone, so a resumed run continues where it stopped. A run ends within
`MAX_ANSWERS` answers. A tool with a name that suggests side effects is called only if the question uses the same words.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from helix.adapters.models.evidence import Evidence, keywords, prose_of, stem, words, words_of
from helix.adapters.models.filling import Filler
from helix.adapters.models.playback import DELTA_CHARS, OutOfTimeError, Pace, calls_in_order, out_of_time, play
from helix.adapters.system import SystemClock
from helix.core.json import JsonObject, size
from helix.core.messages import AnyMessage, AssistantMessage, ThinkingContent, ToolResultMessage, UserMessage
from helix.core.steps import AnyStepResult, ParsedSubAgentCall, ParsedToolCall, TextStepResult, ToolCallsStepResult
from helix.core.tools import FINISH_TOOL_NAME, SUBAGENT_TOOL_PREFIX, is_sub_agent_tool
from helix.core.usage import Usage
from helix.ports.catalog import ModelCatalog
from helix.ports.clock import Clock
from helix.ports.model import BaseAdapter, LLMGenerateInput, ToolSpec

MODEL = "demonstration"
NOTICE = (
    "(This is Helix's demonstration model: a deterministic program, not a language model. "
    "It matches words and quotes what the tools return.)"
)
MAX_ANSWERS = 8
PROMPT_MICROS_PER_TOKEN = 1
COMPLETION_MICROS_PER_TOKEN = 4

_SEARCH = frozenset(words("search find query lookup look retrieve grep browse list explore"))
_READ = frozenset(words("read open fetch load view show cat get"))
_NOTE = frozenset(words("note notes remember memo jot bookmark"))
_RISKY = frozenset(
    words(
        """add approve book buy cancel charge close create delete deploy drop edit email execute grant insert kill
        modify order pay post publish purge refund remove rename replace reset restart revoke run send set stop submit
        transfer update upload write"""
    )
)


class DemonstrationModel(BaseAdapter):
    """A deterministic adapter that costs nothing.

    So that budgets have something to count, it reports an estimate of the tokens (four characters each). Its imaginary
    price is $1 per million tokens read and $4 per million written.

    `delta_delay_s` is the pause before each delta of `delta_chars` characters.
    """

    def __init__(
        self, *, delta_delay_s: float = 0.01, delta_chars: int = DELTA_CHARS, clock: Clock | None = None
    ) -> None:
        self._delta_delay_s, self._delta_chars = delta_delay_s, delta_chars
        self._clock: Clock = clock or SystemClock()

    def unsupported(self, request: LLMGenerateInput, catalog: ModelCatalog | None) -> str | None:
        return None  # a program accepts all files, and reads none

    async def generate_step(self, request: LLMGenerateInput) -> AnyStepResult:
        turn = _Turn.from_request(request)
        calls = turn.next_calls()
        result = turn.ask(calls) if calls else turn.answer()
        result = result.model_copy(update={"usage": _estimate(request, result), "model": MODEL})
        try:
            return await play(
                result, request, Pace(self._clock, request.timeout_s), self._delta_delay_s, self._delta_chars
            )
        except OutOfTimeError:
            return out_of_time(request, MODEL)


@dataclass(frozen=True, slots=True)
class _Call:
    """A call to make, and the text that explains it."""

    tool: ToolSpec
    """The tool to call."""
    arguments: JsonObject
    """The arguments, filled from the question and the evidence."""
    why: str
    """The sentence that announces the call in the answer."""


@dataclass
class _Turn:
    """The state since the last user message, and the decision about the next answer."""

    question: str
    """The text of the last user message."""
    evidence: Evidence
    """The passages that tools have returned for the question."""
    tools: Sequence[ToolSpec]
    """The tools that the agent offers."""
    tool_choice: str
    """The request's tool choice: `auto`, `required`, `none`, or the name of a tool."""
    first_call: int
    """The number of calls in the conversation so far. The ids of new calls continue from it."""
    answers: int = 0
    """The number of answers since the last user message."""
    called: list[tuple[str, Mapping[str, Any]]] = field(default_factory=list)
    """The name and arguments of each call since the last user message."""
    delegated: list[ToolResultMessage] = field(default_factory=list)
    """The successful results of sub-agents since the last user message."""

    @classmethod
    def from_request(cls, request: LLMGenerateInput) -> _Turn:
        messages = request.lasting
        start = max((i for i, m in enumerate(messages) if isinstance(m, UserMessage)), default=-1)
        question = prose_of(messages[start].content or "") if start >= 0 else ""
        before = sum(len(m.tool_calls) for m in messages if isinstance(m, AssistantMessage))
        turn = cls(question, Evidence(keywords(question)), request.tools, request.tool_choice, before)
        turn._read_messages(messages[start + 1 :])
        return turn

    def _read_messages(self, messages: Sequence[AnyMessage]) -> None:
        arguments: dict[str, Mapping[str, Any]] = {}
        for message in messages:
            if isinstance(message, AssistantMessage):
                self.answers += 1
                for call in message.tool_calls:
                    arguments[call.id] = call.arguments
                    self.called.append((call.name, call.arguments))
            elif isinstance(message, ToolResultMessage) and message.success and message.tool_name != FINISH_TOOL_NAME:
                if is_sub_agent_tool(message.tool_name):
                    self.delegated.append(message)
                else:
                    self.evidence.add(message.content, arguments.get(message.tool_call_id, {}))
        if all(is_sub_agent_tool(name) for name, _ in self.called):
            for result in self.delegated:
                self.evidence.add(result.content, {})

    # --- deciding ---------------------------------------------------------------------------------------------------

    def next_calls(self) -> list[_Call]:
        """Return the calls to make now. An empty list means that it is time to answer."""
        forced = next((t for t in self.tools if t.name == self.tool_choice and t.name != FINISH_TOOL_NAME), None)
        if forced is not None:
            return [self._call(forced, "The caller asks for this tool.")]
        if (
            self.tool_choice in ("none", FINISH_TOOL_NAME)
            or self.answers >= MAX_ANSWERS - 1
            or not self.evidence.keywords
        ):
            return []
        return self._search() or self._read() or self._call_others() or self._delegate() or self._note()

    def _search(self) -> list[_Call]:
        tools = self._tools_named(_SEARCH)
        for tool in tools:
            if not self._count_calls(tool):
                words_used = " ".join(self.evidence.keywords)
                return [self._call(tool, f"Searching for: {words_used}.")]
        longest = max(self.evidence.keywords, key=len)
        if tools and not self.evidence.sources and self._count_calls(tools[0]) == 1 and len(self.evidence.keywords) > 1:
            narrow = _Turn(longest, Evidence([longest]), self.tools, self.tool_choice, self.first_call)
            return [narrow._call(tools[0], f"Nothing found; searching for {longest!r} alone.")]
        return []

    def _read(self) -> list[_Call]:
        for tool in self._tools_named(_READ):
            names = set(tool.parameters.get("properties") or {})  # type: ignore[arg-type]
            usable = [c for c in self.evidence.candidates() if names & c.keys()][:2]
            if usable and not self._count_calls(tool):
                sources = ", ".join(str(next(c[n] for n in c if n in names)) for c in usable)
                calls = [self._call(tool, f"Reading what looks most promising: {sources}.", given=c) for c in usable]
                return list({repr(call.arguments): call for call in calls}.values())
        return []

    def _call_others(self) -> list[_Call]:
        known = _SEARCH | _NOTE
        asked = {stem(w) for w in words(self.question)}
        other: list[tuple[int, ToolSpec]] = []
        for tool in self._tools_named(None):
            verbs = set(words_of(tool.name))
            risky = verbs & _RISKY
            if verbs & known or self._count_calls(tool) or not {stem(w) for w in risky} <= asked:
                continue
            if verbs & _READ and self._tools_named(_SEARCH):
                continue
            reported = {stem(w) for w in words(f"{' '.join(verbs)} {tool.description}")}
            other.append((sum(stem(k) in reported for k in self.evidence.keywords), tool))
        relevant = sorted((pair for pair in other if pair[0]), key=lambda pair: -pair[0])
        chosen = relevant or (other if not self.called else [])
        return [self._call(tool, f"Asking {tool.name}.") for _, tool in chosen[:2]]

    def _delegate(self) -> list[_Call]:
        if self.called and not self.evidence.sentences(1):
            return []  # no evidence that a sub-agent could work with
        children = [t for t in self.tools if is_sub_agent_tool(t.name) and not self._count_calls(t)]
        return [
            self._call(t, f"Handing what was found to {t.name.removeprefix(SUBAGENT_TOOL_PREFIX)}.")
            for t in children[:2]
        ]

    def _note(self) -> list[_Call]:
        return [self._call(t, "Keeping a note.") for t in self._tools_named(_NOTE) if not self._count_calls(t)][:1]

    def _tools_named(self, verbs: frozenset[str] | None) -> list[ToolSpec]:
        """Return the tools whose name has one of `verbs` (all tools for None). A search tool never counts as a read
        tool."""
        tools = [t for t in self.tools if t.name != FINISH_TOOL_NAME and not is_sub_agent_tool(t.name)]
        if verbs is None:
            return tools
        fitting = [t for t in tools if set(words_of(t.name)) & verbs and not set(words_of(t.name)) & _RISKY]
        return [t for t in fitting if verbs is _SEARCH or not set(words_of(t.name)) & _SEARCH]

    def _count_calls(self, tool: ToolSpec) -> int:
        return sum(name == tool.name for name, _ in self.called)

    def _call(self, tool: ToolSpec, why: str, given: Mapping[str, Any] | None = None) -> _Call:
        known: dict[str, Any] = dict(given or {})
        if isinstance(line := known.get("line"), int):
            known.setdefault("start_line", max(1, line - 5))
        return _Call(tool, Filler(self.question, self.evidence, known).fill(tool.parameters), why)

    # --- answers ------------------------------------------------------------------------------------------------------

    def ask(self, calls: Sequence[_Call]) -> ToolCallsStepResult:
        about = ", ".join(self.evidence.keywords) or "nothing in particular"
        thought = f"The question is about: {about}. " if not self.answers else ""
        result = ToolCallsStepResult(
            content=self._with_notice(" ".join(dict.fromkeys(call.why for call in calls))),
            thinking=[ThinkingContent(text=f"{thought}Next: {', '.join(call.tool.name for call in calls)}.")],
        )
        for number, call in enumerate(calls, self.first_call):
            id = f"call_{number}"
            result.order.append(id)
            if is_sub_agent_tool(call.tool.name):
                child = call.tool.name.removeprefix(SUBAGENT_TOOL_PREFIX)
                result.sub_agent_calls.append(ParsedSubAgentCall(id=id, agent_type=child, input=call.arguments))
            else:
                result.tool_calls.append(ParsedToolCall(id=id, name=call.tool.name, arguments=call.arguments))
        return result

    def answer(self) -> AnyStepResult:
        filler = Filler(self.question, self.evidence, {}, final=True)
        found, sources = len(self.evidence.sentences()), len(self.evidence.sources)
        thought = f"Matching sentences: {found}, sources: {sources}. Answering."
        thinking = [ThinkingContent(text=thought)]
        finish = next((t for t in self.tools if t.name == FINISH_TOOL_NAME and self.tool_choice != "none"), None)
        if finish is not None:
            call = ParsedToolCall(
                id=f"call_{self.first_call}", name=finish.name, arguments=filler.fill(finish.parameters)
            )
            return ToolCallsStepResult(
                content=self._with_notice(self._child_results()), thinking=thinking, tool_calls=[call], order=[call.id]
            )
        text = filler.summary()
        if not self.evidence.keywords:
            text = "There is no word in this message to look for. Ask about something, and I will look it up."
        elif not self.called:
            text = f"You ask about: {' '.join(self.evidence.keywords)}. I was given no tool that could look it up."
        elif self.evidence.sources:
            text += f"\n\nSources: {', '.join(self.evidence.sources[:3])}"
        return TextStepResult(content=self._with_notice(text), thinking=thinking)

    def _child_results(self) -> str:
        """Return the sub-agents' results, shortened."""
        names = [(m.tool_name.removeprefix(SUBAGENT_TOOL_PREFIX), m.content) for m in self.delegated]
        return "\n".join(f"{name} answered: {text if len(text) < 200 else text[:197] + '...'}" for name, text in names)

    def _with_notice(self, text: str) -> str:
        return f"{NOTICE}\n\n{text}".strip() if not self.answers else text


def _estimate(request: LLMGenerateInput, result: AnyStepResult) -> Usage:
    read = sum(size(m.model_dump(mode="json", exclude_defaults=True)) for m in request.messages)
    read += sum(size([t.name, t.description, t.parameters]) for t in request.tools)
    written = sum(len(block.text) for block in result.thinking)
    if isinstance(result, (TextStepResult, ToolCallsStepResult)):
        written += len(result.content or "")
    if isinstance(result, ToolCallsStepResult):
        written += sum(size(call.arguments) + len(call.name) for call in calls_in_order(result))
    prompt, completion = -(-read // 4), -(-written // 4)
    cost = prompt * PROMPT_MICROS_PER_TOKEN + completion * COMPLETION_MICROS_PER_TOKEN
    return Usage(prompt_tokens=prompt, completion_tokens=completion, cost_micros=cost, calls=1)
