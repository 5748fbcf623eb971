"""The environment of a deployed function, and the secrets that its models need."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import boto3
import pytest
from moto import mock_aws
from tests.support_litellm import FakeClock, request

from helix import Agent, LLMConfig
from helix.adapters.aws.secrets import FRESH_S, ModelKeys, RotatedKeys
from helix.core.errors import InvalidInputError, StoreError
from helix.core.steps import AnyStepResult, ErrorStepResult, TextStepResult
from helix.ports.model import BaseAdapter, LLMGenerateInput
from helix.runtime.cloud import Application
from helix.runtime.cloud_settings import CloudSettings, read_cloud_settings

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def test_what_is_not_set_has_its_default() -> None:
    assert read_cloud_settings({}) == CloudSettings()
    assert read_cloud_settings({"HELIX_STAGE": "  ", "HELIX_AGENTS": ""}) == CloudSettings()


def test_what_is_set_is_read() -> None:
    given = {
        "HELIX_STAGE": "prod",
        "HELIX_AUTH": "keys, jwt",
        "HELIX_AGENTS": "one, two",
        "HELIX_ROLL_OVER_EVENTS": "500",
    }
    settings = read_cloud_settings(given)
    assert (settings.stage, settings.auth, settings.agents) == ("prod", frozenset({"keys", "jwt"}), ("one", "two"))
    assert settings.roll_over_events == 500
    fleet = {
        "HELIX_MAX_RUNS": "7",
        "HELIX_NOTICES": "arn:n",
        "HELIX_METRICS_SECRET": "arn:s",
        "HELIX_PROVISION_AGENTS": "true",
    }
    settings = read_cloud_settings(fleet)
    assert (settings.max_runs, settings.notices, settings.metrics_secret) == (7, "arn:n", "arn:s")
    assert settings.provision_agents


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("HELIX_AUTH", "none,keys"),
        ("HELIX_AUTH", "password"),
        ("HELIX_ROLL_OVER_EVENTS", "10"),
        ("HELIX_ROLL_OVER_EVENTS", "many"),
        ("HELIX_STREAM_DAYS", "-1"),
        ("HELIX_MAX_RUNS", "many"),
    ],
)
def test_a_wrong_variable_is_named(name: str, value: str) -> None:
    with pytest.raises(InvalidInputError, match=name):
        read_cloud_settings({name: value})


@pytest.fixture
def secrets(monkeypatch: pytest.MonkeyPatch) -> Any:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    with mock_aws():
        yield boto3.client("secretsmanager")


def keys_of(environment: dict[str, str], *names: str, clock: Any = None) -> ModelKeys:
    return ModelKeys(names, boto3.client, clock or FakeClock(), environment)


def test_secrets_are_in_the_environment_before_the_first_model(secrets: Any) -> None:
    arn = secrets.create_secret(Name="models", SecretString=json.dumps({"OPENAI_API_KEY": "sk-1"}))["ARN"]
    environment: dict[str, str] = {}
    application = Application(CloudSettings(model_secrets=(arn,), agents=(), model="demo"), environment)
    application.engine.models(Agent(name="asks", system_prompt="Ask.", llm_config=LLMConfig(model="openai/gpt-5.6")))
    assert environment == {"OPENAI_API_KEY": "sk-1"}
    secrets.put_secret_value(SecretId=arn, SecretString=json.dumps({"OPENAI_API_KEY": "sk-2"}))
    application.refresh_secrets()
    assert environment == {"OPENAI_API_KEY": "sk-1"}
    application._model_keys._read_at -= FRESH_S
    application.refresh_secrets()
    assert environment == {"OPENAI_API_KEY": "sk-2"}, "before the work of an invocation"


def test_a_rotated_key_reaches_a_warm_function_within_minutes(secrets: Any, caplog: pytest.LogCaptureFixture) -> None:
    arn = secrets.create_secret(Name="models", SecretString=json.dumps({"OPENAI_API_KEY": "sk-1"}))["ARN"]
    environment, clock = dict[str, str](), FakeClock()
    keys = keys_of(environment, arn, clock=clock)
    assert keys.refresh()
    secrets.put_secret_value(SecretId=arn, SecretString=json.dumps({"OPENAI_API_KEY": "sk-2"}))
    assert not keys.refresh() and environment == {"OPENAI_API_KEY": "sk-1"}, "it is fresh"
    clock.at += FRESH_S
    assert keys.refresh() and environment == {"OPENAI_API_KEY": "sk-2"}
    secrets.delete_secret(SecretId=arn, ForceDeleteWithoutRecovery=True)
    assert not keys.refresh(at_once=True) and environment == {"OPENAI_API_KEY": "sk-2"}
    assert "stay in use" in caplog.text


class Provider(BaseAdapter):
    """Takes one key."""

    repeats_failures = True

    def __init__(self, environment: dict[str, str]) -> None:
        self.environment, self.asked = environment, list[str]()

    async def generate_step(self, request: LLMGenerateInput) -> AnyStepResult:
        self.asked.append(self.environment["OPENAI_API_KEY"])
        if self.asked[-1] == "sk-2":
            return TextStepResult(content="fine")
        return ErrorStepResult(error="no such key", code="authentication")


async def test_a_key_that_is_refused_is_read_again_at_once(secrets: Any) -> None:
    arn = secrets.create_secret(Name="models", SecretString=json.dumps({"OPENAI_API_KEY": "sk-1"}))["ARN"]
    environment: dict[str, str] = {}
    keys = keys_of(environment, arn)
    keys.refresh()
    provider = Provider(environment)
    model = RotatedKeys(provider, partial(keys.refresh, at_once=True))
    assert model.repeats_failures is True
    refused = await model.generate_step(request())
    assert isinstance(refused, ErrorStepResult) and provider.asked == ["sk-1"], "nothing has changed"
    secrets.put_secret_value(SecretId=arn, SecretString=json.dumps({"OPENAI_API_KEY": "sk-2"}))
    assert isinstance(await model.generate_step(request()), TextStepResult)
    assert provider.asked == ["sk-1", "sk-1", "sk-2"]


@pytest.mark.parametrize("text", ["sk-1", '["sk-1"]', '{"OPENAI_API_KEY": 1}'])
def test_a_secret_of_another_form_is_named(secrets: Any, text: str) -> None:
    arn = secrets.create_secret(Name="models", SecretString=text)["ARN"]
    with pytest.raises(InvalidInputError, match="secret"):
        keys_of({}, arn).refresh()
    with pytest.raises(StoreError, match="nowhere"):
        keys_of({}, "nowhere").refresh()
