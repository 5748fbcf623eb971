"""The sources of a command's variables, and the variables that reach a function offline."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError
from moto import mock_aws

from helix.cli.cloud.deploy_checks import check_secrets
from helix.cli.environment import load_environment
from helix.cli.output import RefusedError
from helix.core.tool_settings import ProjectTools, SecretPlace
from helix.local.credentials import Credentials
from helix.local.emulator import function_variables, settings
from helix.local.process import OfflineError
from helix.local.settings import machine_variables, store_secrets
from helix.runtime.models import variables_for
from helix.runtime.project import ProjectError

PROJECT = """
[tool.helix.environment]
DESK_URL = "https://desk.example"
LIMIT = "10"
REGION = "eu"
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("DESK_URL", "LIMIT", "REGION", "CRM_KEY"):
        monkeypatch.setenv(name, "")  # so that it is restored after the test
        monkeypatch.delenv(name)
    return tmp_path


def test_the_shell_goes_over_the_file_and_that_over_the_project(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "pyproject.toml").write_text(PROJECT)
    (folder / "below").mkdir()
    monkeypatch.chdir(folder / "below")
    (folder / ".env").write_text("# for this machine\nLIMIT=20\nREGION='us'\nexport CRM_KEY=\"k e y\"\n")
    monkeypatch.setenv("REGION", "shell")
    load_environment(Path.cwd())
    assert [os.environ[name] for name in ("DESK_URL", "LIMIT", "REGION", "CRM_KEY")] == [
        "https://desk.example",
        "20",
        "shell",
        "k e y",
    ]


def test_a_folder_without_a_project_changes_nothing(folder: Path) -> None:
    before = dict(os.environ)
    load_environment(Path.cwd())
    assert dict(os.environ) == before


def test_a_wrong_table_is_named(folder: Path) -> None:
    (folder / "pyproject.toml").write_text("[tool.helix.environment]\nLIMIT = 5\n")
    with pytest.raises(ProjectError, match=r"tool\.helix\.environment\.LIMIT: must be a string in quotes"):
        load_environment(Path.cwd())


def test_functions_get_nothing_of_the_shell_but_their_machine() -> None:
    shell = {
        "PATH": "/bin",
        "LC_ALL": "C",
        "https_proxy": "p",
        "OPENAI_API_KEY": "k",
        "GITHUB_TOKEN": "t",
        "CRM_KEY": "c",
    }
    assert machine_variables(shell) == {"PATH": "/bin", "LC_ALL": "C", "https_proxy": "p"}


def test_the_switch_of_the_logs_content_reaches_functions_through_the_emulator(tmp_path: Path) -> None:
    shell = {"PATH": "/bin", "HELIX_LOG_CONTENT": "1", "HELIX_KEY": "k", "HELIX_LOG": "debug"}
    emulator = settings(4566, tmp_path, Credentials("id", "secret"), machine_variables(shell))
    found = function_variables(emulator)
    assert {name: found[name] for name in found if name.startswith("HELIX_")} == {"HELIX_LOG_CONTENT": "1"}


def test_calls_of_models_get_what_their_providers_need() -> None:
    shell = {"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": "u", "AZURE_API_KEY": "a", "AWS_PROFILE": "p", "CRM_KEY": "c"}
    assert variables_for(["openai/gpt-4o-mini"], shell) == {"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": "u"}
    assert variables_for(["azure/gpt", "bedrock/claude"], shell) == {"AZURE_API_KEY": "a"}
    assert variables_for([], shell) == {}


# --- the offline account's secrets ---------------------------------------------------------------------------------------


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    with mock_aws():
        yield boto3.client


def test_values_are_stored_where_tools_read_them(aws: Any) -> None:
    section = {
        "secrets": {
            "KEY": "secretsmanager:crm#key",
            "USER_NAME": "secretsmanager:crm#user",
            "TOKEN": "ssm:/desk/token",
        },
        "agent": {"researcher": {"secrets": {"PAPERS": "secretsmanager:papers"}}},
        "stages": {"prod": {"secrets": {"TOKEN": "ssm:/prod/token"}}},
    }
    places = ProjectTools.read(section).places("dev")
    values = {"KEY": "k", "USER_NAME": "ada", "TOKEN": "t", "PAPERS": "p"}
    store_secrets(aws, places, values)
    store_secrets(aws, places, {**values, "PAPERS": "new"})
    secrets, parameters = aws("secretsmanager"), aws("ssm")
    assert json.loads(secrets.get_secret_value(SecretId="crm")["SecretString"]) == {"key": "k", "user": "ada"}
    assert secrets.get_secret_value(SecretId="papers")["SecretString"] == "new"
    parameter = parameters.get_parameter(Name="/desk/token", WithDecryption=True)["Parameter"]
    assert (parameter["Value"], parameter["Type"]) == ("t", "SecureString")


def test_every_missing_one_is_named(aws: Any) -> None:
    places = {SecretPlace.parse("secretsmanager:crm"): "KEY", SecretPlace.parse("ssm:/desk"): "TOKEN"}
    with pytest.raises(OfflineError) as refused:
        store_secrets(aws, places, {"KEY": ""})
    assert str(refused.value) == (
        "secrets of [tool.helix.secrets] have no value here: KEY (deployed: 'secretsmanager:crm'), "
        "TOKEN (deployed: 'ssm:/desk'); put KEY=... into .env"
    )


def test_a_secret_of_another_account_is_refused(aws: Any) -> None:
    place = SecretPlace.parse("arn:aws:secretsmanager:eu-west-1:123456789012:secret:crm-AbCdEf")
    with pytest.raises(OfflineError, match="an account that is not here"):
        store_secrets(aws, {place: "KEY"}, {"KEY": "k"})


def test_a_deployment_names_the_secrets_that_are_not_there(aws: Any) -> None:
    aws("secretsmanager").create_secret(Name="crm", SecretString="k")
    named = {"KEY": "secretsmanager:crm", "PAPERS": "secretsmanager:papers#a", "TOKEN": "ssm:/desk/token"}
    places = {SecretPlace.parse(place): name for name, place in named.items()}
    with pytest.raises(RefusedError) as refused:
        check_secrets(aws, places)
    assert str(refused.value) == (
        "secrets of [tool.helix.secrets] do not exist: PAPERS at 'secretsmanager:papers#a', TOKEN at 'ssm:/desk/token'; "
        "create them first (aws secretsmanager create-secret, aws ssm put-parameter --type SecureString)"
    )
    aws("secretsmanager").create_secret(Name="papers", SecretString="{}")
    aws("ssm").put_parameter(Name="/desk/token", Value="t", Type="SecureString")
    check_secrets(aws, places)


def test_who_may_not_look_at_secrets_may_deploy() -> None:
    class Denying:
        def describe_secret(self, **_: Any) -> Any:
            raise ClientError({"Error": {"Code": "AccessDeniedException", "Message": "no"}}, "DescribeSecret")

    check_secrets(lambda _: Denying(), {SecretPlace.parse("secretsmanager:crm"): "KEY"})
