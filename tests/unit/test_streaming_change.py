"""`helix deploy` changes `streaming` only in steps that lose no chunk."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from botocore.exceptions import ClientError

from helix.adapters.system import SystemClock
from helix.cli.cloud.deploy_checks import FLIGHT_S, check_streaming
from helix.cli.output import RefusedError

CLOCK = SystemClock()


def check(present: dict[str, str] | None, wanted: str, *, since_s: float = 0.0, alarm: str = "OK") -> None:
    """Check the change. `present` has the stack's outputs (None: no stack), deployed `since_s` seconds ago."""

    def stacks(**_: Any) -> Any:
        if present is None:
            raise ClientError({"Error": {"Code": "ValidationError", "Message": "it does not exist"}}, "DescribeStacks")
        outputs = [{"OutputKey": name, "OutputValue": value} for name, value in present.items()]
        return {"Stacks": [{"StackStatus": "UPDATE_COMPLETE", "Outputs": outputs}]}

    event = {"Timestamp": datetime.fromtimestamp(CLOCK.now() - since_s, UTC)}
    check_streaming(
        SimpleNamespace(describe_stacks=stacks, describe_stack_events=lambda **_: {"StackEvents": [event]}),
        SimpleNamespace(
            describe_alarms=lambda AlarmNames: {
                "MetricAlarms": [{"AlarmName": n, "StateValue": alarm} for n in AlarmNames]
            }
        ),
        CLOCK,
        "helix-dev",
        wanted,
    )


BEFORE = {"ChunkStream": "helix-dev-chunks"}
"""Outputs of a stage that was deployed before the setting existed."""


@pytest.mark.parametrize("mode", ["kinesis", "both", "direct"])
def test_a_new_stage_has_any(mode: str) -> None:
    check(None, mode)
    check({"StreamingMode": mode}, mode)


@pytest.mark.parametrize(
    ("present", "wanted"),
    [(BEFORE, "direct"), ({"StreamingMode": "kinesis"}, "direct"), ({"StreamingMode": "direct"}, "kinesis")],
)
def test_there_is_a_step_between_them(present: dict[str, str], wanted: str) -> None:
    check(present, "both")
    with pytest.raises(
        RefusedError, match=rf"-c streaming=both first, and with -c streaming={wanted} 20 minutes later"
    ):
        check(present, wanted, since_s=10 * FLIGHT_S)


@pytest.mark.parametrize("wanted", ["kinesis", "direct"])
def test_the_step_takes_its_time(wanted: str) -> None:
    both = {"StreamingMode": "both", **BEFORE}
    with pytest.raises(RefusedError, match=r"in 20 minutes"):
        check(both, wanted)
    with pytest.raises(RefusedError, match=r"helix-dev-chunks-behind"):
        check(both, wanted, since_s=FLIGHT_S + 1, alarm="ALARM")
    check(both, wanted, since_s=FLIGHT_S + 1)
