"""The log lines of a run: `get_logs` for operators, and the adapter that reads CloudWatch Logs, on moto."""

from __future__ import annotations

import json
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import boto3
import pytest
from moto import mock_aws
from tests.support_gateway import ADA, Desk, check_frame, started

from helix.adapters.aws.cloudwatch_logs import SEARCH_S, CloudWatchLogs
from helix.core.errors import AccessDeniedError, InvalidInputError, StoreError
from helix.core.log_lines import names_run
from helix.gateway.run_logs import MAX_LINE_BYTES, PROFILE_VERBS, SHARED_VERBS, list_functions
from helix.testing.clocks import ShiftedClock

RUN = "run_01_abc"
STAGE = "blue"
FUNCTIONS = ("start_run", "call_model", "call_tool", "finish_run")


class Stage:
    """The log groups of a stage on moto, and the adapter that reads them. `fail` makes each search fail with a code."""

    def __init__(self, client: Any) -> None:
        self.client, self.clock = client, ShiftedClock()
        self.logs = CloudWatchLogs(client, STAGE, self.clock)
        self.searched: list[dict[str, Any]] = []
        self.fail: str | None = None
        client.meta.events.register("before-call.logs.FilterLogEvents", self._search)

    def _search(self, params: Any, **_: Any) -> Any:
        self.searched.append(json.loads(params["body"]))
        if self.fail is None:
            return None
        problem = {"Code": self.fail, "Message": f"User: me is not authorized to perform: logs:{self.fail}"}
        response = SimpleNamespace(status_code=400, headers={}, raw=b"{}")
        return response, {"Error": problem, "ResponseMetadata": {"HTTPStatusCode": 400}}

    def log(self, function: str, *lines: str, at: float | None = None) -> None:
        """Write lines to a function's log, which is created if it does not exist. Each is a millisecond later."""
        group = f"/aws/lambda/helix-{STAGE}-{function}"
        existing = self.client.describe_log_groups(logGroupNamePrefix=group)["logGroups"]
        if group not in [one["logGroupName"] for one in existing]:
            self.client.create_log_group(logGroupName=group)
            self.client.create_log_stream(logGroupName=group, logStreamName="s")
        begun = int((self.clock.now() if at is None else at) * 1000)
        events = [{"timestamp": begun + n, "message": line} for n, line in enumerate(lines)]
        if events:
            self.client.put_log_events(logGroupName=group, logStreamName="s", logEvents=events)

    async def read(self, word: str = RUN, **more: Any) -> Any:
        return await self.logs.read(FUNCTIONS, word, **{"since": 0.0, "limit": 100, **more})


@pytest.fixture
def stage() -> Iterator[Stage]:
    given = {"region_name": "us-east-1", "aws_access_key_id": "test", "aws_secret_access_key": "test"}
    with mock_aws():
        made = Stage(boto3.Session(**given).client("logs"))
        for function in FUNCTIONS:
            made.log(function)
        yield made


# --- the adapter ----------------------------------------------------------------------------------------------------------


async def test_lines_of_all_functions_are_sorted_by_time(stage: Stage) -> None:
    now = stage.clock.now()
    stage.log("call_tool", f"tool of {RUN} \n", at=now - 10)
    stage.log("call_model", f"model of {RUN}", "model of run_02", at=now - 20)
    page = await stage.read()
    assert [(line.function, line.text) for line in page.events] == [
        ("call_model", f"model of {RUN}"),
        ("call_tool", f"tool of {RUN}"),
    ]
    assert page.after is None and abs(page.events[0].at - (now - 20)) < 0.01
    assert [line.function for line in (await stage.read(since=now - 15)).events] == ["call_tool"]
    assert [line.function for line in (await stage.read(until=now - 15)).events] == ["call_model"]


async def test_a_run_in_no_line_has_an_empty_last_page(stage: Stage) -> None:
    stage.log("call_model", f"model of {RUN}")
    assert await stage.read("run_99") == ([], None)
    assert len(stage.searched) == len(FUNCTIONS)


async def test_a_function_without_a_log_is_skipped(stage: Stage) -> None:
    stage.log("finish_run", f"end of {RUN}")
    stage.client.delete_log_group(logGroupName=f"/aws/lambda/helix-{STAGE}-call_model")
    page = await stage.read()
    assert [line.text for line in page.events] == [f"end of {RUN}"]
    assert await stage.logs.functions() == ["call_tool", "finish_run", "start_run"]


async def test_pages_have_each_line_once(stage: Stage) -> None:
    wanted = [f"{function} {n} {RUN}" for function in FUNCTIONS for n in range(5)]
    for function in FUNCTIONS:
        stage.log(function, *(line for line in wanted if line.startswith(function)))
    found, after = list[str](), None
    for _ in range(len(wanted)):
        page = await stage.read(limit=3, after=after)
        assert len(page.events) <= 3
        found += [line.text for line in page.events]
        if (after := page.after) is None:
            break
    assert after is None and sorted(found) == sorted(wanted)


async def test_a_search_that_takes_long_goes_on_in_the_next_page(stage: Stage) -> None:
    stage.log("finish_run", f"end of {RUN}")
    stage.client.meta.events.register(
        "before-call.logs.FilterLogEvents", lambda **_: setattr(stage.clock, "ahead_s", stage.clock.ahead_s + SEARCH_S)
    )
    first = await stage.read()
    assert (first.events, first.after, len(stage.searched)) == ([], "call_model ", 1)
    after = first.after
    while after is not None:
        page = await stage.read(after=after)
        after = page.after
    assert [line.text for line in page.events] == [f"end of {RUN}"]


@pytest.mark.parametrize("code", ["ThrottlingException", "ExpiredTokenException", "ServiceUnavailableException"])
async def test_a_failed_search_names_the_log(stage: Stage, code: str) -> None:
    stage.fail = code
    with pytest.raises(StoreError, match=f"reading the log of start_run.*{code}"):
        await stage.read()


async def test_a_missing_right_is_named(stage: Stage) -> None:
    stage.fail = "AccessDeniedException"
    with pytest.raises(AccessDeniedError, match="logs:AccessDeniedException on /aws/lambda/helix-blue-start_run"):
        await stage.read()


async def test_a_page_token_that_is_not_valid_is_refused(stage: Stage) -> None:
    for wrong in ("govern x", "", "\0"):
        with pytest.raises(InvalidInputError, match="not a page token"):
            await stage.read(after=wrong)
    stage.fail = "InvalidParameterException"
    with pytest.raises(InvalidInputError, match="has expired"):
        await stage.read(after="call_model of yesterday")
    with pytest.raises(StoreError, match="InvalidParameterException"):
        await stage.read()


def test_only_whole_ids_count() -> None:
    for line in (RUN, f"run {RUN}: done", f'{{"run_id":"{RUN}"}}', f"'{RUN}__part-2'", f"of {RUN}."):
        assert names_run(line, RUN), line
    for line in (f"{RUN}d", f"x{RUN}", f"{RUN}_2", "run_01_ab", "run_01.abc"):
        assert not names_run(line, RUN), line


# --- the request ----------------------------------------------------------------------------------------------------------


async def operated(desk: Desk) -> None:
    await desk.gateway.connect("ada", ADA, desk.clock.now() + 3600, operator=True)


async def test_an_operator_reads_the_lines_of_a_run(desk: Desk, stage: Stage) -> None:
    desk.gateway.backend.logs = stage.logs
    await operated(desk)
    place = await started(desk)
    run = place["run_id"]
    other = (await started(desk))["run_id"]
    about = {"session_id": place["session_id"], "run_id": run, "step": 1}
    stage.log(
        "call_model",
        json.dumps({"level": "WARNING", "message": "the model\nis slow", "service": "call_model", **about}),
        json.dumps({"level": "INFO", "message": "x" * 10_000, **about}),
        json.dumps({"level": "INFO", "message": "another run", "run_id": other}),
        json.dumps({"level": "INFO", "message": "a longer id", "run_id": f"{run}9"}),
    )
    stage.log("sweep", f"failure: run {run} \ud83d", at=stage.clock.now() + 1)
    stage.log("start_run", json.dumps({"message": "long before", **about}), at=stage.clock.now() - 3600)
    found = await desk.result("ada", "get_logs", session_id=place["session_id"])
    check_frame({"v": 1, "type": "reply", "id": "r", "action": "get_logs", "result": found})
    assert (found["run_id"], found["cursor"]) == (run, None)
    shown = [(line["function"], line["level"], line["text"]) for line in found["lines"]]
    assert shown[0] == ("call_model", "WARNING", "the model is slow step=1")
    assert shown[1][2] == f"{'x' * MAX_LINE_BYTES}…"
    assert shown[2][:2] == ("sweep", "INFO") and len(shown) == 3
    (range_ms,) = {one["endTime"] - one["startTime"] for one in stage.searched}
    assert 360_000 <= range_ms < 420_000, "a minute before the run, to five minutes after it"
    (line,) = (await desk.result("ada", "get_logs", session_id=place["session_id"], since=stage.clock.now()))["lines"]
    assert line["function"] == "sweep"
    page = await desk.result("ada", "get_logs", session_id=place["session_id"], limit=1)
    more = await desk.result("ada", "get_logs", session_id=place["session_id"], limit=1, after=page["cursor"])
    assert page["lines"][0]["text"] == shown[0][2] and more["lines"][0]["text"] == shown[1][2]


async def test_others_get_no_lines(desk: Desk, stage: Stage) -> None:
    """Neither a user who is not an operator, nor an operator who asks for another user's run."""
    desk.gateway.backend.logs = stage.logs
    place = await started(desk)
    assert (await desk.error("ada", "get_logs", session_id=place["session_id"]))["code"] == "not_allowed"
    await operated(desk)
    foreign = await started(desk, "bob")
    for fields in ({"session_id": foreign["session_id"]}, {"session_id": place["session_id"], "run_id": "run_none"}):
        error = await desk.error("ada", "get_logs", **fields)
        assert error["code"] in ("session_not_found", "run_not_found"), error
    mixed = {"session_id": place["session_id"], "run_id": foreign["run_id"]}
    assert (await desk.error("ada", "get_logs", **mixed))["code"] == "run_not_found"
    assert stage.searched == []


async def test_what_cannot_be_read_is_refused_by_name(desk: Desk, stage: Stage) -> None:
    await operated(desk)
    place = {"session_id": (await started(desk))["session_id"]}
    error = await desk.error("ada", "get_logs", **place)
    assert (
        error["code"] == "invalid_input" and "helix logs" in error["message"] and "deployed stage" in error["message"]
    )
    desk.gateway.backend.logs = stage.logs
    error = await desk.error("ada", "get_logs", **place, since=5.0, until=4.0)
    assert error["code"] == "invalid_input" and "since is 5.0 and until is 4.0" in error["message"]
    error = await desk.error("ada", "get_logs", **place, after="nothing")
    assert error["code"] == "invalid_input" and "page token" in error["message"]
    stage.fail = "ThrottlingException"
    error = await desk.error("ada", "get_logs", **place)
    assert (error["code"], error["recoverable"]) == ("store_error", True)
    assert "Throttling" not in error["message"], "operators of a stage read the cause in its log"


async def test_a_removed_agent_hides_no_lines(desk: Desk, stage: Stage) -> None:
    desk.gateway.backend.logs = stage.logs
    await operated(desk)
    place = await started(desk)
    stage.log("call_model", f"of {place['run_id']}")
    desk.gateway.backend.registry.unregister("helper")
    found = await desk.result("ada", "get_logs", session_id=place["session_id"])
    assert [line["function"] for line in found["lines"]] == ["call_model"]


def test_the_functions_are_those_of_a_stage() -> None:
    from helix.infra.names import Names
    from helix.infra.verbs import SIZES, TRIGGER_SIZES

    assert {*PROFILE_VERBS, *SHARED_VERBS} <= {*SIZES, *TRIGGER_SIZES}
    names = Names(STAGE)
    deployed = [names.function(verb) for verb in SHARED_VERBS]
    for profile in ("default", "roomy"):
        deployed += [make(verb, profile) for verb in PROFILE_VERBS for make in (names.function, names.image_function)]
    searched = [f"helix-{STAGE}-{name}" for name in list_functions({"default", "roomy"})]
    assert sorted(searched) == sorted(deployed)
