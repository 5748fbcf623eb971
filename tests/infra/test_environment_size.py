"""Variables that may not fit are refused at the synthesis, with the function's name."""

from __future__ import annotations

import json
from typing import Any

import pytest

from helix.infra.config import SettingsError
from helix.infra.environment_size import MAX_BYTES, check_environment

BUCKET = "x" * 63
ARN = "arn:aws-us-gov:secretsmanager:us-gov-west-1:123456789012:secret:helix-abcdefghijklmnop-metrics-AbCdEf"


def joined(*parts: Any) -> dict[str, Any]:
    return {"Fn::Join": ["", [*parts]]}


@pytest.mark.parametrize(
    ("value", "filled_in", "own"),
    [
        ("x", "x", False),
        ('{"user": {"day": 2.0}}', '{"user": {"day": 2.0}}', False),
        ("ä\\", "ä\\", False),
        ({"Ref": "StorageBucket"}, BUCKET, False),
        ({"Ref": "EndpointsToken"}, ARN, True),
        ({"Fn::GetAtt": ["Queue", "Arn"]}, ARN, False),
        (joined("arn:", {"Ref": "AWS::Partition"}, ":", {"Ref": "AWS::Region"}), "arn:aws-us-gov:us-gov-west-1", False),
        (joined("", {"Ref": "AWS::AccountId"}, {"Ref": "AWS::URLSuffix"}), "123456789012amazonaws.com.cn", False),
        ({"Fn::Select": [1, {"Fn::Split": ["://", {"Ref": "Endpoint"}]}]}, "127.0.0.1:4566", False),
    ],
)
def test_no_environment_that_is_too_large_passes(value: Any, filled_in: str, own: bool) -> None:
    """Lambda measures the values that CloudFormation has filled in, as one JSON object."""
    measured = json.dumps({"FILL": "", "VALUE": filled_in}, separators=(",", ":"), ensure_ascii=False)
    fill = "x" * (MAX_BYTES - len(measured.encode()))
    with pytest.raises(SettingsError):
        check_environment("helix-dev-call_tool", {"FILL": f"{fill}x", "VALUE": value}, ["VALUE"] if own else [])
    if isinstance(value, str):
        check_environment("helix-dev-call_tool", {"FILL": fill, "VALUE": value}, [])


def test_the_refusal_names_the_function_and_what_takes_most_of_its_room() -> None:
    variables = {"HELIX_TRIGGERS": "x" * 1_900, "DESK_URL": "x" * 2_000, "A": "x" * 300, "B": "x"}
    with pytest.raises(SettingsError) as refused:
        check_environment("helix-dev-start_triggered", variables, [])
    assert str(refused.value) == (
        "function 'helix-dev-start_triggered': its environment variables take up to 4,250 bytes, and Lambda has room for "
        "4,096. The largest are DESK_URL 2,014, HELIX_TRIGGERS 1,920, A 307: shorten them; "
        "docs/guide/tool-settings.md#room-for-variables says where each comes from"
    )
