"""The offline cloud: the synthesised app, deployed into an emulator on this machine.

Law: it runs the same template, roles and packages that would be deployed to AWS. It calls nothing outside this machine.
Only the files in `folder` outlive the process, and the next start continues from them.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Self

import boto3
from botocore.config import Config

from helix.adapters.system import SystemClock, SystemIds
from helix.gateway.authoriser import ApiKeys, Principal
from helix.local.emulator import ACCOUNT, SAVED_S
from helix.local.metrics import MetricForwarder
from helix.local.process import Emulator, Listener
from helix.local.project import Project, read_assembly
from helix.local.settings import machine_variables, store_secret, store_secrets
from helix.local.stacks import Account, deploy
from helix.runtime.project import read_project
from helix.runtime.tables import open_tables

REGION = "us-east-1"
ALIAS = "live"
POLL_S = 0.05
WARMED = ("ws_authorize", "ws_connect", "ws_message", "call_model", "project_stream", "call_tool", "finish_run")
"""The functions that a client's first message needs, in the order in which they are used."""


class OfflineCloud:
    """An offline cloud.

    root: the project's folder. folder: the folder for its state, by default `.helix` in the root. assemblies: the folder
    for syntheses, by default in `folder`. port: 0 for a free one. auth: whether IAM is enforced. context: the CDK context,
    as given to `-c`. paths: more folders with modules for agents and functions. variables: environment variables for all
    functions, in addition to those of the template and of the machine. environment: this process's environment, which
    provides the values of secrets. model_keys: the variables that model calls need, for `call_model` only. wait_scale: a
    factor for the waits and retry intervals of state machines. hosts: the names by which containers reach this machine.
    saved_s: the time between two saves of the state, if it has changed.
    """

    def __init__(
        self,
        root: Path,
        *,
        folder: Path | None = None,
        assemblies: Path | None = None,
        port: int = 0,
        auth: bool = True,
        context: Mapping[str, str] | None = None,
        paths: Sequence[Path] = (),
        variables: Mapping[str, str] | None = None,
        wait_scale: float = 1.0,
        hosts: Sequence[str] = (),
        environment: Mapping[str, str] = os.environ,
        model_keys: Mapping[str, str] | None = None,
        saved_s: float = SAVED_S,
    ) -> None:
        self.root, self.folder = root.resolve(), (folder or root / ".helix").resolve()
        self.context = {"offline": "true", **(context or {})}
        self.paths = tuple(path.resolve() for path in paths)
        self.project = Project(self.root, assemblies or self.folder / "assemblies", self.paths, environment)
        path = {"PYTHONPATH": self.project.environment().get("PYTHONPATH", "")}
        inside = {**machine_variables(environment), **(variables or {}), **path}
        self._values, self.model_keys = environment, dict(model_keys or {})
        options = {"port": port, "auth": auth, "wait_scale": wait_scale, "hosts": hosts, "saved_s": saved_s}
        self.emulator = Emulator(self.folder, environment=inside, **options)  # type: ignore[arg-type]
        self.auth = auth
        self.agents: tuple[str, ...] = ()
        self.outputs: dict[str, str] = {}
        self._clock = SystemClock()
        session = boto3.Session(**self.emulator.credentials.options)
        self.account = Account(session, self.emulator.url, ACCOUNT, REGION)
        self._clients: dict[str, Any] = {}
        self._metrics = MetricForwarder(lambda: self.client("cloudwatch"))

    # --- life cycle ---------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Synthesise the app (or use a stored synthesis), start the emulator, and deploy. Raises `OfflineError` and its
        subclasses."""
        self.emulator.listen(self._metrics.forward_line)
        self.emulator.start()  # first, because this detects immediately that a port is in use
        try:
            self.update()
        except BaseException:
            self.close()
            raise

    def update(self) -> None:
        """Redeploy the project in its current state, secrets first. Sessions and runs continue."""
        declared = read_project(self.root).tools
        store_secrets(self.client, declared.places(self.stage), self._values)
        if self.model_keys:
            name = f"helix/{self.stage}/model-keys"
            store_secret(self.client("secretsmanager"), name, json.dumps(self.model_keys, sort_keys=True))
            self.context["model_secrets"] = name
        assembly = read_assembly(self.project.synthesise(self.context)).of_stage(self.stage)
        outputs = deploy(self.account, assembly)
        self.outputs = outputs[f"helix-{self.stage}"]

    def close(self) -> None:
        self._metrics.close()
        for client in self._clients.values():
            client.close()
        self._clients.clear()
        self.emulator.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- resources ----------------------------------------------------------------------------------------------------

    @property
    def stage(self) -> str:
        return self.context.get("stage", "dev")

    @property
    def url(self) -> str:
        """The address for clients: `ws://127.0.0.1:PORT/...`."""
        return self.outputs["Url"]

    @property
    def health_url(self) -> str:
        """The address of the stage's health page: `http://127.0.0.1:PORT/.../health`; /ready, /live and /metrics are next
        to it."""
        return self.outputs["HealthUrl"]

    @property
    def http_url(self) -> str | None:
        """The address where a trigger with `http = true` receives requests. None without such a trigger."""
        return self.outputs.get("HttpUrl")

    def client(self, service: str) -> Any:
        """Return a boto3 client with the permissions of the account's administrator. Clients are cached, and threads may
        share them."""
        if service not in self._clients:
            retries: Any = {"mode": "standard", "total_max_attempts": 3}
            signature = "s3v4" if service == "s3" else None  # `S3Blobs` needs it
            config = Config(retries=retries, max_pool_connections=32, signature_version=signature)
            self._clients[service] = self.account.client(service, config=config)
        return self._clients[service]

    def table(self, name: str) -> str:
        """Return the full name of the table `sessions`, `streams` or `control`."""
        return f"helix-{self.stage}-{name}"

    def function(self, verb: str) -> str:
        return f"helix-{self.stage}-{verb}"

    def functions(self) -> list[str]:
        """Return the names of the stage's functions. The account may contain other stages."""
        pages = self.client("lambda").get_paginator("list_functions").paginate()
        names = [f["FunctionName"] for page in pages for f in page["Functions"]]
        return [name for name in names if name.startswith(self.function(""))]

    def machine(self, profile: str = "default") -> str:
        return self.outputs["MachinePattern"].format(profile=profile)

    def machines(self) -> list[str]:
        """Return the ARNs of the stage's state machines."""
        pages = self.client("stepfunctions").get_paginator("list_state_machines").paginate()
        listed = [m for page in pages for m in page["stateMachines"]]
        return [m["stateMachineArn"] for m in listed if m["name"].startswith(self.function(""))]

    def knows_operator(self, key: str) -> bool:
        """Return whether the key has operator permissions."""
        found = self._with_api_keys(lambda keys: keys.verify(key))
        return found is not None and found.operator

    def create_key(self, user: str, tenant: str | None = None, *, name: str = "", operator: bool = False) -> str:
        """Create an API key for the user and return it. It cannot be retrieved later."""
        principal = Principal(user, tenant)
        return str(self._with_api_keys(lambda keys: keys.create(SystemIds(), principal, name=name, operator=operator)))

    def _with_api_keys(self, act: Callable[[ApiKeys], Coroutine[Any, Any, Any]]) -> Any:
        keys = ApiKeys(open_tables(self.client("dynamodb"), {"control": self.table("control")}), self._clock)
        with ThreadPoolExecutor(1) as aside:  # the caller may be inside an event loop
            return aside.submit(asyncio.run, act(keys)).result()

    # --- simulated events ---------------------------------------------------------------------------------------------

    def listen(self, listener: Listener) -> None:
        """Call the listener with each line that a function logs, as it is written, from a separate thread."""
        self.emulator.listen(listener)

    def tick(self) -> int:
        """Run all schedules now, and return their number."""
        return int(self.emulator.ask("tick"))

    def kill_worker(self, verb: str) -> int:
        """Send SIGKILL to the busy workers of a function, and return their number."""
        return int(self.emulator.ask("kill", function=self.function(verb)))

    def retire_workers(self) -> None:
        """Make the next invocations cold starts, which load the current code in `paths`."""
        self.emulator.ask("retire")

    def warm(self) -> None:
        """Start workers for the functions that a client's first message needs."""
        names = [self.function(verb) for verb in WARMED]
        self.emulator.ask("warm", account=ACCOUNT, region=REGION, functions=names, qualifier=ALIAS)

    def save(self) -> bool:
        """Write the state to disk now, instead of within `saved_s`. Returns False if it could not be written."""
        return bool(self.emulator.ask("save"))

    def wait_until_quiet(self, seconds: float) -> bool:
        """Wait up to `seconds` until no execution is running. Returns False if one still is."""
        client, ends = self.client("stepfunctions"), self._clock.now() + seconds
        machines = self.machines()
        while any(client.list_executions(stateMachineArn=m, statusFilter="RUNNING")["executions"] for m in machines):
            if self._clock.now() > ends:
                return False
            time.sleep(POLL_S)
        return True

    def check_code(self) -> dict[str, Any]:
        """Return the result of `helix.local.code_check` for the project's current code."""
        modules = self.context.get("agents") or self.project.modules()
        done = subprocess.run(
            [sys.executable, "-m", "helix.local.code_check", modules],
            cwd=self.root,
            env=self.project.environment(),
            capture_output=True,
            text=True,
            check=False,
        )
        try:
            looked: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
        except (ValueError, IndexError):
            return {"error": done.stderr.strip()[-2000:] or f"the check ended with {done.returncode}"}
        self.agents = tuple(looked.get("agents", ()))
        return looked
