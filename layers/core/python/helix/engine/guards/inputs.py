"""Guards of inputs: they judge the new user messages before the model call, or beside it.

Law: the verdicts are stored with the answer of the step. A message is new until an answer follows it in history. A guard
beside the model call gates everything that follows from the answer, because no call starts before the answer is stored.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from helix.core.guards import Guard
from helix.core.json import JsonValue
from helix.core.judged_plan import failed_plan, first_ending
from helix.core.messages import AnyMessage, AssistantMessage, UserMessage, check_message
from helix.core.prompt import index_of, show_input
from helix.core.session_row import SessionRow
from helix.core.steps import AnyStepResult, ErrorStepResult, TextStepResult
from helix.core.usage import Usage
from helix.core.verdicts import GUARDS, Verdict, describe_change
from helix.engine.context import RunContext
from helix.engine.facts import AnswerWithheld
from helix.engine.guards.judge import judge, make_guard_context
from helix.engine.observers import show
from helix.engine.steps.ask import ModelAnswer, ask_model
from helix.ports.model import LLMGenerateInput


@dataclass(slots=True)
class _Inputs:
    """The verdicts on the new user messages."""

    verdicts: list[Verdict] = field(default_factory=list)
    usage: Usage = field(default_factory=Usage)


async def ask_guarded(run: RunContext, session: SessionRow, request: LLMGenerateInput) -> ModelAnswer:
    """Call the model as `ask_model` does, with the agent's input guards before and beside the call. The answer has their
    verdicts, and a failed plan if one of them ends the run."""
    claim = session.claim
    assert claim is not None
    if claim.summary:  # it repeats the conversation, which the step after it shows again
        return await ask_model(run, session, request)
    before = _repeated(request.lasting)
    if not before.verdicts:
        before = await _judge_inputs(run, request.lasting, [g for g in run.agent.guards if g.when == "before"])
    if (ending := first_ending(before.verdicts)) is not None:
        unasked = TextStepResult(content="", usage=before.usage)
        return ModelAnswer(unasked, None, before.verdicts, failed_plan(ending, stores_answer=True))
    if any(verdict.verdict != "allow" for verdict in before.verdicts):
        shown = [show_input(m, before.verdicts) if isinstance(m, UserMessage) else m for m in request.messages]
        request = replace(request, messages=shown)
    held = is_held(run)
    guards = [g for g in run.agent.guards if g.when == "beside"]
    beside = asyncio.ensure_future(_judge_inputs(run, request.lasting, guards))
    try:
        answer = await ask_model(run, session, request, held=held)
        late = await beside if answer.stop is None else _Inputs()
    finally:
        beside.cancel()
        await asyncio.gather(beside, return_exceptions=True)
    if answer.result is None:
        return replace(answer, verdicts=before.verdicts)
    verdicts = [*before.verdicts, *late.verdicts]
    result = with_usage(answer.result, before.usage + late.usage)
    if (refused := next((v for v in late.verdicts if v.refuses), None)) is None or isinstance(result, ErrorStepResult):
        return replace(answer, result=result, verdicts=verdicts)
    if not held:
        show(run, AnswerWithheld(claim, describe_change(refused)))
    return ModelAnswer(result, None, verdicts, failed_plan(refused, stores_answer=True))


def is_held(run: RunContext) -> bool:
    """Return whether readers get the text of a step only once it was judged."""
    return any(guard.hold == "step" for guard in run.agent.guards)


def with_usage(result: AnyStepResult, usage: Usage) -> AnyStepResult:
    """Return the result with the usage of guards, which is billed with the step that they judged."""
    return result if usage == Usage() else result.model_copy(update={"usage": result.usage + usage})


async def _judge_inputs(run: RunContext, messages: Sequence[AnyMessage], guards: Sequence[Guard]) -> _Inputs:
    """Judge each new user message, in order. None is judged after one that ends the run."""
    found = _Inputs()
    guards = [guard for guard in guards if guard.input is not None]
    for message in _new_inputs(messages) if guards else ():
        context = make_guard_context(run, "input", run.session.step + 1, files=message.files)
        judged = await judge(run, context, message.content, check_text, guards)
        found.verdicts += [v.model_copy(update={"of": index_of(message)}) for v in judged.verdicts]
        found.usage += judged.usage
        if first_ending(judged.verdicts) is not None:
            break
    return found


def _repeated(messages: Sequence[AnyMessage]) -> _Inputs:
    """Return the verdicts that ended the run before, if this one retries it without a new message."""
    last = messages[-1] if messages else None
    if not isinstance(last, UserMessage) or last.id or not isinstance(found := last.metadata.get(GUARDS), list):
        return _Inputs()
    verdicts = [Verdict.model_validate(one) for one in found]
    return _Inputs(verdicts if first_ending(verdicts) is not None else [])


def check_text(value: JsonValue) -> None:
    check_message(value)


def _new_inputs(messages: Sequence[AnyMessage]) -> list[UserMessage]:
    """Return the user messages that no answer follows. Messages without an id are notes of the framework: the one about
    a refused answer stands in the place of that answer."""
    found: list[UserMessage] = []
    for message in reversed(messages):
        if isinstance(message, AssistantMessage) or (isinstance(message, UserMessage) and not message.id):
            break
        if isinstance(message, UserMessage):
            found.append(message)
    return found[::-1]
