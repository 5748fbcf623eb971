"""The offline cloud for tests: the project as it deploys, with the agents of `cloud_agents/` instead of its own.

`tests/e2e/conftest.py` makes one for a whole test session, with IAM enforced, state in a temporary folder, and free ports.
Sessions and users separate tests: give each test its own user (`cloud.user(...)`), which cannot see another user's
sessions.

More agents go into `tests/support/cloud_agents/`. A test that needs its own deployment (other context, other agents, no
`auth`, another edition of `changing`) makes it with `deployed(folder, context={...}, paths=[...], variables={...})`, in
about 3 s once its template exists. `paths` are on the workers' path, so their modules need no layer, and `agents` in the
context names them. `variables` reach every worker, except `HELIX_...` and `AWS_...`, which belong to the deployment.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from tests.support.operations import check_operations, recording

from helix.client import HelixClient
from helix.local.cloud import OfflineCloud

ROOT = Path(__file__).parents[2]
SUPPORT = Path(__file__).parent
CRASHES = "CLOUD_AGENTS_CRASHES"
STREAMING = os.environ.get("CLOUD_STREAMING", "kinesis")
"""The setting `streaming` of every stage. `CLOUD_STREAMING=direct pytest tests/e2e` plays all tests without Kinesis."""
PATIENCE_S = 60.0
SAVED_S = 300.0
PRIVATE = re.compile(r"^(OPENAI|ANTHROPIC|GEMINI|GOOGLE|AZURE|AWS|HELIX|CLOUD_AGENTS)_")
T = TypeVar("T")


class Log:
    """The lines that the functions have logged."""

    def __init__(self) -> None:
        self._lock, self._lines = threading.Lock(), list[dict[str, Any]]()

    def hear(self, line: dict[str, Any]) -> None:
        with self._lock:
            self._lines.append(line)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        with self._lock:
            return iter(list(self._lines))

    def of(self, verb: str) -> list[str]:
        """Return the lines of one function, or of all functions with this verb in other profiles."""
        return [line["line"] for line in self if line["function"].endswith(f"-{verb}")]

    @property
    def text(self) -> str:
        return "\n".join(f"{line['function']}: {line['line']}" for line in self)


class CloudForTests:
    """A cloud for tests. `cloud` is the `OfflineCloud`, for what is not here: clients, names, `tick`, `kill_worker`,
    `retire_workers`, `update`."""

    def __init__(self, cloud: OfflineCloud) -> None:
        self.cloud, self.log = cloud, Log()
        self._keys: dict[tuple[str, str | None], str] = {}
        self._ended: dict[str, dict[str, Any]] = {}
        cloud.listen(self.log.hear)

    @property
    def crashes(self) -> Path:
        """The folder of `cloud_agents.crashes`."""
        return self.cloud.folder / "crashes"

    @property
    def url(self) -> str:
        return self.cloud.url

    def key(self, user: str = "alice", tenant: str | None = None) -> str:
        """Return an API key of that user, the same one each time."""
        if (user, tenant) not in self._keys:
            self._keys[user, tenant] = self.cloud.create_key(user, tenant)
        return self._keys[user, tenant]

    def user(self, user: str = "alice", tenant: str | None = None, **options: Any) -> HelixClient:
        """Return a client to be opened: `async with cloud.user("alice") as client: ...`."""
        return HelixClient(self.url, self.key(user, tenant), **options)

    def aws(self, service: str) -> Any:
        """Return a client of boto3, as the account's administrator."""
        return self.cloud.client(service)

    # --- executions ------------------------------------------------------------------------------------------------------

    def executions(
        self, session_id: str = "", *, status: str | None = None, profile: str = "default"
    ) -> list[dict[str, Any]]:
        """Return descriptions of a session's executions (or of all), oldest first."""
        only = {"statusFilter": status} if status else {}
        pages = self.aws("stepfunctions").get_paginator("list_executions")
        listed = [
            e
            for page in pages.paginate(stateMachineArn=self.cloud.machine(profile), **only)
            for e in page["executions"]
        ]
        described = [self.describe(e["executionArn"]) for e in listed]
        return sorted((d for d in described if session_id in d["input"]), key=lambda d: d["startDate"])

    def describe(self, arn: str) -> dict[str, Any]:
        """Describe an execution. One that has ended is read once, because tests look at all of them many times a second."""
        if (described := self._ended.get(arn)) is None:
            described = self.aws("stepfunctions").describe_execution(executionArn=arn)
            if described["status"] != "RUNNING":
                self._ended[arn] = described
        return described

    def stop(self, arn: str, error: str = "StoppedByTest") -> None:
        self.aws("stepfunctions").stop_execution(executionArn=arn, error=error, cause="the test stopped it")

    def history(self, arn: str) -> list[dict[str, Any]]:
        pages = self.aws("stepfunctions").get_paginator("get_execution_history").paginate(executionArn=arn)
        return [event for page in pages for event in page["events"]]

    def transitions(self, arn: str) -> list[str]:
        """Return the names of the states that the execution has entered, in order. States inside of a Map are not
        included."""
        entered = (event.get("stateEnteredEventDetails") for event in self.history(arn))
        return [details["name"] for details in entered if details]

    # --- rows ------------------------------------------------------------------------------------------------------------

    def rows(self, table: str, partition: str | None = None) -> list[dict[str, Any]]:
        """Return raw items of `sessions`, `streams` or `control`, of one partition or of the whole table."""
        name, dynamodb = self.cloud.table(table), self.aws("dynamodb")
        if partition is None:
            pages = dynamodb.get_paginator("scan").paginate(TableName=name, ConsistentRead=True)
        else:
            asked = {"KeyConditionExpression": "pk = :p", "ExpressionAttributeValues": {":p": {"S": partition}}}
            pages = dynamodb.get_paginator("query").paginate(TableName=name, ConsistentRead=True, **asked)
        return [item for page in pages for item in page["Items"]]


def until(condition: Callable[[], T], what: str, *, patience_s: float = PATIENCE_S) -> T:
    """Return the first true value of `condition`. It is polled, since the cloud sends no notifications. Fail after
    `patience_s`."""
    ends = time.monotonic() + patience_s
    while not (value := condition()):
        assert time.monotonic() < ends, f"after {patience_s:.0f} s there is still no {what}"
        time.sleep(0.05)
    return value


@contextmanager
def deployed(
    folder: Path,
    *,
    context: Mapping[str, str] | None = None,
    paths: Sequence[Path] = (SUPPORT,),
    variables: Mapping[str, str] | None = None,
    root: Path = ROOT,
    wait_scale: float = 0.1,
    **options: Any,
) -> Iterator[CloudForTests]:
    """Deploy a cloud with the agents of the tests. Retry intervals and waits of state machines take a tenth of their time.
    Its state is saved at its end and rarely before, because each save costs CPU time. It fails at its end if a function
    performed an operation to which its role has no right, because the function may have hidden the denial."""
    given = {"stage": "test", "agents": "cloud_agents", "model": "import:cloud_agents:model"}
    given |= {"provision_agents": "true", "streaming": STREAMING, **(context or {})}
    environment = {name: value for name, value in os.environ.items() if not PRIVATE.match(name)}
    (folder / "crashes").mkdir(parents=True, exist_ok=True)
    kept = {"assemblies": ROOT / "build" / "assemblies", "environment": environment, "saved_s": SAVED_S}
    kept["variables"] = {CRASHES: str(folder / "crashes"), **recording(folder), **(variables or {})}
    cloud = OfflineCloud(root, folder=folder, context=given, paths=paths, wait_scale=wait_scale, **{**kept, **options})
    made = CloudForTests(cloud)
    with cloud:
        yield made
        check_operations(made)
