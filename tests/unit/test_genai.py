"""Names in traces follow OpenTelemetry's conventions, as published in its own package. Ids of spans are stable."""

from __future__ import annotations

import pytest
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes as conventions
from opentelemetry.semconv.attributes.error_attributes import ERROR_TYPE

from helix.core import genai, spans
from helix.core.spans import Trace
from helix.core.usage import Usage

PUBLISHED = {value for name, value in vars(conventions).items() if name.startswith("GEN_AI_")}
OURS = {value for value in vars(genai).values() if isinstance(value, str) and value.startswith("gen_ai.")}


def test_every_name_is_in_the_conventions() -> None:
    assert OURS and OURS <= PUBLISHED
    assert genai.ERROR_TYPE == ERROR_TYPE


def test_no_name_is_deprecated() -> None:
    """The provider's name replaced `gen_ai.system`, and the input's tokens replaced `prompt_tokens`."""
    assert OURS.isdisjoint({"gen_ai.system", "gen_ai.usage.prompt_tokens", "gen_ai.usage.completion_tokens"})


def test_operations_are_those_of_the_conventions() -> None:
    published = {member.value for member in conventions.GenAiOperationNameValues}
    assert {genai.CHAT, genai.INVOKE_AGENT, genai.EXECUTE_TOOL} <= published


@pytest.mark.parametrize(
    ("model", "provider"),
    [
        ("openai/gpt-4o", "openai"),
        ("gpt-4o-mini", "openai"),
        ("o3", "openai"),
        ("claude-sonnet-4-5", "anthropic"),
        ("azure/my-deployment", "azure.ai.openai"),
        ("bedrock/anthropic.claude-v2", "aws.bedrock"),
        ("vertex_ai/gemini-2.0", "gcp.vertex_ai"),
        ("gemini/gemini-2.0", "gcp.gemini"),
        ("mistral/large", "mistral_ai"),
        ("xai/grok", "x_ai"),
        ("watsonx/granite", "ibm.watsonx.ai"),
        ("groq/llama", "groq"),
        ("deepseek/chat", "deepseek"),
    ],
)
def test_providers_are_spelt_as_the_conventions_do(model: str, provider: str) -> None:
    assert genai.provider_of(model) == provider
    assert provider in {member.value for member in conventions.GenAiProviderNameValues}


def test_a_provider_that_the_conventions_do_not_name_keeps_its_own() -> None:
    assert genai.provider_of("ollama/llama3") == "ollama"
    assert genai.provider_of("scripted") == "helix"


def test_what_was_not_used_is_not_told() -> None:
    told = genai.usage_attributes(Usage(prompt_tokens=3, completion_tokens=2, cost_micros=1_500_000))
    assert told == {genai.INPUT_TOKENS: 3, genai.OUTPUT_TOKENS: 2, genai.COST: 1.5}


def test_ids_follow_from_what_a_span_is_about() -> None:
    """Other processes and versions must compute the same ids, so they are fixed here."""
    assert spans.trace_id("run_1") == "a6de97bdfbcf7827e6c79d5c59b40832"
    assert spans.run_span_id("run_1") == "bd3b68fbc0886085"
    assert spans.agent_span_id("run_1") == "b93745bed0422eed"
    assert spans.queue_span_id("run_1") == "f912c967a2330d4a"
    assert spans.child_span_id("run_1") == "524a46d09845e26e"
    assert spans.chat_span_id("s", "a.1") == "91cca029fb01b72c" != spans.chat_span_id("s", "a.2")
    assert spans.tool_span_id("s", "c", 1) == "d53ea20763dc07ca" != spans.tool_span_id("s", "c", 2)


def test_a_sub_agents_run_is_in_its_roots_trace() -> None:
    child = spans.run_ref("run_child", Trace("run_root", "run_parent"))
    assert child.trace_id == spans.trace_id("run_root")
    assert spans.run_ref("run_root", None).trace_id == child.trace_id
