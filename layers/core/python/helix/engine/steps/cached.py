"""The response cache in the loop: its lookups, and the answers that it stores.

Law: an answer is stored only if it is complete, valid for its agent, from the model that was asked, and allowed by the
agent's policy. Errors are never stored. The lookup happens before money is reserved. A cache failure costs a model
call, but does not fail the run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pydantic import TypeAdapter, ValidationError

from helix.core.caching import (
    WITHOUT_EFFECT,
    CacheStrategy,
    ResponseCacheConfig,
    digest,
    is_sampled,
    last_question,
    sent_parts,
)
from helix.core.errors import InvalidInputError
from helix.core.planning import plan_step_processing
from helix.core.session_row import SessionRow
from helix.core.steps import AnyStepResult, ErrorStepResult, StepResult
from helix.core.tools import FINISH_TOOL_NAME
from helix.core.usage import Usage
from helix.engine.context import RunContext
from helix.engine.engine import logger
from helix.engine.facts import CacheAsked
from helix.engine.observers import show
from helix.ports.model import LLMGenerateInput, Question
from helix.services.row_cache import Known

_RESULT: TypeAdapter[AnyStepResult] = TypeAdapter(StepResult)


async def find_cached(run: RunContext, request: LLMGenerateInput) -> LLMGenerateInput:
    """Return the request with its cache question and, on a hit, the cached answer. The request is returned unchanged if
    the agent's policy does not use the cache, or if a guard may replace an input. Raises `InvalidInputError` for a
    policy that the cache does not support."""
    engine, agent, session = run.engine, run.agent, run.session
    policy = request.config.response_cache
    if engine.cache is None or policy is None or agent.function is not None or _too_random(request, policy):
        return request
    if any(guard.input is not None for guard in agent.guards):
        return request
    asked = question(request, policy)
    result: AnyStepResult | None = None
    saved = 0
    try:
        found = await engine.cache.get(session.user_id or "", asked)
        if found is not None:
            result = _RESULT.validate_python(found.known.answer)
            saved = found.known.micros
    except InvalidInputError:
        raise
    except ValidationError:
        logger.warning("run %s: the cached answer cannot be read; the model is asked", session.run_id)
    except Exception:
        logger.warning("run %s: the response cache failed; the model is asked", session.run_id, exc_info=True)
    show(run, CacheAsked(request.config.model, None if result is None else saved))
    if result is not None:
        result = result.model_copy(update={"usage": Usage(), "cached": True})
    return replace(request, question=asked, remembered=result)


async def remember(run: RunContext, session: SessionRow, request: LLMGenerateInput, result: AnyStepResult) -> None:
    """Store the answer if it may be reused. Never raises."""
    engine, policy = run.engine, request.config.response_cache
    if engine.cache is None or policy is None or request.question is None:
        return
    if not _keepable(run, request, result, policy):
        return
    usage = result.usage
    micros = usage.cost_micros
    if not usage.priced and engine.catalog is not None:
        info = engine.catalog.info(request.config.model)
        micros = round((info.cost_usd(usage.prompt_tokens, usage.completion_tokens) or 0) * 1_000_000)
    known = Known(
        result.model_dump(mode="json", exclude={"usage", "cached"}),
        request.config.model,
        usage.prompt_tokens,
        usage.completion_tokens,
        micros,
    )
    try:
        await engine.cache.put(session.user_id or "", request.question, known, policy.ttl_s)
    except Exception:
        logger.warning("run %s: the response cache failed; the answer is not cached", session.run_id, exc_info=True)


def question(request: LLMGenerateInput, policy: ResponseCacheConfig) -> Question:
    """Build the question from everything that affects the answer: the conversation, the tools, and all settings except
    those that have no effect."""
    messages = [sent_parts(message) for message in request.messages]
    around = {
        "tools": [[tool.name, tool.description, tool.parameters, tool.strict] for tool in request.tools],
        "tool_choice": request.tool_choice,
        "output": request.output_schema,
        "config": request.config.model_dump(mode="json", exclude=set(WITHOUT_EFFECT)),
    }
    exact = digest({**around, "messages": messages})
    text = last_question(request.lasting)
    if policy.strategy is not CacheStrategy.SEMANTIC or text is None:
        return Question(exact)
    end = len(request.lasting) - 1
    return Question(exact, policy.threshold, digest({**around, "messages": messages[:end] + messages[end + 1 :]}), text)


def _too_random(request: LLMGenerateInput, policy: ResponseCacheConfig) -> bool:
    return is_sampled(request.config.temperature, request.config.provider_options) and not policy.sampled


def _keepable(run: RunContext, request: LLMGenerateInput, result: AnyStepResult, policy: ResponseCacheConfig) -> bool:
    if isinstance(result, ErrorStepResult) or result.cached or result.model != request.config.model:
        return False
    agent = run.agent
    plan = plan_step_processing(result, output_schema=agent.output_schema, tools=run.find_tool)
    message = plan.assistant_message_plan
    if agent.output_checks and plan.finish is not None:  # a check may still refuse it
        return False
    if message is None or plan.missed or not all(s.success for s in plan.resolved.values()):
        return False
    if not message.content and not message.tool_calls:
        return False
    return policy.tool_calls or _only_finishes([call.name for call in message.tool_calls])


def _only_finishes(names: Sequence[str]) -> bool:
    return all(name == FINISH_TOOL_NAME for name in names)
