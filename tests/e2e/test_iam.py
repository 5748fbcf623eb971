"""Nobody does more here than a role allows, and every right of every function is one that it cannot do without.

Each right is taken away from a deployed role, alone, and a short probe (`iam_probes`) then fails and names it. The rights
are those of the synthesised template: one that no probe uses fails `test_every_right_has_a_probe`.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from botocore import UNSIGNED
from botocore.config import Config
from botocore.exceptions import ClientError
from tests.e2e import iam_probes, iam_probes_sockets
from tests.e2e.iam_bench import PROBES, Bench, Probe
from tests.e2e.iam_roles import Right, Roles
from tests.support.offline_cloud import CloudForTests, until

Json = dict[str, Any]
WHERE = (iam_probes, iam_probes_sockets)
"""The modules that fill `PROBES`."""
ROOMY = "roomy"
PROFILE_VERBS = ("call_model", "call_tool")
REFUSED = re.compile(r"is not authorized to perform: ([\w:-]+)")


UNSEEN: dict[str, str] = {
    r".*: logs:\w+ on log": "the emulator takes a function's log from its process, not from CloudWatch Logs",
    r".*: kms:\w+ on key": "its tables, streams and buckets do not use their key",
    r"fail_run: sqs:\w+ on undelivered": "Lambda puts undelivered events there by itself, and the emulator does not",
    r"project_stream: kinesis:\w+ on chunks": "the event source reads the stream, in the emulator without any role",
    r"project_stream: s3:PutObject on given up": "Lambda puts given up batches there by itself; the emulator does not",
    r"project_stream: dynamodb:UpdateItem on streams": "only a slow socket is marked, and no socket is slow here",
    r"(?!ws_message|sweep).*: s3:ListBucket on bucket": "without it S3 says 'denied' for 'not there', the emulator not",
}
"""Rights that cannot be missed offline, and why."""


@pytest.fixture(scope="module")
def roles(cloud: CloudForTests) -> Roles:
    return Roles(cloud)


@pytest.fixture(scope="module")
def bench(cloud: CloudForTests) -> Bench:
    return Bench.of(cloud)


def cases() -> Iterator[tuple[str, str]]:
    """(function, probe)."""
    for name, probe in PROBES.items():
        yield probe.verb, name
        if probe.verb in PROFILE_VERBS:
            yield f"{ROOMY}-{probe.verb}", name


def probed(function: str, probe: Probe) -> list[Right]:
    return [Right(function, what, action) for what, action in probe.rights]


# --- everybody -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("credentials", "code"),
    [
        ({"config": Config(signature_version=UNSIGNED)}, "MissingAuthenticationToken"),
        ({"aws_access_key_id": "AKIAIOSFODNN7EXAMPLE", "aws_secret_access_key": "x"}, "UnrecognizedClientException"),
    ],
)
def test_strangers_are_refused(cloud: CloudForTests, credentials: Json, code: str) -> None:
    assert cloud.cloud.auth
    place = {"endpoint_url": cloud.cloud.emulator.url, "region_name": "us-east-1"}
    stranger = boto3.client("dynamodb", **place, **credentials)
    with pytest.raises(ClientError) as refused:
        stranger.list_tables()
    stranger.close()
    assert refused.value.response["Error"]["Code"] in (code, f"{code}Exception")


def test_every_right_has_a_probe(roles: Roles) -> None:
    held = roles.rights()
    used = {right for function, name in cases() for right in probed(function, PROBES[name])}
    unseen = {right for right in held if any(re.fullmatch(pattern, str(right)) for pattern in UNSEEN)}
    assert not (without := sorted(map(str, held - used - unseen))), f"rights that no probe uses: {without}"
    assert not (nowhere := sorted(map(str, used - held))), f"probes of rights that nobody holds: {nowhere}"
    assert not (both := sorted(map(str, used & unseen))), f"these can be seen: {both}"
    for pattern in UNSEEN:
        assert any(re.fullmatch(pattern, str(right)) for right in held), f"nobody holds {pattern!r}"


# --- each right ----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(("function", "name"), list(cases()))
async def test_each_right_is_needed(function: str, name: str, cloud: CloudForTests, roles: Roles, bench: Bench) -> None:
    probe = PROBES[name]
    bench.profile = ROOMY if function.startswith(ROOMY) else "default"
    event = await probe.prepare(bench)
    assert not (refused := await refusals(cloud, function, event)), f"with all rights, {function} is refused {refused}"
    await bench.clean()
    for right in probed(function, probe):
        event = await probe.prepare(bench)
        with roles.without(right):
            refused = await refusals(cloud, function, event)
        await bench.clean()
        assert refused == {right.action}, f"nobody misses {right}: refused was {refused}"


@pytest.mark.slow
@pytest.mark.parametrize("pattern", UNSEEN)
async def test_nobody_misses_what_is_not_seen(pattern: str, cloud: CloudForTests, roles: Roles, bench: Bench) -> None:
    """So that the list is exact: when the emulator learns to look at one of them, it gets a probe."""
    for right in sorted(roles.rights(), key=str):
        if not re.fullmatch(pattern, str(right)) or right.function.startswith(ROOMY):
            continue
        probe = next(probe for probe in PROBES.values() if probe.verb == right.function)
        event = await probe.prepare(bench)
        with roles.without(right):
            assert not await refusals(cloud, right.function, event), f"somebody misses {right}"


async def refusals(cloud: CloudForTests, function: str, event: Json) -> set[str]:
    """The actions that the function was refused in this invocation, as its answer and its log tell."""
    name, before = cloud.cloud.function(function), len(list(cloud.log))
    answer = await asyncio.to_thread(
        cloud.aws("lambda").invoke, FunctionName=name, Qualifier="live", Payload=json.dumps(event)
    )

    def log() -> list[str]:
        return [line["line"] for line in list(cloud.log)[before:] if line["function"] == name]

    until(lambda: any('"Duration"' in line for line in log()), f"last line of {function}'s log")
    told = [answer["Payload"].read().decode(), *log()]
    return {action for text in told for action in REFUSED.findall(text)}
