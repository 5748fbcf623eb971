"""`helix deploy` reads from the account whether it has a role for API Gateway's logs, and Lambda's concurrency."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import botocore.session
import pytest
from botocore.stub import Stubber

from helix.cli.cloud.deploy import Deployment, Target, check_console, keep_log_role, read_concurrency
from helix.cli.cloud.encryption_key import keep_key
from helix.cli.cloud.stack import KEY, TABLE, Deployed, Resource
from helix.cli.output import RefusedError

ROOT = Path(__file__).parents[2]


def decided(monkeypatch: pytest.MonkeyPatch, account: dict[str, Any], context: list[str]) -> str | None:
    target = Target(Deployment(context=context, project=str(ROOT)))
    monkeypatch.setattr(target, "client", lambda service: SimpleNamespace(get_account=lambda: account))
    keep_log_role(target)
    return target.context.get("api_log_role")


@pytest.mark.parametrize(
    ("account", "context", "wanted"),
    [
        ({}, [], "true"),
        ({"cloudwatchRoleArn": "arn:aws:iam::123456789012:role/theirs"}, [], "false"),
        ({"cloudwatchRoleArn": "arn:aws:iam::123456789012:role/theirs"}, ["api_log_role=true"], "true"),
        ({}, ["api_log_role=false"], "false"),
        ({}, ["offline=true"], None),
    ],
)
def test_the_role_is_set_where_there_is_none(
    monkeypatch: pytest.MonkeyPatch, account: dict[str, Any], context: list[str], wanted: str | None
) -> None:
    assert decided(monkeypatch, account, context) == wanted


@pytest.mark.parametrize(
    ("endpoint", "context", "refused"),
    [
        ("http://127.0.0.1:4598", [], True),
        ("http://localhost:4566/", [], True),
        ("http://[::1]:4566", ["offline=false"], True),
        ("http://127.0.0.1:4598", ["offline=true"], False),
        ("https://dynamodb.eu-central-1.amazonaws.com", [], False),
        ("http://[", [], False),
        ("", [], False),
    ],
)
def test_an_emulator_gets_no_template_for_aws(
    monkeypatch: pytest.MonkeyPatch, endpoint: str, context: list[str], refused: bool
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    given = Deployment(context=context, project=str(ROOT))
    if not refused:
        assert Target(given).stage == "dev"
        return
    with pytest.raises(RefusedError, match="give -c offline=true, or unset AWS_ENDPOINT_URL"):
        Target(given)


@pytest.mark.parametrize(
    ("region", "console", "refused"),
    [
        ("cn-northwest-1", "cloudfront", True),
        ("us-gov-east-1", "cloudfront", True),
        ("us-gov-east-1", "http", False),
        ("eu-central-1", "cloudfront", False),
    ],
)
def test_cloudfront_is_refused_where_it_cannot_serve(
    monkeypatch: pytest.MonkeyPatch, region: str, console: str, refused: bool
) -> None:
    """The region comes from the AWS configuration, which the synthesis does not read."""
    monkeypatch.setenv("AWS_DEFAULT_REGION", region)
    target = Target(Deployment(context=[f"console={console}"], project=str(ROOT)))
    if not refused:
        check_console(target)
        return
    with pytest.raises(RefusedError, match=f"context key 'console' .* console=http in region '{region}'"):
        check_console(target)


def lambda_client(unreserved: int, reserved: dict[str, int]) -> Any:
    """Return a client of an account that has the functions of a stage `dev`, or none if `reserved` is empty."""
    keys = {"aws_access_key_id": "x", "aws_secret_access_key": "x"}
    client = botocore.session.Session().create_client("lambda", region_name="us-east-1", **keys)
    stub = Stubber(client)
    stub.add_response("get_account_settings", {"AccountLimit": {"UnreservedConcurrentExecutions": unreserved}})
    for verb in sorted(path.parent.name for path in ROOT.glob("functions/*/handler.py")):
        asked = {"FunctionName": f"helix-dev-{verb}"}
        if not reserved:
            stub.add_client_error("get_function_concurrency", "ResourceNotFoundException", expected_params=asked)
        else:
            own = {"ReservedConcurrentExecutions": reserved[verb]} if verb in reserved else {}
            stub.add_response("get_function_concurrency", own, asked)
    stub.activate()
    return client


@pytest.mark.parametrize(
    ("unreserved", "reserved", "context", "wanted"),
    [
        (10, {}, [], "10"),
        (872, {"ws_message": 50, "project_stream": 78}, [], "1000"),
        (10, {}, ["concurrency=400"], "400"),
        (10, {}, ["concurrency=0"], "0"),
        (10, {}, ["offline=true"], None),
    ],
)
def test_the_stage_counts_on_what_nobody_else_reserves(
    monkeypatch: pytest.MonkeyPatch, unreserved: int, reserved: dict[str, int], context: list[str], wanted: str | None
) -> None:
    target = Target(Deployment(context=context, project=str(ROOT)))
    client = lambda_client(unreserved, reserved)
    monkeypatch.setattr(target, "client", lambda service: client)
    read_concurrency(target)
    assert target.context.get("concurrency") == wanted


@pytest.mark.parametrize(
    ("kinds", "wanted", "made"),
    [([], "", {}), ([], "aws", {}), ([TABLE], "", {}), ([KEY], "", {"key": "own"}), ([KEY], "own", {"key": "own"})],
)
def test_a_stage_that_has_a_key_keeps_it(kinds: list[str], wanted: str, made: dict[str, str]) -> None:
    context: dict[str, str] = {}
    keep_key(Deployed("1", False, tuple(Resource(kind, "x", False) for kind in kinds)), wanted, context)
    assert context == made


def test_a_stage_is_not_deprived_of_its_key() -> None:
    """Without its key, the stage's encrypted objects and logs would be unreadable."""
    with pytest.raises(RefusedError, match="only this key can read"):
        keep_key(Deployed("1", False, (Resource(KEY, "x", True),)), "aws", {})


def test_a_new_stage_has_what_its_settings_say() -> None:
    context: dict[str, str] = {}
    keep_key(None, "", context)
    assert context == {}
