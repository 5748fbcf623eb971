"""`helix dev`: run the offline cloud in a terminal and show its traces, until Ctrl-C.

Law: Ctrl-C and SIGTERM shut it down cleanly at any moment. If it cannot start, one line says why. Files with keys are never
readable by anyone but their owner. If the user has configured an endpoint for traces, they are sent there and not shown
here.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shlex
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from helix._private_files import STATE, make_folder
from helix.adapters.system import SystemClock
from helix.cli.cloud.images import describe_substitute
from helix.cli.options import Context, Model, Project
from helix.cli.output import RefusedError, say, write, write_json
from helix.cli.view.base import command, model_in_words
from helix.console.server import ConsoleServer, Service
from helix.local.cloud import REGION, OfflineCloud
from helix.local.console import Console
from helix.local.credentials import ENV_FILE, write_private, write_variables
from helix.local.endpoint import ENDPOINT as AWS_ENDPOINT
from helix.local.process import OfflineError
from helix.local.reload import Reloaded, Reloader, watch
from helix.local.traces import Received, TraceReceiver, render
from helix.runtime.models import ModelChoice, check_model_name, variables_for
from helix.runtime.project import find_project, read_project
from helix.runtime.tracing import ENDPOINT, TRACES_ENDPOINT

Show = Callable[[list[Received]], None]


@contextlib.contextmanager
def tracing(show: Show, environment: Mapping[str, str] = os.environ) -> Iterator[tuple[dict[str, str], str | None]]:
    """Receive traces for the duration of the block. Yield the environment variables for the functions, and the address that
    receives the traces.

    If the user has configured an endpoint, yield the user's own variables and that endpoint instead. Without OpenTelemetry,
    yield no variables and None.
    """
    elsewhere = environment.get(ENDPOINT) or environment.get(TRACES_ENDPOINT)
    if elsewhere or not _has_opentelemetry():
        own = {name: value for name, value in environment.items() if name.startswith("OTEL_")}
        yield own if elsewhere else {}, elsewhere or None
        return
    with TraceReceiver(show) as receiver:
        yield {ENDPOINT: receiver.url}, receiver.url


def show_traces(as_json: bool) -> Show:
    """Return a function that prints the trace of each finished run, in the format of the logs."""

    def show(spans: list[Received]) -> None:
        if as_json:
            found = [
                {"span": s.span_id, "parent": s.parent_id, "name": s.name, "seconds": s.seconds, "told": s.attributes}
                for s in spans
            ]
            write_json({"trace": spans[0].trace_id, "spans": found})
        else:
            write("\n".join(["", *(f"    {line}" for line in render(spans)), ""]))

    return show


def _has_opentelemetry() -> bool:
    names = ("opentelemetry", "opentelemetry.sdk", "opentelemetry.proto")  # without the first, `find_spec` would raise
    return all(importlib.util.find_spec(name) is not None for name in names)


USER = "dev"
WATCHING_S = 5.0
KEY_FILE = "api-key"
NEEDED = ("ministack", "boto3", "watchfiles", "websockets")
State = Annotated[str | None, typer.Option("--state", help="Folder for sessions [default: .helix in the project]")]
StageName = Annotated[str, typer.Option("--stage", help="Name of the stage")]


@dataclass(frozen=True, slots=True)
class CloudOptions:
    """Options for an offline cloud."""

    project: Project = "."
    """The project's folder, or one of its subfolders."""
    state: State = None
    """The folder where sessions are stored. None: `.helix` in the project."""
    model: Model = None
    """The model for all agents. None: the one in the context, or else the agents' own models. If an API key for one of
    those is missing, the demonstration model is used."""


@dataclass(frozen=True, slots=True)
class Serve:
    """Options for `helix dev`."""

    port: Annotated[int, typer.Option("--port", help="Port on 127.0.0.1; 0 for a free one")] = 4566
    """The port of the emulator on 127.0.0.1, or 0 for a free one. The console gets the next port, if it is free."""
    auth: Annotated[bool, typer.Option("--auth/--no-auth", help="Enforce IAM")] = True
    """Whether the emulator enforces IAM, as AWS does."""
    watch: Annotated[bool, typer.Option("--watch/--no-watch", help="Reload code that changes")] = True
    """Whether to reload the project's code when it changes."""
    logs: Annotated[str, typer.Option("--logs", help="`text` or `json`")] = "text"
    """The format of logs and traces: `text` or `json`."""


def dev(options: CloudOptions, serve: Serve, stage: StageName = "dev", context: Context = None) -> None:
    if serve.logs not in ("text", "json"):
        raise RefusedError(f"--logs is {serve.logs!r}; it must be text or json")
    began, given = SystemClock().now(), {"stage": stage, **parse_context(context)}
    as_json = serve.logs == "json"
    root = find_root(options.project)
    asked = threading.Event()

    def stop(*_: object) -> None:
        asked.set()
        raise KeyboardInterrupt

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    try:
        with tracing(show_traces(as_json)) as (variables, traces):
            wanted: dict[str, Any] = {"port": serve.port, "auth": serve.auth, "variables": variables}
            cloud, choice, profiles = make_cloud(options, root, given, **wanted)
            with cloud:
                if asked.is_set():  # the signal's exception may be lost: Python drops it during cleanup
                    raise KeyboardInterrupt
                Serving(cloud, as_json=as_json).serve(choice, profiles if serve.watch else None, began, traces)
    except KeyboardInterrupt:
        say("stopped before the app was ready")


class Serving:
    """A running cloud, shown in the terminal."""

    def __init__(self, cloud: OfflineCloud, *, as_json: bool) -> None:
        self._cloud, self._as_json, self._ended = cloud, as_json, threading.Event()

    def serve(self, choice: ModelChoice, profiles: Any, began: float, traces: str | None) -> None:
        """Serve until a signal arrives. `profiles`: the agents' profiles. None: their code is not watched.
        `began` is the start of the command in Unix seconds."""
        cloud, ended = self._cloud, self._ended
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: ended.set())
        colour = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
        console = Console(sys.stdout, prefix=cloud.function(""), colour=colour, as_json=self._as_json)
        # Hide the functions' log lines while the cloud shuts down.
        cloud.listen(lambda line: None if ended.is_set() else console.print_line(line))
        watching = threading.Event()
        if profiles is not None:
            threading.Thread(target=self._watch, args=(profiles, watching), daemon=True).start()
        key = _read_operator_key(cloud)
        write_variables(cloud.folder / ENV_FILE, _client_variables(cloud, key))
        if profiles is not None:
            watching.wait(WATCHING_S)
        with _serve_console(cloud, key) as address:
            self._print_welcome(address, key, choice, traces, SystemClock().now() - began, profiles is not None)
            threading.Thread(target=self._warm, daemon=True).start()
            while not ended.wait(1):
                if not cloud.emulator.alive:
                    raise RefusedError(
                        f"the emulator stopped unexpectedly; its log is {str(cloud.emulator.log_path)!r}"
                    )
        say("stopping; sessions are saved")

    def _warm(self) -> None:
        """Warm up the functions while the user reads the welcome message. If the cloud shuts down in the meantime, ignore
        the error."""
        with contextlib.suppress(OfflineError):
            self._cloud.warm()

    def _watch(self, profiles: Any, watching: threading.Event) -> None:
        def show(done: Reloaded) -> None:
            if not self._ended.is_set():  # otherwise Ctrl-C has also ended the reload
                say(done.what if done.error is None else f"NOT reloaded, the previous code stays in use: {done.error}")

        watch(Reloader(self._cloud, profiles), self._ended, show, watching)

    def _print_welcome(
        self, console: str, key: str, choice: ModelChoice, traces: str | None, seconds: float, watched: bool
    ) -> None:
        cloud = self._cloud
        rows = {
            "console": f"{console} (open it in a browser: it signs you in)",
            "talk": f"HELIX_KEY={key} {command('chat', next(iter(cloud.agents), 'AGENT'), '--url', cloud.url)}",
            "url": cloud.url,
            **({"http": cloud.http_url} if cloud.http_url else {}),
            "key": key,
            "agents": ", ".join(cloud.agents) or "none",
            "model": model_in_words(choice),
            "stage": f"{cloud.stage}, IAM {'enforced' if cloud.auth else 'not enforced'}",
            "aws": f"{cloud.emulator.url} (for AWS tools: source {shlex.quote(str(cloud.folder / ENV_FILE))})",
            "health": cloud.health_url,
            **({"traces": traces} if traces is not None else {}),
            **({"reload": "when you save a file of the project"} if watched else {}),
            **(
                {"image": here}
                if (here := describe_substitute(read_project(cloud.root).tools.images(cloud.stage)))
                else {}
            ),
            "state": str(cloud.folder),
        }
        head = f"Helix runs offline on this machine, ready after {seconds:.1f} s. Press Ctrl-C to stop.\n"
        lines = [head, *(f"  {name:<9}{value}" for name, value in rows.items()), ""]
        write("\n".join(lines), to=sys.stderr if self._as_json else sys.stdout)


@contextlib.contextmanager
def _serve_console(cloud: OfflineCloud, key: str) -> Iterator[str]:
    """Serve the console and yield its address. Its port is the one after the emulator's, or a free one."""
    service = Service(cloud.url, key, f"helix dev, stage {cloud.stage}", list(cloud.agents), cloud.emulator.url)
    try:
        server = ConsoleServer(service, port=cloud.emulator.port + 1)
    except (OSError, OverflowError):
        server = ConsoleServer(service)
    with server:
        yield server.address


def parse_context(context: Sequence[str] | None) -> dict[str, str]:
    """Parse the `KEY=VALUE` arguments of the command line. Raises `RefusedError`."""
    split = [text.partition("=") for text in context or ()]
    if wrong := [name for name, equals, _ in split if not (name and equals)]:
        raise RefusedError(f"--context {wrong[0]!r} is not of the form KEY=VALUE")
    return {name: value for name, _, value in split}


def find_root(project: str) -> Path:
    """Return the project's root. Raises `RefusedError` if packages that the offline cloud needs are not installed."""
    if missing := [name for name in NEEDED if importlib.util.find_spec(name) is None]:
        raise RefusedError(f"{', '.join(missing)} is not installed: pip install 'helix-agents[local]'")
    return find_project(Path(project))


def make_cloud(
    options: CloudOptions, root: Path, context: Mapping[str, str], *, aside: str = "", **wanted: Any
) -> tuple[OfflineCloud, ModelChoice, Any]:
    """Create a cloud. Return it with its model and the agents' profiles. Raises `RefusedError` if the project's code is
    broken.

    `context` is the CDK context. `aside` is a subfolder for the cloud's state, within the project's state folder. `wanted`
    contains further options of `OfflineCloud`.
    """
    stored = root / STATE if options.state is None else Path(options.state)
    if options.state is None:
        if stored.is_symlink():
            raise RefusedError(f"{str(stored)!r} is a symbolic link: choose the folder that it leads to with --state")
        make_folder(stored)
    if asked := options.model or context.get("model") or "":
        check_model_name(asked, os.environ)
    cloud = OfflineCloud(root, folder=stored / aside, assemblies=stored / "assemblies", context=context, **wanted)
    looked = cloud.check_code()
    if "error" in looked:
        raise RefusedError(f"the project's code cannot be loaded: {looked['error']}")
    if not asked and looked["unknown"]:
        raise RefusedError(looked["unknown"])
    missing = None if asked else looked["missing"]
    choice = ModelChoice(None, "demo" if missing else asked, missing)
    cloud.context["model"] = "demo" if choice.is_demonstration else choice.name or ""
    if not choice.is_demonstration:
        cloud.model_keys = variables_for([choice.name] if choice.name else looked["models"], os.environ)
    if not cloud.project.is_retained(cloud.context):
        say("synthesising the app with CDK: up to a minute, only after the app has changed")
    return cloud, choice, looked["profiles"]


def _read_operator_key(cloud: OfflineCloud) -> str:
    """Return the operator's key, which is created once and stored next to the state."""
    stored = cloud.folder / KEY_FILE
    if stored.is_file() and cloud.knows_operator(key := stored.read_text(encoding="utf-8").strip()):
        return key
    key = cloud.create_key(USER, name="helix dev", operator=True)
    cloud.save()
    write_private(stored, key + "\n")
    return key


def _client_variables(cloud: OfflineCloud, key: str) -> dict[str, str]:
    return {
        "HELIX_URL": cloud.url,
        "HELIX_KEY": key,
        **({"HELIX_HTTP_URL": cloud.http_url} if cloud.http_url else {}),
        AWS_ENDPOINT: cloud.emulator.url,
        "AWS_REGION": REGION,
        "AWS_DEFAULT_REGION": REGION,
        **cloud.emulator.credentials.variables,
    }
