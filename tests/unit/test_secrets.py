"""`ctx.secret` reads from the environment in process and from AWS when deployed. Secrets may be missing, rotated or
denied."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError, EndpointConnectionError
from moto import mock_aws

from helix import Agent, LLMConfig, LocalExecutor, ScriptedModel, ToolContext, create_tool_context, tool
from helix.adapters.aws.secrets import FRESH_S, AwsSecrets
from helix.core.errors import SecretNotFoundError, StoreError
from helix.core.tool_settings import SecretPlace
from helix.testing.clocks import SetClock

VALUE = "value-that-nobody-shows"


@tool
async def call_crm(ctx: ToolContext) -> int:
    """Call the CRM."""
    return len(ctx.secret("CRM_KEY"))


desk = Agent(name="desk", system_prompt="Help.", tools=[call_crm], llm_config=LLMConfig(model="openai/gpt-4o-mini"))


def model() -> ScriptedModel:
    return ScriptedModel([{"tool_calls": [{"name": "call_crm"}]}, "Done."])


async def test_in_process_it_is_the_environment_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CRM_KEY", VALUE)
    async with LocalExecutor(":memory:", model=model()) as executor:
        handle = await executor.execute(desk, "go")
        assert (await handle.result()).status == "completed"
        (result,) = [m for m in (await executor.sessions.get_messages(handle.session_id)).messages if m.role == "tool"]
    assert result.content == str(len(VALUE))


async def test_a_missing_one_fails_the_run_and_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CRM_KEY", raising=False)
    async with LocalExecutor(":memory:", model=model()) as executor:
        result = await (await executor.execute(desk, "go")).result()
    assert result.status == "failed"
    assert "there is no secret 'CRM_KEY': set the environment variable" in str(result.error)


async def test_a_unit_test_gives_its_own() -> None:
    assert await call_crm(ctx=create_tool_context(agent_id="s", agent_type="desk", secrets={"CRM_KEY": "12"})) == 2
    context = create_tool_context(agent_id="s", agent_type="desk", secrets={"CRM_KEY": VALUE})
    assert VALUE not in repr(context)


# --- deployed ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    with mock_aws():
        yield boto3.client


def secrets(aws: Any, clock: SetClock, **places: str) -> AwsSecrets:
    return AwsSecrets({name: SecretPlace.parse(place) for name, place in places.items()}, aws, clock)


def test_both_services_and_fields_of_json(aws: Any) -> None:
    aws("secretsmanager").create_secret(Name="crm", SecretString=json.dumps({"key": VALUE, "user": "ada"}))
    aws("ssm").put_parameter(Name="/desk/token", Value="t0ken", Type="SecureString")
    found = secrets(
        aws, SetClock(0.0), KEY="secretsmanager:crm#key", USER="secretsmanager:crm#user", TOKEN="ssm:/desk/token"
    )
    found.refresh()
    assert [found.text(name) for name in ("KEY", "USER", "TOKEN")] == [VALUE, "ada", "t0ken"]
    with pytest.raises(SecretNotFoundError, match=r"no secret .OTHER.: .* declares KEY, TOKEN, USER"):
        found.text("OTHER")


def test_a_rotated_secret_is_seen_when_the_old_one_is_no_longer_fresh(aws: Any) -> None:
    clock, client = SetClock(0.0), aws("secretsmanager")
    client.create_secret(Name="crm", SecretString="old")
    found = secrets(aws, clock, KEY="secretsmanager:crm")
    found.refresh()
    client.put_secret_value(SecretId="crm", SecretString="new")
    clock.advance(FRESH_S - 1)
    found.refresh()
    assert found.text("KEY") == "old"
    clock.advance(1)
    found.refresh()
    assert found.text("KEY") == "new"


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("secretsmanager:crm", "'secretsmanager:crm': ResourceNotFoundException"),
        ("ssm:/crm", "'ssm:/crm': ParameterNotFound"),
        ("secretsmanager:text#key", "'secretsmanager:text#key' does not hold a JSON object with the field 'key'"),
        ("secretsmanager:object#number", "'secretsmanager:object#number' does not hold a non-empty string"),
    ],
)
def test_a_missing_one_is_named_with_its_place(aws: Any, place: str, said: str) -> None:
    aws("secretsmanager").create_secret(Name="text", SecretString=VALUE)
    aws("secretsmanager").create_secret(Name="object", SecretString='{"number": 1}')
    with pytest.raises(SecretNotFoundError) as refused:
        secrets(aws, SetClock(0.0), KEY=place).refresh()
    assert str(refused.value).startswith("secret 'KEY'") and said in str(refused.value)
    assert VALUE not in str(refused.value)


class Service:
    """A client that returns `answers` in turn and repeats the last one."""

    def __init__(self, *answers: Any) -> None:
        self.answers, self.calls = list(answers), 0

    def get_secret_value(self, **_: Any) -> Any:
        self.calls += 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return {"SecretString": answer}


def refused(code: str) -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": "no"}}, "GetSecretValue")


def test_a_denied_one_stops_calls_also_where_a_text_is_known() -> None:
    clock, service = SetClock(0.0), Service("old", refused("AccessDeniedException"))
    found = AwsSecrets({"KEY": SecretPlace.parse("secretsmanager:crm")}, lambda _: service, clock)
    found.refresh()
    clock.advance(FRESH_S)
    for _ in range(2):
        with pytest.raises(SecretNotFoundError, match="AccessDeniedException"):
            found.refresh()


@pytest.mark.parametrize("failure", [refused("ThrottlingException"), EndpointConnectionError(endpoint_url="x")])
def test_a_service_that_does_not_answer_leaves_what_is_known(
    failure: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    clock, service = SetClock(0.0), Service(failure, VALUE, failure)
    found = AwsSecrets({"KEY": SecretPlace.parse("secretsmanager:crm")}, lambda _: service, clock)
    with pytest.raises(StoreError, match="secret 'KEY'"):
        found.refresh()
    found.refresh()
    clock.advance(FRESH_S)
    with caplog.at_level(logging.DEBUG):
        found.refresh()
    assert found.text("KEY") == VALUE
    assert "stay in use" in caplog.text and VALUE not in caplog.text


def test_a_secret_is_read_once_for_all_its_fields() -> None:
    service = Service('{"a": "1", "b": "2"}')
    places = {name: SecretPlace.parse(f"secretsmanager:crm#{name}") for name in ("a", "b")}
    AwsSecrets(places, lambda _: service, SetClock(0.0)).refresh()
    assert service.calls == 1
