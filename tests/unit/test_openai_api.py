"""The choice between OpenAI's interfaces, and each provider's word for a reasoning effort."""

from __future__ import annotations

from typing import Any

import pytest

from helix.adapters.models.catalog import entry_of
from helix.adapters.models.effort import bedrock_options, claude_options, litellm_effort, openai_effort
from helix.adapters.models.openai_api import api_of, base_of
from helix.core.config import LLMConfig

AZURE = "https://acme.openai.azure.com"


@pytest.fixture(autouse=True)
def no_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_BASE_URL", "OPENAI_API_BASE", "AZURE_API_BASE", "AZURE_OPENAI_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("model", "config", "api"),
    [
        ("openai/gpt-5.6", {}, "responses"),
        ("openai/gpt-4o-mini", {}, "responses"),
        ("openai/gpt-7-of-tomorrow", {}, "responses"),
        ("openai/gpt-5.1-codex", {"provider_options": {"api_base": "http://127.0.0.1:1"}}, "responses"),
        ("openai/gpt-5.6", {"api": "chat"}, "chat"),
        ("openai/gpt-5.6", {"provider_options": {"api_base": "http://127.0.0.1:8000/v1"}}, "chat"),
        ("openai/gpt-5.6", {"provider_options": {"base_url": "https://api.openai.com.evil.example"}}, "chat"),
        ("openai/gpt-5.6", {"provider_options": {"api_base": "https://eu.api.openai.com/v1"}}, "responses"),
        ("openai/qwen3", {"api": "responses", "provider_options": {"api_base": "http://127.0.0.1:1"}}, "responses"),
        ("openai/gpt-4o-mini", {"provider_options": {"seed": 7}}, "chat"),
        ("openai/gpt-4o-mini", {"stop": ["END"]}, "chat"),
        ("openai/gpt-5.6", {"stop": ["END"]}, "responses"),
        ("openai/gpt-4o-search-preview", {}, "chat"),
        ("azure/my-deployment", {"provider_options": {"api_base": AZURE}}, "responses"),
        ("azure/my-deployment", {"provider_options": {"api_base": AZURE, "api_version": "2024-10-21"}}, "chat"),
        ("azure/my-deployment", {"provider_options": {"api_base": "https://gateway.example/openai/v1"}}, "chat"),
    ],
)
def test_the_interface(model: str, config: dict[str, Any], api: str) -> None:
    assert api_of(model, LLMConfig(model=model, **config)) == api


def test_a_base_url_of_the_environment_names_another_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:8000/v1")
    assert api_of("openai/gpt-5.6", LLMConfig(model="openai/gpt-5.6")) == "chat"


@pytest.mark.parametrize("given", [AZURE, f"{AZURE}/", f"{AZURE}/openai/v1"])
def test_the_address_of_azure(monkeypatch: pytest.MonkeyPatch, given: str) -> None:
    monkeypatch.setenv("AZURE_OPENAI_ENDPOINT", given)
    assert base_of("azure/my-deployment", {}) == f"{AZURE}/openai/v1"


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ("openai/gpt-5.6", "none low low medium high xhigh"),
        ("openai/o3-mini", "low low low medium high high"),
        ("openai/gpt-7-of-tomorrow", "none minimal low medium high xhigh"),
    ],
)
def test_the_effort_at_openai(model: str, words: str) -> None:
    entry = entry_of(model)
    made = [openai_effort(effort, entry) for effort in ("none", "minimal", "low", "medium", "high", "xhigh")]
    assert made == words.split()


def enabled(budget: int) -> dict[str, Any]:
    return {"thinking": {"type": "enabled", "budget_tokens": budget}}


def adaptive(effort: str) -> dict[str, Any]:
    return {"thinking": {"type": "adaptive"}, "output_config": {"effort": effort}}


OFF = {"thinking": {"type": "disabled"}}


@pytest.mark.parametrize(
    ("model", "effort", "limit", "made"),
    [
        ("anthropic/claude-sonnet-4-5", None, None, {}),
        ("anthropic/claude-sonnet-4-5", "none", None, OFF),
        ("anthropic/claude-sonnet-4-5", "medium", None, enabled(8192)),
        ("anthropic/claude-sonnet-4-5", "high", 6000, enabled(3000)),
        ("anthropic/claude-sonnet-4-5", "high", 2000, {}),
        ("anthropic/claude-opus-4-8", "medium", None, adaptive("medium")),
        ("anthropic/claude-opus-4-8", "xhigh", None, adaptive("xhigh")),
        ("anthropic/claude-opus-4-6", "xhigh", None, adaptive("high")),
        ("anthropic/claude-opus-5-5", "none", None, adaptive("low")),
        ("anthropic/claude-of-tomorrow", "minimal", None, adaptive("low")),
    ],
)
def test_the_effort_of_claude(model: str, effort: Any, limit: int | None, made: dict[str, Any]) -> None:
    assert claude_options(effort, entry_of(model), limit) == made


def test_a_claude_that_does_not_reason_is_not_asked_to() -> None:
    assert claude_options("high", {"mode": "chat"}, None) == {}


def test_the_effort_at_bedrock() -> None:
    nova, oss = "us.amazon.nova-2-lite-v1:0", "openai.gpt-oss-120b-1:0"
    on = {"reasoningConfig": {"type": "enabled", "maxReasoningEffort": "high"}}
    assert bedrock_options("xhigh", nova, {}, None) == on
    assert bedrock_options("none", nova, {}, None) == {"reasoningConfig": {"type": "disabled"}}
    assert bedrock_options("minimal", oss, {}, None) == {"reasoning_effort": "low"}
    assert bedrock_options("high", "meta.llama4-scout-17b-instruct-v1:0", {}, None) == {}
    claude = "us.anthropic.claude-sonnet-4-5-20250929-v1:0"
    assert bedrock_options("low", claude, entry_of(f"bedrock/{claude}"), None) == enabled(2048)


def test_the_effort_that_litellm_translates() -> None:
    assert [litellm_effort("xhigh", False, provider) for provider in ("openai", "gemini")] == ["xhigh", "high"]
    assert litellm_effort("xhigh", True, "vertex_ai") == "xhigh"
