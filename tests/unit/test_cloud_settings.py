"""The environment of a deployed function, and the secrets that its models need."""

from __future__ import annotations

import json
from typing import Any

import boto3
import pytest
from moto import mock_aws

from helix.core.errors import InvalidInputError, StoreError
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


def test_secrets_are_in_the_environment_before_the_first_model(secrets: Any) -> None:
    arn = secrets.create_secret(Name="models", SecretString=json.dumps({"OPENAI_API_KEY": "sk-1"}))["ARN"]
    environment: dict[str, str] = {}
    application = Application(CloudSettings(model_secrets=(arn,)), environment)
    assert application._secrets == {"OPENAI_API_KEY"}
    assert environment == {"OPENAI_API_KEY": "sk-1"}


@pytest.mark.parametrize("text", ["sk-1", '["sk-1"]', '{"OPENAI_API_KEY": 1}'])
def test_a_secret_of_another_form_is_named(secrets: Any, text: str) -> None:
    arn = secrets.create_secret(Name="models", SecretString=text)["ARN"]
    application = Application(CloudSettings(model_secrets=(arn,)), {})
    with pytest.raises(InvalidInputError, match="secret"):
        _ = application._secrets
    with pytest.raises(StoreError, match="nowhere"):
        _ = Application(CloudSettings(model_secrets=("nowhere",)), {})._secrets
