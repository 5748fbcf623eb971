"""The division of Lambda's concurrency limit: the reserved part, the part that AWS keeps unreserved, and the number of
concurrent runs."""

from __future__ import annotations

from typing import Any

import pytest
from tests.infra.templates import Assembly, text

from helix.infra.concurrency import division, reserved, runs_at_once
from helix.infra.config import Settings, read_settings
from helix.infra.verbs import SIZES

SMALL = {"ws_authorize", "ws_connect", "ws_disconnect", "ws_message", "project_stream", "sweep", "govern", "health"}
UNRESERVED = 100
"""https://docs.aws.amazon.com/lambda/latest/api/API_PutFunctionConcurrency.html"""


def settings(**given: Any) -> Settings:
    return read_settings(given)


@pytest.mark.parametrize("limit", [0, 1, 10, 100, 130, 140, 141, 150, 1000, 10_000, 100_000])
def test_the_division_leaves_what_aws_keeps_and_room_for_the_others(limit: int) -> None:
    given = settings(concurrency=limit)
    taken, runs = reserved(given), runs_at_once(given)
    assert limit - sum(taken.values()) >= UNRESERVED or not taken
    assert not taken or set(taken) == SMALL
    assert runs <= (limit - sum(taken.values())) * 0.8 and (runs > 0) == (limit > 1)
    assert sum(taken.values()) <= limit * 0.3


def test_a_new_account_keeps_five_for_what_is_not_a_run() -> None:
    assert (runs_at_once(settings(concurrency=10)), reserved(settings(concurrency=10))) == (5, {})
    assert division(settings(concurrency=10)) == (
        "10 invocations at once, 5 runs at work; nothing is reserved, because AWS keeps 100 unreserved"
    )


def test_what_is_set_is_kept_and_what_is_unknown_bounds_nothing() -> None:
    assert runs_at_once(settings()) == 0 and reserved(settings()) == {}
    assert [runs_at_once(settings(concurrency=1000, max_runs=n)) for n in (0, 7)] == [0, 7]
    assert "any number of runs" in division(settings(concurrency=1000, max_runs=0))


def test_lanes_and_provisioned_concurrency_count() -> None:
    assert reserved(settings(concurrency=1000, shards=4))["project_stream"] == 40
    assert "project_stream" not in reserved(settings(concurrency=1000, shards=0)), "Kinesis chooses how many shards"
    for streaming in ("both", "direct"):
        assert "project_stream" not in reserved(settings(concurrency=1000, shards=4, streaming=streaming)), (
            "and DynamoDB"
        )
    assert reserved(settings(concurrency=1000, provisioned_concurrency=900)) == {}


def test_the_template_reserves_it(deployed: Assembly, production: Assembly) -> None:
    wanted = reserved(settings(concurrency=1000))
    found = {}
    for template in deployed.templates:
        for function in template.of("Lambda::Function").values():
            verb = function["Environment"]["Variables"]["POWERTOOLS_SERVICE_NAME"]
            if "ReservedConcurrentExecutions" in function:
                found[verb] = function["ReservedConcurrentExecutions"]
    assert found == wanted and not {"call_model", "call_tool", "finish_run"} & set(found)
    assert set(SIZES) > SMALL
    said = text(deployed.main.text["Outputs"]["Concurrency"]["Value"])
    assert said.startswith("1000 invocations at once, 40 runs at work; reserved: ws_message 50,")
    for function in production.main.of("Lambda::Function").values():
        assert "ReservedConcurrentExecutions" not in function
        assert function["Environment"]["Variables"]["HELIX_MAX_RUNS"] == "5"
