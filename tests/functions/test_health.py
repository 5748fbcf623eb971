"""The function `health` serves the deployed app's pages from its tables to an HTTP API."""

from __future__ import annotations

import json
from typing import Any

import boto3
import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.functions.conftest import Functions
from tests.support_run import agent

from helix.core.errors import StoreError
from helix.core.health import HealthCheck
from helix.fleet.health import HealthChecker
from helix.fleet.health_rows import set_ready
from helix.fleet.metrics_token import TOKEN, make_token
from helix.runtime.cloud import application
from helix.services.activity import LOOK_S, note_activity, note_sweep

SECRET = "a token of forty characters, or so it is"


def ask(functions: Functions, route: str, **headers: str) -> tuple[int, Any]:
    event = functions.sample("health") | {"routeKey": f"GET {route}", "rawPath": route}
    answer = functions.invoke("health", event | {"headers": {**event["headers"], **headers}})
    body = answer["body"]
    json_body = answer["headers"]["content-type"] == "application/json"
    assert answer["headers"]["cache-control"] == "no-store"
    return answer["statusCode"], json.loads(body) if json_body else body


@pytest.fixture
def token(monkeypatch: pytest.MonkeyPatch, functions: Functions) -> str:
    """The stack's secret."""
    made = boto3.client("secretsmanager").create_secret(Name="helix-test-metrics", SecretString=SECRET)
    object.__setattr__(functions.app.settings, "metrics_secret", made["ARN"])
    return f"Bearer {SECRET}"


def swept(functions: Functions) -> None:
    functions.play([])
    functions.app.run(note_sweep(functions.app.store, functions.clock.now(), found=False))


def test_it_is_alive_and_not_ready_before_the_first_sweep(functions: Functions) -> None:
    assert ask(functions, "/live")[0] == 200
    assert ask(functions, "/ready") == (
        503,
        {"service": "helix-dev", "ready": False, "reason": "the sweep has not run yet"},
    )
    functions.play([])
    functions.invoke("sweep", functions.sample("sweep"))
    assert ask(functions, "/ready")[0] == 200
    functions.clock.ahead_s += LOOK_S + 299
    assert ask(functions, "/ready")[0] == 200, "at rest it is swept once an hour"
    functions.clock.ahead_s += 2
    status, page = ask(functions, "/ready")
    assert (status, page["reason"]) == (503, "the last sweep was 3901 s ago")


def test_a_stage_at_work_is_swept_each_minute(functions: Functions) -> None:
    functions.play([])
    functions.app.run(note_activity(functions.app.store, functions.clock.now()))
    functions.invoke("sweep", functions.sample("sweep"))
    functions.clock.ahead_s += 301
    assert ask(functions, "/ready")[0] == 503


def test_people_may_say_that_no_work_is_taken(functions: Functions) -> None:
    swept(functions)
    app = functions.app
    app.run(set_ready(app.store, app.clock, False, "maintenance"))
    assert ask(functions, "/ready") == (503, {"service": "helix-dev", "ready": False, "reason": "maintenance"})
    app.run(set_ready(app.store, app.clock, True))
    assert ask(functions, "/ready")[0] == 200


def test_health_is_the_tables_the_schedule_the_queues_and_the_agents(functions: Functions, token: str) -> None:
    status, page = ask(functions, "/health")
    assert (status, page["status"]) == (200, "degraded"), "no sweep yet"
    swept(functions)
    status, page = ask(functions, "/health")
    assert (status, page["status"]) == (200, "healthy")
    assert page["checks"] == {
        "control table": {"status": "healthy", "critical": True},
        "sessions table": {"status": "healthy", "critical": True},
        "sweep": {"status": "healthy", "critical": False},
        "queue": {"status": "healthy", "critical": False},
    }
    checker = HealthChecker(functions.app.store)
    check = HealthCheck(name="key", check_fn=lambda: (False, "no key for the model"), failure_threshold=1)
    functions.app.run(checker.register_check("helper", check))
    functions.app.run(checker.check_health("helper", run=True))
    status, page = ask(functions, "/health", Authorization=token)
    assert (status, page["status"]) == (200, "degraded"), "the app stays ready if an agent fails"
    assert page["checks"]["agent helper"]["message"] == "key: no key for the model"
    assert "message" not in ask(functions, "/health")[1]["checks"]["agent helper"], (
        "the page hides the message without a token"
    )


@pytest.mark.parametrize("table", ["control", "sessions"])
def test_a_table_that_does_not_answer_is_unhealthy(functions: Functions, table: str) -> None:
    swept(functions)
    tables: Any = functions.app.store._inner
    boto3.client("dynamodb").delete_table(TableName=tables._tables[table])
    status, page = ask(functions, "/health")
    assert (status, page["status"]) == (503, "unhealthy")
    assert page["checks"][f"{table} table"]["status"] == "unhealthy"
    assert ask(functions, "/ready")[0] == 503
    assert ask(functions, "/live")[0] == 200


def test_the_figures_are_closed_until_there_is_a_token(functions: Functions) -> None:
    for guess in ({}, {"authorization": "Bearer "}, {"authorization": "Bearer guess"}):
        assert ask(functions, "/metrics", **guess)[0] == 401
    made = functions.app.run(make_token(functions.app.store, functions.app.ids))
    assert ask(functions, "/metrics", authorization=f"Bearer {made}")[0] == 200
    assert functions.app.run(make_token(functions.app.store, functions.app.ids)) is None, "it is never replaced"
    assert ask(functions, "/metrics", authorization="Bearer guess")[0] == 401
    (row,) = functions.app.run(functions.app.store.get([TOKEN]))
    assert made and made not in json.dumps(row)


def test_a_secret_that_comes_later_leaves_the_token_as_it_is(functions: Functions, token: str) -> None:
    made = functions.app.run(make_token(functions.app.store, functions.app.ids))
    assert [ask(functions, "/metrics", authorization=good)[0] for good in (token, f"Bearer {made}")] == [200, 200]


def turn(functions: Functions, text: str) -> None:
    """Replace the secret, as an operator does."""
    boto3.client("secretsmanager").put_secret_value(SecretId=functions.app.settings.metrics_secret, SecretString=text)


def test_a_new_token_is_taken_within_a_minute_and_the_old_one_refused(functions: Functions, token: str) -> None:
    assert ask(functions, "/metrics", authorization=token)[0] == 200
    turn(functions, "another")
    assert ask(functions, "/metrics", authorization="Bearer another")[0] == 401, "it was read a moment ago"
    functions.clock.ahead_s += 61
    assert ask(functions, "/metrics", authorization="Bearer another")[0] == 200
    assert ask(functions, "/metrics", authorization=token)[0] == 401


def test_an_old_token_is_refused_though_nobody_brings_the_new_one(functions: Functions, token: str) -> None:
    assert ask(functions, "/metrics", authorization=token)[0] == 200
    turn(functions, "another")
    functions.clock.ahead_s += 301
    assert ask(functions, "/metrics", authorization=token)[0] == 401


def test_who_guesses_does_not_have_the_secret_read_each_time(functions: Functions, token: str) -> None:
    read: list[Any] = []
    functions.app._session.register("before-call.secretsmanager.GetSecretValue", lambda **_: read.append(1))
    for _ in range(3):
        assert ask(functions, "/metrics", authorization="Bearer guess")[0] == 401
    assert len(read) == 1
    functions.clock.ahead_s += 61
    for _ in range(3):
        assert ask(functions, "/metrics", authorization="Bearer guess")[0] == 401
        assert ask(functions, "/metrics", authorization=token)[0] == 200
    assert len(read) == 2


def test_a_secret_that_cannot_be_read_again_is_good_until_it_is_too_old(functions: Functions, token: str) -> None:
    assert ask(functions, "/metrics", authorization=token)[0] == 200
    gone = functions.app.settings.metrics_secret
    boto3.client("secretsmanager").delete_secret(SecretId=gone, ForceDeleteWithoutRecovery=True)
    functions.clock.ahead_s += 61
    assert ask(functions, "/metrics", authorization="Bearer guess")[0] == 401
    assert ask(functions, "/metrics", authorization=token)[0] == 200
    functions.clock.ahead_s += 240
    with pytest.raises(StoreError):
        ask(functions, "/metrics", authorization=token)


def test_the_figures_of_finished_runs_are_all_time_totals(functions: Functions, token: str) -> None:
    assert ask(functions, "/metrics")[0] == 401
    assert ask(functions, "/metrics", authorization="Bearer wrong")[0] == 401
    swept(functions)
    functions.play(
        [{"content": "done", "usage": {"prompt_tokens": 100, "completion_tokens": 20, "cost_micros": 700, "calls": 1}}]
    )
    functions.claim(agent("helper"), event := functions.sample("call_model"))
    functions.invoke("call_model", event)
    functions.invoke("finish_run", event)
    status, text = ask(functions, "/metrics", authorization=token)
    assert status == 200
    samples = {
        (s.name, s.labels.get("agent"), s.labels.get("direction")): s.value
        for family in text_string_to_metric_families(text)
        for s in family.samples
    }
    assert samples[("helix_requests_total", None, None)] == 1
    assert samples[("helix_errors_total", None, None)] == 0
    assert samples[("helix_llm_requests_total", "helper", None)] == 1
    assert samples[("helix_llm_tokens_total", "helper", "input")] == 100
    assert samples[("helix_llm_tokens_total", "helper", "output")] == 20
    assert samples[("helix_llm_cost_total", "helper", None)] == pytest.approx(0.0007)
    assert samples[("helix_ready", None, None)] == 1


def test_other_paths_are_not_found(functions: Functions) -> None:
    assert ask(functions, "/else")[0] == 404
    event = functions.sample("health") | {"routeKey": "$default"}
    event["requestContext"]["http"]["path"] = "/dev/live"
    assert functions.invoke("health", event)["statusCode"] == 200
    assert application() is functions.app
