"""The checks of `helix check --stage`, one function each.

Law: a check asserts what a user would see through the stage's own interfaces: its socket, its alarms and its log. It waits
at most `PATIENCE_S` for a state. If that times out, it reports the state that it was waiting for.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self

from helix.adapters.system import SystemClock, SystemIds
from helix.cli.cloud.stack import outputs_of
from helix.client import ClientSettings, HelixClient
from helix.client.remote_handle import RemoteHandle
from helix.core.errors import HelixError, SessionNotFoundError
from helix.fleet.lambdas import alarm_key
from helix.gateway.authoriser import ApiKeys, Principal
from helix.runtime.check_agent import CALLS, Script
from helix.runtime.cloud import CHECK_AGENT
from helix.runtime.tables import open_stage

PATIENCE_S = 120.0
LOOK_S = 0.5
QUIET_S = 2.0
"""The number of seconds without a chunk after which the client polls the service for the run's result."""
KEY_S = 3600.0
USER = "helix-check"
MESSAGE_CHARS = 40_000
ALARMS = ("govern-fails", "messages-throttled", "events-undelivered")
"""The candidate alarms. The check sets one that is not already in the `ALARM` state."""
REASON = "helix check: a test, nothing is wrong"
Result = Literal["ok", "failed", "not run"]


class NotRunError(Exception):
    """The check does not apply to this stage. The message says why."""


class CheckError(Exception):
    """The check has failed. The message says what is wrong."""


@dataclass(frozen=True, slots=True)
class Finding:
    """The outcome of a check."""

    name: str
    """The check's name in the report."""
    result: Result
    """Whether the check succeeded or failed. `not run` means that it does not apply to this stage."""
    seconds: float
    """The duration of the check."""
    detail: str
    """The reason for a failure, or a remark. It may be empty."""


@dataclass(frozen=True, slots=True)
class StageClients:
    """A stage as described by CloudFormation, with AWS clients."""

    stage: str
    """The name of the stage."""
    client: Callable[[str], Any]
    """A function that creates a boto3 client for an AWS service."""
    outputs: Mapping[str, str]
    """The outputs of the stage's stack."""
    auth: str
    """The setting `auth`: the kinds of credentials that the stage accepts, or `none`."""
    runtime: str
    """The runtime and architecture of the functions, such as `python3.13 arm64`."""

    @classmethod
    def of(cls, client: Callable[[str], Any], stage: str) -> Self:
        """Look up a stage. Raises boto3's errors if it does not exist."""
        found = client("cloudformation").describe_stacks(StackName=f"helix-{stage}")["Stacks"][0]
        function = client("lambda").get_function_configuration(FunctionName=f"helix-{stage}-ws_authorize")
        auth = function["Environment"]["Variables"].get("HELIX_AUTH", "keys")
        return cls(stage, client, outputs_of(found), auth, f"{function['Runtime']} {function['Architectures'][0]}")

    @property
    def stack(self) -> str:
        return f"helix-{self.stage}"

    @property
    def region(self) -> str:
        return self.outputs["Region"]


@dataclass(frozen=True, slots=True)
class SocketAccess:
    """The URL and key that the checks use to open the stage's socket."""

    url: str | None = None
    """The WebSocket URL. None: the one in the stage's outputs."""
    key: str | None = None
    """The API key or token. None: a new key, which is revoked afterwards."""


AS_DEPLOYED = SocketAccess()


class Probe:
    """The connection and the sessions that all checks in a report share. Exiting the context deletes the sessions and
    revokes the key if it created one."""

    def __init__(self, clients: StageClients, access: SocketAccess) -> None:
        self.at, self.clock = clients, SystemClock()
        self.store = open_stage(clients.client, clients.stack)
        self.sessions: list[str] = []
        self._keys, self._key, self._key_id = ApiKeys(self.store, self.clock), access.key, ""
        self._url = access.url or clients.outputs["Url"]
        self._client: HelixClient | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._client is not None:
            for session in self.sessions:
                with contextlib.suppress(HelixError, TimeoutError):
                    await self._client.delete(session)
            await self._client.close()
        if self._key_id:
            await self._keys.revoke(self._key_id)
        await self.store.close()

    async def run_check(self, name: str, look: Callable[[Probe], Awaitable[str]]) -> Finding:
        """Execute a check and return its outcome. An error becomes a failed finding."""
        began = self.clock.now()
        result: Result
        try:
            async with asyncio.timeout(PATIENCE_S):
                result, detail = "ok", await look(self)
        except NotRunError as error:
            result, detail = "not run", str(error)
        except TimeoutError as error:  # a request's timeout names the request
            result, detail = "failed", str(error) or f"nothing came within {PATIENCE_S:.0f} s"
        except Exception as error:
            result, detail = "failed", f"{type(error).__name__}: {error}"
        return Finding(name, result, self.clock.now() - began, detail)

    async def aws(self, service: str, verb: str, **given: Any) -> Any:
        """Call an AWS API directly, without the socket."""
        return await asyncio.to_thread(getattr(self.at.client(service), verb), **given)

    async def wait_until(self, look: Callable[[], Awaitable[Any]]) -> Any:
        while not (found := await look()):
            await self.clock.sleep(LOOK_S)
        return found

    # --- the socket ---------------------------------------------------------------------------------------------------

    async def connect(self) -> None:
        if self._key is None and "keys" in self.at.auth:
            expires = self.clock.now() + KEY_S
            self._key = await self._keys.create(SystemIds(), Principal(USER), name="helix check", expires_at=expires)
            self._key_id = self._key.split("_")[1]
        if self._key is None and self.at.auth != "none":
            raise NotRunError("the stage accepts tokens only: give one with --key")
        settings = ClientSettings(quiet_s=QUIET_S, request_s=PATIENCE_S)
        self._client = await HelixClient.connect(self._url, self._key, settings=settings)

    @property
    def key(self) -> str | None:
        """The key of the open connection."""
        return self._key

    @property
    def client(self) -> HelixClient:
        if self._client is None:
            raise NotRunError("there is no connection")
        return self._client

    async def begin(self, script: Script, more: str = "") -> RemoteHandle:
        handle = await self.client.run(CHECK_AGENT, f"{script} {more}".strip())
        self.sessions.append(handle.session_id)
        return handle

    async def start_at_a_tool(self, script: Script) -> RemoteHandle:
        """Start a run, and return its handle once it is executing a tool."""
        handle = await self.begin(script)
        async for chunk in await handle.stream():
            if chunk.type == "tool_start":
                return handle
        raise CheckError(f"the run is {(await handle.result()).status}, and no tool was started")


async def alarm(probe: Probe) -> str:
    """Set an alarm, and verify that it is published to the encrypted topic, received by `govern` and recorded."""
    names = [f"{probe.at.stack}-{name}" for name in ALARMS]
    found: list[dict[str, Any]] = (await probe.aws("cloudwatch", "describe_alarms", AlarmNames=names))["MetricAlarms"]
    if not found:
        raise NotRunError("the stage has no such alarms: the setting alarm_email is not set")
    name = next((str(a["AlarmName"]) for a in found if a["StateValue"] != "ALARM"), None)
    if name is None:
        raise NotRunError(f"all of {', '.join(ALARMS)} sound already")
    try:
        async with asyncio.timeout(PATIENCE_S - 10):
            await set_off_alarm(probe, name)
    except TimeoutError:
        given = {"AlarmName": name, "HistoryItemType": "Action", "MaxRecords": 1}
        history = (await probe.aws("cloudwatch", "describe_alarm_history", **given))["AlarmHistoryItems"]
        said = history[0]["HistorySummary"] if history else "its history shows no action"
        raise CheckError(f"govern has not received alarm {name}: {said}") from None
    return name


async def set_off_alarm(probe: Probe, name: str) -> None:
    """Set the alarm with this name, and wait until `govern` has recorded it."""
    (before,) = await probe.store.get([alarm_key(name)])
    await probe.aws("cloudwatch", "set_alarm_state", AlarmName=name, StateValue="ALARM", StateReason=REASON)

    async def heard() -> bool:
        (row,) = await probe.store.get([alarm_key(name)])
        return row is not None and row != before

    await probe.wait_until(heard)


async def log(probe: Probe) -> str:
    """Look for a new log line in a log group, which must be encrypted if the stage has a key."""
    group, since = f"/aws/lambda/{probe.at.stack}-govern", int((probe.clock.now() - PATIENCE_S) * 1000)
    found = (await probe.aws("logs", "describe_log_groups", logGroupNamePrefix=group))["logGroups"]
    mine = next((one for one in found if one["logGroupName"] == group), None)
    if mine is None:
        raise CheckError(f"log group {group} is missing")
    if "MetricsSecretArn" in probe.at.outputs and not mine.get("kmsKeyId"):
        raise CheckError(f"log group {group} has no key")

    async def lines() -> Any:
        return (await probe.aws("logs", "filter_log_events", logGroupName=group, startTime=since, limit=1))["events"]

    await probe.wait_until(lines)
    return ""


async def connection(probe: Probe) -> str:
    await probe.connect()
    await probe.client.ping()
    return ""


async def message(probe: Probe) -> str:
    """Send a message that needs several WebSocket frames, and receive it back."""
    handle = await probe.begin("message", "x" * MESSAGE_CHARS)
    result = await handle.result()
    version, _, length = (result.text or "").partition(" ")
    expected = len("message ") + MESSAGE_CHARS
    if length != str(expected):
        raise CheckError(f"{result.status}: {length or 0} of {expected} characters arrived: {result.error}")
    return f"deployed version {version}"


async def calls(probe: Probe) -> str:
    """Execute all calls of one step, each in its own invocation."""
    result = await (await probe.begin("calls")).result()
    if result.text != str(CALLS):
        raise CheckError(f"{result.status}: {result.text} of {CALLS} calls succeeded: {result.error}")
    return ""


async def interrupt(probe: Probe) -> str:
    handle = await probe.start_at_a_tool("pauses")
    await handle.interrupt("helix check")
    result = await handle.result()
    if result.status != "interrupted":
        raise CheckError(f"the run is {result.status} after {result.steps} steps")
    return ""


async def stop(probe: Probe) -> str:
    """Stop the Step Functions execution of a waiting run, and verify that its event reaches `fail_run`."""
    handle = await probe.start_at_a_tool("wait")
    machine = probe.at.outputs["MachinePattern"].replace("{profile}", "default")
    execution = f"{machine.replace(':stateMachine:', ':execution:')}:{handle.run_id}"
    await probe.aws("stepfunctions", "stop_execution", executionArn=execution, error="HelixCheck", cause=REASON)
    result = await handle.result()
    if (result.status, result.error_code) != ("failed", "runtime_crash"):
        raise CheckError(f"the run is {result.status} ({result.error_code})")
    return ""


async def delete(probe: Probe) -> str:
    """Delete every session of this report."""
    client = probe.client
    while probe.sessions:
        session = probe.sessions[-1]
        await client.delete(session)
        probe.sessions.pop()
        with contextlib.suppress(SessionNotFoundError):
            await client.get_session(session)
            raise CheckError(f"session {session} is still there")
    return ""


CHECKS: Mapping[str, Callable[[Probe], Awaitable[str]]] = {
    "an alarm is set and received": alarm,
    "a log line in an encrypted group": log,
    "a connection": connection,
    "a message of 40 KB": message,
    "a step with 40 calls": calls,
    "an interrupt": interrupt,
    "a waiting run whose execution is stopped": stop,
    "deleted sessions": delete,
}
