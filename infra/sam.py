"""A stage for `sam local`: the app in an emulator that containers can reach, and rows for the events in `events/`.

    python -m helix.infra.sam [-c KEY=VALUE ...] [--port 4577]

Law: it listens only on loopback and on the container bridge. After it exits, only its syntheses and two files for sam
remain: the functions' environment variables and the credentials. Its schedule is disabled, so the runs in the sample events
wait until a function is invoked.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from helix.adapters.system import SystemClock
from helix.core.agents import AnyAgent
from helix.core.registry import default_registry
from helix.infra.agent_profiles import deployed_agents
from helix.infra.bridge import BridgeError, bridge_address, forward_bridge
from helix.infra.config import Settings, SettingsError, pairs, read_settings
from helix.infra.packages import LockError
from helix.infra.samples import write_samples
from helix.local.cloud import REGION, OfflineCloud
from helix.local.credentials import write_variables
from helix.local.endpoint import ENDPOINT
from helix.local.process import OfflineError
from helix.runtime.project import HelixProject, NoProjectError, ProjectError, find_project, read_project

PORT = 4577
HOST = "host.docker.internal"
"""The name of this machine in containers."""
VARIABLES = "build/sam/env.json"
CREDENTIALS = "build/sam/credentials"
"""The file of shell variables with credentials. sam passes the shell's credentials to functions, and asks STS whose they
are."""
SCHEDULE = "govern"
KNOWN = ("call_model", "govern", "health")
"""The functions whose environment variables are collected. They do not include variables of triggers, the console and
tools' secrets."""
OWN = "POWERTOOLS_"
"""The prefix of variables that are left out, because they differ from function to function."""


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m helix.infra.sam", description="A stage for `sam local`.")
    parser.add_argument("-c", "--context", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--port", type=int, default=PORT, help=f"{PORT} by default")
    given = parser.parse_args(arguments)
    begun = SystemClock().now()
    try:
        address = bridge_address()
        project = read_project(find_project(Path.cwd()))
        settings = {key: str(value) for key, value in project.context.items() if key in Settings.model_fields}
        context = {**settings, **pairs(given.context)}
        agent = _first_agent(read_settings({**project.settings(context.get("stage", "dev")), **context}), project)
        with tempfile.TemporaryDirectory(prefix="helix-sam-") as folder:
            retained = project.root / ".helix" / "assemblies"
            options = {"port": given.port, "context": context, "hosts": (HOST, address)}
            cloud = OfflineCloud(project.root, folder=Path(folder), assemblies=retained, **options)
            with cloud:
                asyncio.run(_serve(cloud, address, agent, begun))
    except (BridgeError, LockError, NoProjectError, OfflineError, ProjectError, SettingsError) as error:
        sys.exit(f"helix.infra.sam: {error}")


async def _serve(cloud: OfflineCloud, address: str, agent: AnyAgent, begun: float) -> None:
    """Serve until Ctrl-C or SIGTERM. Raises `OfflineError` if the emulator ends."""
    ended = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    port = cloud.emulator.port
    async with forward_bridge(address, port) as carried:
        cloud.client("events").disable_rule(Name=cloud.function(SCHEDULE))
        await write_samples(cloud, cloud.root / "events", agent)
        file = cloud.root / VARIABLES
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps({"Parameters": variables(cloud)}, indent=2) + "\n", encoding="utf-8")
        local = {"AWS_DEFAULT_REGION": REGION, "AWS_ENDPOINT_URL_STS": cloud.emulator.url}
        own = {**cloud.emulator.credentials.variables, **local}
        write_variables(cloud.root / CREDENTIALS, own)
        rows = {
            "endpoint": f"http://{HOST}:{port}, for containers" + (f" at {address}" if carried else ""),
            "variables": VARIABLES,
            "account": f"source {CREDENTIALS}",
            "agent": agent.name,
            "sockets": cloud.url,
        }
        seconds = SystemClock().now() - begun
        _say(f"A stage for sam local, ready in {seconds:.1f} s. Ctrl-C stops it and deletes its rows.\n")
        for name, value in rows.items():
            _say(f"  {name:<11}{value}")
        while not ended.is_set():
            if not cloud.emulator.alive:
                raise OfflineError("the emulator has ended")
            try:
                await asyncio.wait_for(ended.wait(), 1)
            except TimeoutError:
                continue


def variables(cloud: OfflineCloud) -> Mapping[str, str]:
    """Return the variables of the deployed stage's functions, with addresses that a container can reach."""
    known: dict[str, str] = {}
    for verb in KNOWN:
        deployed = cloud.client("lambda").get_function_configuration(FunctionName=cloud.function(verb))
        known |= deployed["Environment"]["Variables"]
    endpoint = f"http://{HOST}:{cloud.emulator.port}"
    _, _, path = cloud.url.removeprefix("ws://").partition("/")
    shared = {name: value for name, value in known.items() if not name.startswith(OWN)}
    return {**shared, "HELIX_SOCKETS": f"{endpoint}/{path}", ENDPOINT: endpoint}


def _first_agent(settings: Settings, project: HelixProject) -> AnyAgent:
    """Return the agent of the sample runs, the first one registered. Raises `SettingsError` without agents."""
    list(deployed_agents(settings, project))
    names = default_registry.registered_types()
    if not names:
        raise SettingsError(f"no agent is registered by {settings.agents!r}")
    return default_registry.resolve(next(iter(names)))


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
