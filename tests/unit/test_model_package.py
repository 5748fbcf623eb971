"""The package that calls a model depends on its name, the installed packages and the requested options, or on a setting."""

from __future__ import annotations

import asyncio
import gc
import importlib
import logging
import os
import subprocess
import sys
import weakref
from typing import Any

import pytest
from tests.support_litellm import request

from helix.adapters.models import adapter, choice
from helix.adapters.models.adapter import ModelAdapter
from helix.adapters.models.choice import package_of
from helix.adapters.models.failures import failure
from helix.adapters.models.litellm import LiteLLMAdapter
from helix.adapters.models.sdk import Clients
from helix.adapters.models.wire import AttemptFailedError
from helix.core.agents import Agent
from helix.core.config import LLMConfig
from helix.core.errors import DefinitionError
from helix.core.steps import ErrorStepResult
from helix.core.usage import Usage

ALL = frozenset({"boto3", "openai", "anthropic", "litellm"})


def with_packages(monkeypatch: pytest.MonkeyPatch, present: frozenset[str]) -> None:
    monkeypatch.setattr(choice, "installed", lambda package: package in present)


@pytest.mark.parametrize(
    ("model", "package"),
    [
        ("openai/gpt-4o-mini", "openai"),
        ("gpt-4o", "openai"),
        ("openai/my-own-server", "openai"),
        ("openai/gpt-5.1-codex", "openai"),
        ("openai/responses/gpt-5", "openai"),
        ("anthropic/claude-sonnet-4-5", "anthropic"),
        ("claude-sonnet-4-5", "anthropic"),
        ("bedrock/us.anthropic.claude-sonnet-4-5-20250929-v1:0", "boto3"),
        ("bedrock/converse/amazon.nova-pro-v1:0", "boto3"),
        ("bedrock/arn:aws:bedrock:eu-west-1:111122223333:application-inference-profile/abc", "boto3"),
        ("bedrock/invoke/anthropic.claude-3-haiku-20240307-v1:0", "litellm"),
        ("azure/gpt-4o", "openai"),
        ("gemini/gemini-2.5-flash", "litellm"),
        ("whatever", "litellm"),
    ],
)
def test_the_name_chooses(monkeypatch: pytest.MonkeyPatch, model: str, package: str) -> None:
    with_packages(monkeypatch, ALL)
    assert package_of(model, LLMConfig(model=model)) == package
    assert package_of(model, LLMConfig(model=model, adapter="litellm")) == "litellm"


@pytest.mark.parametrize(
    ("model", "options"),
    [
        ("anthropic/claude-sonnet-4-5", {"reasoning_effort": "low"}),
        ("bedrock/amazon.nova-pro-v1:0", {"aws_role_name": "arn:aws:iam::111122223333:role/x"}),
        ("openai/gpt-4o", {"mock_response": "hello"}),
    ],
)
def test_an_option_that_only_litellm_understands_takes_litellm(
    monkeypatch: pytest.MonkeyPatch, model: str, options: dict[str, Any]
) -> None:
    config = LLMConfig(model=model, provider_options=options)
    with_packages(monkeypatch, ALL)
    assert package_of(model, config) == "litellm"
    with_packages(monkeypatch, ALL - {"litellm"})
    assert package_of(model, config) != "litellm", "no other package exists, and the provider reports unknown options"


def test_what_is_not_installed_is_not_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    config = LLMConfig(model="openai/gpt-4o")
    with_packages(monkeypatch, frozenset({"litellm"}))
    assert package_of("openai/gpt-4o", config) == "litellm"
    with_packages(monkeypatch, frozenset())
    assert package_of("openai/gpt-4o", config) == "openai", "the smaller package is suggested"
    assert package_of("groq/llama", LLMConfig(model="groq/llama")) == "litellm"


def test_native_is_refused_where_there_is_none() -> None:
    with pytest.raises(DefinitionError, match=r"'groq/llama' has no adapter of its own"):
        package_of("groq/llama", LLMConfig(model="groq/llama", adapter="native"))


def test_a_missing_package_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ModuleNotFoundError(f"No module named {name!r}", name="anthropic")

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(DefinitionError, match=r"pip install 'helix-agents\[anthropic\]'"):
        choice.wire_of("anthropic", {})


@pytest.mark.parametrize("enabled", [True, False])
def test_no_garbage_is_looked_for_while_a_package_is_imported(monkeypatch: pytest.MonkeyPatch, enabled: bool) -> None:
    """The collector is restored afterwards, also if the package is missing."""
    seen: list[bool] = []

    def missing(name: str) -> None:
        seen.append(gc.isenabled())
        raise ModuleNotFoundError(f"No module named {name!r}", name="anthropic")

    monkeypatch.setattr(importlib, "import_module", missing)
    try:
        if not enabled:
            gc.disable()
        with pytest.raises(DefinitionError):
            choice.wire_of("anthropic", {})
        assert set(seen) == {False} and gc.isenabled() is enabled
    finally:
        gc.enable()


def test_the_litellm_adapter_is_litellm_whatever_the_settings_say() -> None:
    assert LiteLLMAdapter().package("openai/gpt-4o", LLMConfig(model="openai/gpt-4o", adapter="native")) == "litellm"


def test_the_adapter_does_not_change_what_the_model_sees() -> None:
    prints = {
        Agent(name="a", system_prompt="s", llm_config=LLMConfig(model="m", adapter=way)).fingerprint()
        for way in ("auto", "native", "litellm")
    }
    assert len(prints) == 1


async def test_which_package_calls_is_logged_once_for_each_model(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Refusing:
        strict: dict[str, Any] = {}  # noqa: RUF012
        finish_reason, refusal, counted = None, "", False

        def exchange(self, request: Any, model: str) -> Any:
            return self

        async def open(self) -> None:
            raise AttemptFailedError(failure("m", "authentication", ""))

        async def close(self) -> None:
            return None

    monkeypatch.setattr(adapter, "wire_of", lambda package, prices: Refusing())
    with_packages(monkeypatch, ALL)
    caplog.set_level(logging.INFO, "helix")
    made = ModelAdapter()
    for _ in range(2):
        await made.generate_step(request(model="openai/gpt-4o", fallbacks=["bedrock/amazon.nova-pro-v1:0"]))
    said = [record.getMessage() for record in caplog.records if "called through" in record.getMessage()]
    assert said == [
        "model 'openai/gpt-4o' is called through the package openai",
        "model 'bedrock/amazon.nova-pro-v1:0' is called through the package boto3",
    ]


def test_a_model_is_prepared_and_one_whose_package_is_missing_is_left_to_its_call(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    asked = list[str]()

    def wire_of(package: str, prices: Any) -> Any:
        asked.append(package)
        if package == "anthropic":
            raise DefinitionError("LLMConfig", "model", "the package anthropic is not installed")
        return object()

    monkeypatch.setattr(adapter, "wire_of", wire_of)
    with_packages(monkeypatch, ALL)
    models = ModelAdapter()
    for _ in range(2):
        models.prepare(LLMConfig(model="anthropic/claude-sonnet-4-5", fallbacks=["openai/gpt-4o", "groq/llama"]))
    assert asked == ["anthropic", "openai", "litellm", "anthropic"]
    assert "'anthropic/claude-sonnet-4-5' is not prepared" in caplog.text


async def test_a_fallback_that_cannot_be_called_hides_no_failure_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken:
        def __init__(self, *given: Any) -> None:
            self.strict: dict[str, Any] = {}
            self.headers: dict[str, str] = {}
            self.finish_reason, self.refusal, self.counted = None, "", True
            self.events = iter([()])

        def exchange(self, request: Any, model: str) -> Any:
            return Broken()

        async def open(self) -> None:
            return None

        async def next(self) -> tuple[()]:
            return next(self.events)

        def usage(self, said: str | None) -> Usage:
            return Usage(prompt_tokens=7, calls=1)

        async def close(self) -> None:
            return None

    monkeypatch.setattr(adapter, "wire_of", Broken)
    result = await ModelAdapter().generate_step(request(adapter="native", max_retries=0, fallbacks=["groq/llama"]))
    assert isinstance(result, ErrorStepResult)
    assert (result.code, result.usage.prompt_tokens) == ("model_error", 7)
    assert "also failed: 'groq/llama' (invalid_definition)" in result.error


def test_the_clients_of_an_event_loop_end_with_it() -> None:
    """Open connections of a client keep its event loop alive."""
    clients, loops = Clients(lambda **given: asyncio.get_running_loop(), object), list[Any]()

    async def ask() -> None:
        loops.append(weakref.ref(clients.client(api_key="x")))

    for _ in range(3):
        asyncio.run(ask())
    gc.collect()
    assert [loop() is None for loop in loops] == [True, True, False]


@pytest.mark.parametrize(
    ("model", "unwanted"),
    [
        ("openai/gpt-4o-mini", {"litellm", "tiktoken", "openai.resources", "anthropic", "boto3", "rich"}),
        ("bedrock/amazon.nova-pro-v1:0", {"litellm", "tiktoken", "openai", "anthropic", "httpx"}),
    ],
)
def test_a_call_imports_its_package_and_no_more(model: str, unwanted: set[str]) -> None:
    code = (
        "import asyncio, os, sys\n"
        "from helix.adapters.models.adapter import ModelAdapter\n"
        "from helix.core.config import LLMConfig\n"
        "from helix.core.messages import UserMessage\n"
        "from helix.ports.model import LLMGenerateInput\n"
        "options = {'api_base': 'http://127.0.0.1:9', 'aws_region_name': 'us-east-1'}\n"
        f"config = LLMConfig(model={model!r}, max_retries=0, provider_options=options)\n"
        "asked = LLMGenerateInput([UserMessage(content='hi')], [], config, agent_id='a', agent_type='t')\n"
        "print(asyncio.run(ModelAdapter().generate_step(asked)).code)\n"
        f"print(sorted({unwanted!r} & sys.modules.keys()))\n"
    )
    environment = {**os.environ, "OPENAI_API_KEY": "x", "AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, timeout=110)
    assert done.stdout == "connection_error\n[]\n", done.stderr
