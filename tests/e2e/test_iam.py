"""No function may do more than its role allows, and every right of every function is needed.

Each right is removed from a deployed role, alone. A short probe (`iam_probes`) then fails and names it. The rights are read
from the synthesised template, and a right without a probe fails `test_every_right_has_a_probe`.
"""

from __future__ import annotations

import asyncio
import base64
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import boto3
import pytest
from botocore import UNSIGNED
from botocore.config import Config
from botocore.exceptions import ClientError
from tests.e2e import iam_probes, iam_probes_fleet, iam_probes_sockets, iam_probes_triggers
from tests.e2e.cloud_executor import configure
from tests.e2e.iam_bench import PROBES, Bench, Probe
from tests.e2e.iam_roles import UNSEEN, Right, Roles, is_unseen
from tests.support.cloud_agents.plans import call, plan, say, use
from tests.support.offline_cloud import STREAMING, CloudForTests, deployed, until

from helix.core.delivery import Position
from helix.infra.definition import DENIED_ATTEMPTS

pytestmark = pytest.mark.skipif(STREAMING != "kinesis", reason="the probes are those of a stage with Kinesis")

Json = dict[str, Any]
WHERE = (iam_probes, iam_probes_sockets, iam_probes_fleet, iam_probes_triggers)
"""The modules that fill `PROBES`."""
ROOMY = "roomy"
AT_ONCE = 4
GRANTING = ("sweep", "govern")
"""Functions that would do each other's work, so their probes never run concurrently."""
PROFILE_VERBS = ("call_model", "call_tool")
REFUSED = re.compile(r"(?:is not authorized to perform:|AWS denies) ([\w:-]+)")


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CloudForTests]:
    """A cloud with triggers, whose functions other stages do not have."""
    context = {"triggers": json.dumps(iam_probes_triggers.TRIGGERS)}
    with deployed(tmp_path_factory.mktemp("rights"), context=context) as made:
        yield made


@pytest.fixture(scope="module")
def roles(cloud: CloudForTests) -> Roles:
    return roles_of(cloud)


def roles_of(cloud: CloudForTests) -> Roles:
    """Prepare the roles for probes."""
    asyncio.run(iam_probes_fleet.limit_agents(Bench.of(cloud, "nobody")))
    roles = Roles(cloud)
    for function in roles.functions:  # refusals are read from its log
        configure(cloud, function, variables={"HELIX_LOG_CONTENT": "1"})
    return roles


def cases() -> Iterator[tuple[str, str]]:
    """Return pairs of a function and a probe."""
    for name, probe in PROBES.items():
        yield probe.verb, name
        if probe.verb in PROFILE_VERBS and "guardrails" not in dict(probe.rights):  # no agent of the profile has one
            yield f"{ROOMY}-{probe.verb}", name


@pytest.fixture(autouse=True)
def no_schedule(cloud: CloudForTests) -> Iterator[None]:
    with without_schedules(cloud):
        yield


@contextmanager
def without_schedules(cloud: CloudForTests) -> Iterator[None]:
    """Disable the schedules. The scheduled `govern` has all its rights, and would do the work that a probe prepared."""
    events, minute = cloud.aws("events"), cloud.cloud.function("govern")
    events.disable_rule(Name=minute)
    try:
        yield
    finally:
        events.enable_rule(Name=minute)


def probed(function: str, probe: Probe) -> list[Right]:
    return [Right(function, what, action) for what, action in probe.rights]


# --- all functions --------------------------------------------------------------------------------------------------------


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
    unseen = {right for right in held if is_unseen(right)}
    assert not (without := sorted(map(str, held - used - unseen))), f"rights that no probe uses: {without}"
    assert not (nowhere := sorted(map(str, used - held))), f"probes of rights that no function has: {nowhere}"
    assert not (both := sorted(map(str, used & unseen))), f"these can be seen: {both}"
    for pattern in UNSEEN:
        assert any(re.fullmatch(pattern, str(right)) for right in held), f"no function has {pattern!r}"


# --- a right is missing --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fails", [True, False], ids=["fail_run may", "fail_run may not"])
async def test_a_run_that_is_denied_an_operation_ends(cloud: CloudForTests, roles: Roles, fails: bool) -> None:
    """`call_tool` may not claim its call, so the run fails. If `fail_run` may not end the run either, the sweep ends it."""
    bench, before = Bench.of(cloud, "denied"), len(list(cloud.log))
    denied = Right("call_tool", "sessions", "dynamodb:PutItem")
    mute = nullcontext() if fails else roles.without(Right("fail_run", "sessions", "dynamodb:PutItem"))
    async with cloud.user("denied") as client:
        with roles.without(denied), mute:
            handle = await client.run("talker", plan(use(call("look", topic="x")), say("Never said.")))
            await asyncio.to_thread(until, lambda: cloud.executions(handle.session_id, status="FAILED"), "failure")
        if not fails:
            await bench.old(Position(handle.session_id, handle.run_id, 1, 1))
            assert not await refusals(cloud, "sweep", {})
        result = await handle.result(30)
    code = "access_denied" if fails else "runtime_crash"
    assert (result.status, result.error_code) == ("failed", code)
    lines = [line for line in list(cloud.log)[before:] if "AWS denies dynamodb:PutItem on" in line["line"]]
    assert all("helix-test-sessions" in line["line"] for line in lines)
    tries = [line["request_id"] for line in lines if line["function"].endswith("-call_tool")]
    assert len(set(tries)) == 1 + DENIED_ATTEMPTS, "the execution repeats it, and then gives up"


# --- each right ----------------------------------------------------------------------------------------------------------


@pytest.mark.timeout(900)
async def test_each_right_is_needed(cloud: CloudForTests, roles: Roles) -> None:
    """Functions are probed concurrently, because they are independent. The rights of one function are probed one after the
    other."""
    turns, granting = asyncio.Semaphore(AT_ONCE), asyncio.Lock()

    async def try_all(function: str) -> list[str]:
        async with granting if function in GRANTING else nullcontext(), turns:
            bench = Bench.of(cloud, function)
            probes = [PROBES[name] for of, name in cases() if of == function]
            # A sweep that `govern` starts would execute the runs that the next probe prepares.
            with roles.without(*roles.rights_of("sweep")) if function == "govern" else nullcontext():
                return [line for probe in probes for line in await missed(cloud, roles, bench, probe)]

    told = await asyncio.gather(*(try_all(function) for function in roles.functions))
    wrong = [line for lines in told for line in lines]
    assert not wrong, "\n".join(wrong)


TRIES = 2
"""Attempts for `govern`, because runs of `crew` that still work may leave it nothing to do."""


async def missed(cloud: CloudForTests, roles: Roles, bench: Bench, probe: Probe) -> list[str]:
    """Return the problems: a refusal with all rights, or no refusal without one of them."""
    wrong = []
    if refused := await refusals(cloud, bench.function, await probe.prepare(bench)):
        wrong.append(f"with all its rights, {bench.function} is refused {refused} by {probe.prepare.__name__}")
    await bench.clean()
    for right in probed(bench.function, probe):
        for _ in range(TRIES):
            event = await probe.prepare(bench)
            with roles.without(right):
                refused = await refusals(cloud, bench.function, event)
            await bench.clean()
            if refused:
                break
        if refused != {right.action}:
            wrong.append(f"nobody misses {right}: without it, refused was {refused} by {probe.prepare.__name__}")
    return wrong


@pytest.mark.timeout(900)
async def test_nobody_misses_what_is_not_seen(cloud: CloudForTests, roles: Roles) -> None:
    """This keeps the list exact. When the emulator learns to check one of these rights, the right needs a probe."""
    turns = asyncio.Semaphore(AT_ONCE)

    async def try_all(function: str) -> list[str]:
        rights = [right for right in roles.rights_of(function) if is_unseen(right)]
        async with turns:
            bench = Bench.of(cloud, function)
            event = await next(probe for probe in PROBES.values() if probe.verb == function).prepare(bench)
            with roles.without(*rights):
                refused = await refusals(cloud, function, event)
            await bench.clean()
        return [f"without {', '.join(map(str, rights))}, {function} is refused {refused}"] if refused else []

    told = await asyncio.gather(*(try_all(name) for name in roles.functions if not name.startswith(ROOMY)))
    wrong = [line for lines in told for line in lines]
    assert not wrong, "\n".join(wrong)


async def refusals(cloud: CloudForTests, function: str, event: Json) -> set[str]:
    """Return the actions that the function was denied in this invocation, read from its answer and its log."""
    name, before = cloud.cloud.function(function), len(list(cloud.log))
    asked = {"FunctionName": name, "Qualifier": "live", "LogType": "Tail", "Payload": json.dumps(event)}
    answer = await asyncio.to_thread(cloud.aws("lambda").invoke, **asked)
    last = base64.b64decode(answer["LogResult"]).decode(errors="replace").splitlines()[-1]

    def request() -> str | None:
        """Return the invocation's request id. The log is longer than the part in the answer."""
        lines = [line for line in list(cloud.log)[before:] if line["function"] == name and line["line"].endswith(last)]
        return lines[0]["request_id"] if lines else None

    ident = await asyncio.to_thread(until, request, f"last line of {function}'s log")
    told = [answer["Payload"].read().decode()]
    told += [line["line"] for line in list(cloud.log)[before:] if line["request_id"] == ident]
    return {action for text in told for action in REFUSED.findall(text)}
