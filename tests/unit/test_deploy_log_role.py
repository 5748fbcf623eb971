"""`helix deploy` replaces no role of the account: the stack sets one for API Gateway's logs only where there is none."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from helix.cli.cloud.deploy import Deployment, Target, keep_log_role

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
