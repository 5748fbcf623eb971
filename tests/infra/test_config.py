"""The context becomes settings, or an error that names the key."""

from __future__ import annotations

from typing import Any

import pytest

from helix.infra.config import HOST_ARCHITECTURE, HOST_PYTHON, Settings, SettingsError, read_settings

JWT = {"auth": "jwt", "jwt_issuer": "https://i", "jwt_audience": "a", "jwks_url": "https://i/keys"}


def test_nothing_given_is_a_stage_for_development_on_arm() -> None:
    settings = read_settings({})
    assert settings == Settings()
    assert (settings.stage, settings.target_architecture, settings.python, settings.auth) == (
        "dev",
        "arm64",
        "3.13",
        "keys",
    )
    assert not settings.retain


def test_cdks_own_keys_are_left_alone() -> None:
    assert (
        read_settings({"@aws-cdk/core:flag": True, "aws:cdk:bundling-stacks": ["**"], "stage": "test"}).stage == "test"
    )


def test_the_command_line_gives_text() -> None:
    given = {"snap_start": "true", "shards": "4", "log_retention_days": "90", "tags": "team=ai, cost = 42"}
    settings = read_settings(given)
    assert (settings.snap_start, settings.shards, settings.log_retention_days) == (True, 4, 90)
    assert settings.tags == {"team": "ai", "cost": "42"}


def test_offline_is_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    settings = read_settings({"offline": "true"})
    assert (settings.target_architecture, settings.python) == (HOST_ARCHITECTURE, HOST_PYTHON)
    assert (settings.account, settings.region, settings.model) == ("000000000000", "us-east-1", "demo")
    assert (settings.endpoint, read_settings({}).endpoint) == ("http://127.0.0.1:4566", "")


def test_offline_urls_are_of_the_emulator_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """`cdk deploy -c offline=true` finds the emulator by the same variable. An explicit endpoint takes precedence."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:4598/")
    assert read_settings({"offline": "true"}).endpoint == "http://127.0.0.1:4598"
    assert read_settings({"offline": "true", "endpoint": "http://here:1"}).endpoint == "http://here:1"
    assert read_settings({}).endpoint == ""


def test_chunks_are_pushed_wherever_kinesis_can() -> None:
    """No emulator supports consumers, neither that of `helix dev` nor the one beside `sam local`."""
    assert read_settings({}).enhanced_fan_out
    assert not read_settings({"enhanced_fan_out": "false"}).enhanced_fan_out
    assert not read_settings({"offline": "true"}).enhanced_fan_out
    assert not read_settings({"endpoint": "http://127.0.0.1:4566"}).enhanced_fan_out


def test_production_keeps_its_data() -> None:
    assert read_settings({"stage": "prod"}).retain
    assert not read_settings({"stage": "prod", "retain": "false"}).retain


@pytest.mark.parametrize(
    ("context", "named"),
    [
        ({"stgae": "dev"}, "'stgae' is unknown; there are account, agents, "),
        ({"stage": "Prod!"}, "'stage' is 'Prod!'"),
        ({"stage": "a-b"}, "'stage' is 'a-b'"),
        ({"architecture": "riscv"}, "'architecture' is 'riscv'"),
        ({"python": "2.7"}, "'python' is '2.7'"),
        ({"shards": "many"}, "'shards' is 'many'"),
        ({"log_retention_days": "8"}, "'log_retention_days' is '8'"),
        ({"roll_over_events": "25000"}, "'roll_over_events' is '25000'"),
        ({"auth": "password"}, "'auth' is 'password': must be one of 'keys', 'jwt', 'keys,jwt', 'none'"),
        ({**JWT, "jwt_issuer": ""}, "'jwt_issuer': is needed with auth=jwt"),
        ({**JWT, "jwks_url": "http://i/keys"}, "'jwks_url': must start with https://"),
        ({"snap_start": "true", "provisioned_concurrency": "1"}, "'snap_start': Lambda does not combine it with"),
        ({"snap_start": "true", "provision_agents": "true"}, "'snap_start': Lambda does not combine it with"),
        ({"snap_start": "true", "python": "3.11"}, "'snap_start': Lambda has it for Python 3.12"),
        ({"offline": "true", "enhanced_fan_out": "true"}, "'enhanced_fan_out': the emulator has no stream consumers"),
        ({"child_hours": "48", "run_days": "1"}, "'child_hours': is more than run_days"),
        ({"socket_messages": "0"}, "'socket_messages' is '0'"),
        ({"socket_messages": "10001"}, "'socket_messages' is '10001'"),
        ({"warm_writes": "3999"}, "'warm_writes': is 3999; a new table takes 4,000 by itself, so give more, or 0"),
        ({"warm_reads": "4000"}, "'warm_reads': is 4000; a new table takes 12,000 by itself, so give more, or 0"),
        ({"tags": "team"}, "'tags' is 'team': 'team' is not of the form name=value"),
        ({"account": "12"}, "'account' is '12'"),
        ({"agents": "my-agents"}, "'agents' is 'my-agents'"),
    ],
)
def test_a_wrong_value_is_named(context: dict[str, Any], named: str) -> None:
    with pytest.raises(SettingsError) as refused:
        read_settings(context)
    assert f"context key {named}" in str(refused.value)


def test_an_unknown_key_is_answered_with_the_one_that_is_spelled_alike() -> None:
    with pytest.raises(SettingsError, match=r"'snapstart' is unknown; .*; did you mean 'snap_start'\?$"):
        read_settings({"snapstart": "true"})


@pytest.mark.parametrize("name", ["", "demo", "import:desk:model", "openai/gpt-4o-mini", "gpt-4o"])
def test_a_model_of_a_known_provider_is_taken(name: str) -> None:
    assert read_settings({"model": name}).model == name


def test_a_model_of_no_known_provider_stops_the_synthesis() -> None:
    with pytest.raises(SettingsError, match=r"'model' is 'opnai/gpt-4o': .*; did you mean 'openai/gpt-4o'\?$"):
        read_settings({"model": "opnai/gpt-4o"})
