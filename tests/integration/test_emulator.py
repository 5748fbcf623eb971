"""The corrections of MiniStack (`helix.local.corrections`): each is compared with the behaviour of AWS, and is still
needed.

A check asserts AWS's behaviour through the APIs. It passes with all corrections and fails without its own one. If it passes
without it, MiniStack has fixed the problem, and the correction can be removed.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError
from tests.support.emulator_desk import ACCOUNT, PATIENCE_S, REGION, Desk, started, task, until
from tests.support.emulator_fleet import (
    alarms_are_evaluated_as_time_passes,
    alarms_look_at_their_own_metric,
    alarms_speak_as_cloudwatch,
    provisioned_concurrency_is_a_right,
    schedules_have_a_time_zone,
)
from tests.support.emulator_sockets import (
    authorizers_without_identity_source_are_always_asked,
    messages_without_a_route_go_to_the_default,
    routes_answer_only_when_asked,
    socket_messages_have_a_limit,
    sockets_close_on_long_frames,
    sockets_echo_the_subprotocol,
)
from websockets.exceptions import ConnectionClosed

from helix.local import corrections, corrections_sockets
from helix.local.pool import Pool, limit_of

pytestmark = pytest.mark.xdist_group("cloud")

SECRET = "AWS_SECRET_ACCESS_KEY"


# --- one check for each correction -----------------------------------------------------------------------------------


def functions_run_in_the_pool(desk: Desk) -> None:
    """An error is named after its class and leaves the environment alive, and Step Functions can catch it by that name."""
    function = desk.function()
    before, _ = desk.invoke(function)
    assert desk.invoke(function, do="raise") == (None, "WorkInProgressError")
    assert desk.invoke(function)[0] == before, "the same process"
    caught = [{"ErrorEquals": ["WorkInProgressError"], "Next": "Caught"}]
    ended = desk.execute({"Go": task(function, Catch=caught), "Caught": {"Type": "Succeed"}}, "Go", {"do": "raise"})
    assert ended["status"] == "SUCCEEDED"
    with desk.socket():
        assert desk.connection_id()


def workers_have_random_credentials(desk: Desk) -> None:
    function = desk.function()
    given = {name: desk.invoke(function, do="environment", name=name)[0] for name in ("AWS_ACCESS_KEY_ID", SECRET)}
    role = desk.client("lambda").get_function_configuration(FunctionName=function)
    digest = hashlib.sha256(f"{role['FunctionArn']}:{role['Role']}".encode()).hexdigest()
    assert given[SECRET] != hashlib.sha256(f"secret:{digest}".encode()).hexdigest()


def errors_of_token_tasks_fail_them(desk: Desk) -> None:
    waiting = {**task(desk.function()), "Resource": "arn:aws:states:::lambda:invoke.waitForTaskToken"}
    ended = desk.execute({"Go": {**waiting, "TimeoutSeconds": 3}}, "Go", {"do": "raise"})
    assert (ended["status"], ended["error"]) == ("FAILED", "WorkInProgressError")


def payloads_have_a_limit(desk: Desk) -> None:
    ended = desk.execute({"Go": task(desk.function())}, "Go", {"do": "big"})
    assert (ended["status"], ended.get("error")) == ("FAILED", "States.DataLimitExceeded")
    try:
        desk.execute({"Go": {"Type": "Pass", "End": True}}, "Go", {"x": "x" * 300_000})
    except ClientError:
        return
    raise AssertionError("an input of 300 KB is accepted")


def histories_have_a_limit(desk: Desk) -> None:
    """A round has four events, so 6,300 rounds are more than 25,000."""
    add = {"Type": "Pass", "Parameters": {"n.$": "States.MathAdd($.n, 1)"}, "Next": "Enough"}
    enough = {"Variable": "$.n", "NumericGreaterThan": 6_300, "Next": "Done"}
    states = {
        "Add": add,
        "Enough": {"Type": "Choice", "Choices": [enough], "Default": "Add"},
        "Done": {"Type": "Succeed"},
    }
    ended = desk.execute(states, "Add", {"n": 0})
    assert (ended["status"], ended.get("error")) == ("FAILED", "States.Runtime")


def histories_have_what_maps_do(desk: Desk) -> None:
    inner = {"StartAt": "Inner", "States": {"Inner": {"Type": "Pass", "End": True}}}
    several = {"Type": "Map", "ItemsPath": "$.items", "ItemProcessor": inner, "End": True}
    ended = desk.execute({"Several": several}, "Several", {"items": [1, 2]})
    entered = [e["stateEnteredEventDetails"]["name"] for e in desk.events(ended) if "stateEnteredEventDetails" in e]
    assert entered == ["Several", "Inner", "Inner"]


def failed_stream_items_come_again(desk: Desk) -> None:
    """The marker comes after everything before it was delivered for the last time. This holds for Kinesis and for a
    table."""
    stream, table = desk.name(), desk.name()
    kinesis, dynamodb = desk.client("kinesis"), desk.client("dynamodb")
    kinesis.create_stream(StreamName=stream, ShardCount=1)
    described = dynamodb.create_table(
        TableName=table,
        BillingMode="PAY_PER_REQUEST",
        KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "pk", "AttributeType": "S"}],
        StreamSpecification={"StreamEnabled": True, "StreamViewType": "NEW_IMAGE"},
    )["TableDescription"]
    writers: dict[str, Callable[[str], Any]] = {
        f"arn:aws:kinesis:{REGION}:{ACCOUNT}:stream/{stream}": lambda key: kinesis.put_record(
            StreamName=stream, Data=b"1", PartitionKey=key
        ),
        described["LatestStreamArn"]: lambda key: dynamodb.put_item(TableName=table, Item={"pk": {"S": key}}),
    }
    for source, write in writers.items():
        function = desk.function()
        desk.client("lambda").create_event_source_mapping(
            FunctionName=function,
            EventSourceArn=source,
            StartingPosition="TRIM_HORIZON",
            FunctionResponseTypes=["ReportBatchItemFailures"],
        )

        def batches(function: str = function) -> list[str]:
            return [line["line"] for line in list(desk.lines) if line["function"] == function]

        def told(word: str, batches: Callable[[], list[str]] = batches) -> bool:
            return any(word in batch for batch in batches())

        write("once")
        until(partial(told, "once"))
        write("marker")
        until(partial(told, "marker"))
        assert sum("once" in batch for batch in batches()) == 2, source


def conditions_are_parsed_once(desk: Desk) -> None:
    """A long condition is parsed once, and not for each of a thousand rows."""
    table, dynamodb = desk.name(), desk.client("dynamodb")
    keys = {"pk": "HASH", "sk": "RANGE"}
    dynamodb.create_table(
        TableName=table,
        BillingMode="PAY_PER_REQUEST",
        KeySchema=[{"AttributeName": name, "KeyType": kind} for name, kind in keys.items()],
        AttributeDefinitions=[{"AttributeName": name, "AttributeType": "S"} for name in keys],
    )
    rows = [{"PutRequest": {"Item": {"pk": {"S": "p"}, "sk": {"S": f"{n:04d}"}}}} for n in range(1_000)]
    for start in range(0, len(rows), 25):
        dynamodb.batch_write_item(RequestItems={table: rows[start : start + 25]})

    def fastest(condition: str) -> float:
        values, times = {":p": {"S": "p"}, ":s": {"S": "0999"}}, []
        for _ in range(5):
            begun = time.perf_counter()
            found = dynamodb.query(TableName=table, KeyConditionExpression=condition, ExpressionAttributeValues=values)
            times.append(time.perf_counter() - begun)
            assert found["Count"] == 1
        return min(times)

    assert fastest(f"pk = :p AND {' ' * 3_900} sk = :s") < 4 * fastest("pk = :p AND sk = :s")


def nested_stacks_keep_attributes(desk: Desk) -> None:
    """After an update that does not change a log group, its ARN is still known."""
    bucket, stack, storage = desk.name(), desk.name(), desk.client("s3")
    storage.create_bucket(Bucket=bucket)
    child = {
        "Parameters": {"Word": {"Type": "String"}},
        "Resources": {
            "Log": {"Type": "AWS::Logs::LogGroup", "Properties": {"LogGroupName": f"/{stack}"}},
            "Note": {
                "Type": "AWS::SSM::Parameter",
                "Properties": {
                    "Type": "String",
                    "Value": {"Fn::Join": [" ", [{"Fn::GetAtt": ["Log", "Arn"]}, {"Ref": "Word"}]]},
                },
            },
        },
    }
    storage.put_object(Bucket=bucket, Key="child.json", Body=json.dumps(child))
    nested = {"TemplateURL": f"https://s3.{REGION}.amazonaws.com/{bucket}/child.json"}
    cloud = desk.client("cloudformation")
    for apply, word in ((cloud.create_stack, "one"), (cloud.update_stack, "two")):
        properties = {**nested, "Parameters": {"Word": word}}
        template = {"Resources": {"Child": {"Type": "AWS::CloudFormation::Stack", "Properties": properties}}}
        apply(StackName=stack, TemplateBody=json.dumps(template))
        status = until(
            lambda: (
                not (found := cloud.describe_stacks(StackName=stack)["Stacks"][0]["StackStatus"]).endswith("PROGRESS")
                and found
            )
        )
    assert status == "UPDATE_COMPLETE"
    (note,) = [p for p in desk.client("ssm").describe_parameters()["Parameters"] if stack in p["Name"]]
    value = desk.client("ssm").get_parameter(Name=note["Name"])["Parameter"]["Value"]
    assert value.startswith("arn:aws:logs:") and value.endswith(" two")


def requests_count_as_encrypted(desk: Desk) -> None:
    bucket, user, storage = desk.name(), desk.name(), desk.client("s3")
    storage.create_bucket(Bucket=bucket)
    everything = {"Effect": "Deny", "Principal": "*", "Action": "s3:*", "Resource": f"arn:aws:s3:::{bucket}/*"}
    plain = {**everything, "Condition": {"Bool": {"aws:SecureTransport": "false"}}}
    old = {**everything, "Condition": {"NumericLessThan": {"s3:TlsVersion": "1.2"}}}
    policy = {"Version": "2012-10-17", "Statement": [plain, old]}
    storage.put_bucket_policy(Bucket=bucket, Policy=json.dumps(policy))
    iam = desk.client("iam")
    iam.create_user(UserName=user)
    allow = {"Effect": "Allow", "Action": "s3:PutObject", "Resource": "*"}
    document = json.dumps({"Version": "2012-10-17", "Statement": [allow]})
    iam.put_user_policy(UserName=user, PolicyName="put", PolicyDocument=document)
    key = iam.create_access_key(UserName=user)["AccessKey"]
    credentials = {"aws_access_key_id": key["AccessKeyId"], "aws_secret_access_key": key["SecretAccessKey"]}
    try:
        desk.client("s3", **credentials).put_object(Bucket=bucket, Key="x", Body=b"x")
    except ClientError as error:
        raise AssertionError(f"denied: {error}") from error


def log_searches_have_pages(desk: Desk) -> None:
    group, logs = f"/{desk.name()}", desk.client("logs")
    logs.create_log_group(logGroupName=group)
    logs.create_log_stream(logGroupName=group, logStreamName="s")
    now = int(time.time() * 1000)
    events = [{"timestamp": now + n, "message": f"{'even' if n % 2 == 0 else 'odd'} {n}"} for n in range(10)]
    logs.put_log_events(logGroupName=group, logStreamName="s", logEvents=events)
    found, more = list[str](), dict[str, str]()
    for _ in range(len(events)):
        page = logs.filter_log_events(logGroupName=group, filterPattern="even", limit=2, **more)
        found += [event["message"] for event in page["events"]]
        if "nextToken" not in page:
            break
        more = {"nextToken": page["nextToken"]}
    assert found == [f"even {n}" for n in range(0, 10, 2)]


def guardrails_have_arns(desk: Desk) -> None:
    credentials, name = desk.name(), desk.name()
    iam = desk.client("iam")
    iam.create_user(UserName=credentials)
    allow = {"Effect": "Allow", "Action": "bedrock:ApplyGuardrail", "Resource": f"arn:aws:bedrock:*:*:guardrail/{name}"}
    document = json.dumps({"Version": "2012-10-17", "Statement": [allow]})
    iam.put_user_policy(UserName=credentials, PolicyName="apply", PolicyDocument=document)
    key = iam.create_access_key(UserName=credentials)["AccessKey"]
    keys = {"aws_access_key_id": key["AccessKeyId"], "aws_secret_access_key": key["SecretAccessKey"]}
    codes = {}
    for guardrail in (name, "another"):
        asked = {"guardrailIdentifier": guardrail, "guardrailVersion": "1", "source": "INPUT"}
        with pytest.raises(ClientError) as met:
            desk.client("bedrock-runtime", **keys).apply_guardrail(**asked, content=[{"text": {"text": "x"}}])
        codes[guardrail] = met.value.response["Error"]["Code"]
    assert list(codes.values()) == ["ResourceNotFoundException", "AccessDeniedException"]


CHECKS: dict[str, Callable[[Desk], None]] = {
    check.__name__: check
    for check in (
        functions_run_in_the_pool,
        workers_have_random_credentials,
        errors_of_token_tasks_fail_them,
        payloads_have_a_limit,
        histories_have_a_limit,
        histories_have_what_maps_do,
        failed_stream_items_come_again,
        conditions_are_parsed_once,
        sockets_echo_the_subprotocol,
        authorizers_without_identity_source_are_always_asked,
        messages_without_a_route_go_to_the_default,
        routes_answer_only_when_asked,
        socket_messages_have_a_limit,
        nested_stacks_keep_attributes,
        requests_count_as_encrypted,
        guardrails_have_arns,
        alarms_look_at_their_own_metric,
        alarms_are_evaluated_as_time_passes,
        alarms_speak_as_cloudwatch,
        provisioned_concurrency_is_a_right,
        schedules_have_a_time_zone,
        sockets_close_on_long_frames,
        log_searches_have_pages,
    )
}


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    with started(tmp_path_factory.mktemp("emulator")) as made:
        yield made


def test_every_correction_has_a_check(tmp_path: Path) -> None:
    pool = Pool(tmp_path, "http://127.0.0.1:1", {}, lambda line: None)
    assert [correct.__name__ for correct in corrections.list_corrections(pool)] == list(CHECKS)


@pytest.mark.slow
@pytest.mark.parametrize("name", CHECKS)
def test_it_is_as_on_aws(desk: Desk, name: str) -> None:
    CHECKS[name](desk)


@pytest.mark.slow
@pytest.mark.parametrize("name", CHECKS)
def test_ministack_still_needs_it(tmp_path: Path, name: str) -> None:
    """If this fails, MiniStack has fixed the problem: remove the correction and its check."""
    with started(tmp_path, without=[name]) as desk, pytest.raises(AssertionError):
        CHECKS[name](desk)


# --- the workers, apart from the corrections ---------------------------------------------------------------------------


def test_concurrent_calls_have_environments_of_their_own(desk: Desk) -> None:
    function = desk.function()
    with ThreadPoolExecutor(2) as both:
        answers = list(both.map(lambda _: desk.invoke(function, do="sleep", seconds=0.5)[0]["pid"], range(2)))
    assert len(set(answers)) == 2


def test_invocations_beyond_the_limit_wait_in_line(tmp_path: Path) -> None:
    with started(tmp_path, workers=2) as desk, ThreadPoolExecutor(8) as many:
        one, other = desk.function(), desk.function()
        asked = [one, other, other, one] * 3
        answers = list(many.map(lambda function: desk.invoke(function, do="sleep", seconds=0.1), asked))
        assert [error for _, error in answers if error] == []
        desk.emulator.ask("retire")
        answers = list(many.map(lambda _: desk.invoke(one, do="sleep", seconds=0.1), range(8)))
        assert len({answer["pid"] for answer, _ in answers}) <= 2


def test_invocations_that_need_another_do_not_wait_for_each_other_forever(tmp_path: Path) -> None:
    with started(tmp_path, workers=2) as desk, ThreadPoolExecutor(3) as many:
        inner, outer = desk.function(), desk.function()
        answers = list(many.map(lambda _: desk.invoke(outer, do="call", of=inner), range(3)))
        assert [error for _, error in answers if error] == [] and all("pid" in answer for answer, _ in answers)


@pytest.mark.parametrize(("memory_gb", "cores", "limit"), [(16, 8, 54), (64, 2, 32), (1, 1, 8)])
def test_the_limit_follows_from_memory_and_cores(memory_gb: int, cores: int, limit: int) -> None:
    assert limit_of(memory_gb * 2**30, cores) == limit


def test_a_function_that_takes_too_long_or_dies_is_reported_as_on_aws(desk: Desk) -> None:
    function = desk.function(timeout=1)
    assert desk.invoke(function, do="sleep", seconds=5)[1] == "Sandbox.Timedout"
    assert desk.invoke(function, do="exit")[1] == "Runtime.ExitError"
    assert desk.invoke(function)[1] is None


def test_addresses_of_sockets_lead_here(desk: Desk) -> None:
    here = f"http://127.0.0.1:{desk.emulator.port}/_aws/execute-api/abc123/dev"
    for said in ("https://abc123.execute-api.us-east-1.amazonaws.com/dev", here.replace("127.0.0.1:", "127.0.0.1:1")):
        function = desk.function(SOCKETS=said)
        assert desk.invoke(function, do="environment", name="SOCKETS") == (here, None)


def test_clients_cannot_send_more_than_the_gateway_takes(desk: Desk) -> None:
    with desk.socket() as socket, pytest.raises(ConnectionClosed):
        socket.send("x" * (corrections_sockets.SOCKET_MESSAGE + 1))
        socket.recv(timeout=PATIENCE_S)
