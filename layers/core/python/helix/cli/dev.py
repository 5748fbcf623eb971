"""`helix dev`: the offline cloud in a terminal, until Ctrl-C.

Law: Ctrl-C and SIGTERM end it in order at any moment, and whatever stands in the way of its start is said in one line.
What it writes about keys is readable by its owner alone, from the first byte.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import signal
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from helix.adapters.system import SystemClock
from helix.cli.hints import program
from helix.cli.refusal import COMPLETED, RefusedError
from helix.cli.tracing import show_traces, tracing
from helix.cli.views import say

if TYPE_CHECKING:
    from helix.local.cloud import OfflineCloud
    from helix.local.reload import Reloaded
    from helix.runtime.models import ModelChoice

PORT = 4566
STAGE = "dev"
USER = "dev"
WATCHING_S = 5.0
KEY_FILE = "api-key"
ENV_FILE = "env"
"""Shell variables with which AWS's own tools, and examples, find this cloud: `source .helix/env`."""
NEEDED = ("ministack", "boto3", "watchfiles", "websockets")


@dataclass(frozen=True, slots=True)
class DevOptions:
    """What `helix dev` is told. `context` is CDK's. `model` None: the agents' own, where they can be called."""

    project: Path
    folder: Path | None = None
    port: int = PORT
    model: str | None = None
    context: Mapping[str, str] = field(default_factory=dict)
    auth: bool = True
    watch: bool = True
    logs: str = "text"


def dev(options: DevOptions) -> int:
    require_local()
    from helix.local.project import find_project

    root, begun = find_project(options.project), SystemClock().now()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with tracing(show_traces(options)) as (variables, traces):
            cloud, choice, profiles = make_cloud(options, root, variables=variables)
            say_if_slow(cloud)
            with cloud:
                _serve(cloud, options, model_in_words(choice), profiles, begun, traces)
    except KeyboardInterrupt:
        say("stopped before it was up")
    return COMPLETED


def _serve(
    cloud: OfflineCloud, options: DevOptions, model: str, profiles: Any, begun: float, traces: str | None
) -> None:
    from helix.local.console import Console

    ended, json = threading.Event(), options.logs == "json"
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    console = Console(sys.stdout, prefix=cloud.function(""), colour=_colour(), as_json=json)
    # What functions say once the cloud is going away from under them is of no interest.
    cloud.listen(lambda line: None if ended.is_set() else console.hear(line))
    if options.watch:
        watching = _watch(cloud, profiles, ended)
    key = _key(cloud)
    write_private(cloud.folder / ENV_FILE, _variables(cloud, key))
    if options.watch:
        watching.wait(WATCHING_S)
    _welcome(cloud, key, model, traces, SystemClock().now() - begun, to=sys.stderr if json else sys.stdout)
    threading.Thread(target=_warm, args=(cloud,), daemon=True).start()
    while not ended.wait(1):
        if not cloud.emulator.alive:
            raise RefusedError(f"the emulator has ended; its log is {str(cloud.emulator.log_path)!r}")
    say("ending; sessions are kept")


def _warm(cloud: OfflineCloud) -> None:
    """Aside, while a person reads the welcome; whoever ends the cloud meanwhile needs no warm functions."""
    from helix.local.process import OfflineError

    with contextlib.suppress(OfflineError):
        cloud.warm()


def pairs(context: Sequence[str] | None) -> dict[str, str]:
    """`KEY=VALUE` of the command line."""
    split = [text.partition("=") for text in context or ()]
    if wrong := [name for name, equals, _ in split if not (name and equals)]:
        raise RefusedError(f"--context {wrong[0]!r} is not of the form KEY=VALUE")
    return {name: value for name, _, value in split}


def log_format(name: str) -> str:
    if name not in ("text", "json"):
        raise RefusedError(f"--logs is {name!r}; it must be text or json")
    return name


def require_local() -> None:
    if missing := [name for name in NEEDED if importlib.util.find_spec(name) is None]:
        raise RefusedError(f"{', '.join(missing)} is not installed: pip install 'helix-agents[local]'")


def make_cloud(
    options: DevOptions, root: Path, *, aside: str = "", variables: Mapping[str, str] | None = None
) -> tuple[OfflineCloud, ModelChoice, Any]:
    """The cloud, the model that plays in it, and the agents' profiles. `aside`: keep its state in a folder of that name.
    `variables`: more of them for the functions. Raises `RefusedError` for broken code.
    """
    from helix.local.cloud import OfflineCloud
    from helix.runtime.models import ModelChoice

    kept = options.folder or root / ".helix"
    cloud = OfflineCloud(
        root,
        folder=kept / aside,
        assemblies=kept / "assemblies",
        port=options.port,
        auth=options.auth,
        context=options.context,
        variables=variables,
    )
    looked = cloud.look()
    if "error" in looked:
        raise RefusedError(f"the project's code cannot be loaded: {looked['error']}")
    asked = options.model or options.context.get("model")
    missing = None if asked else looked["missing"]
    choice = ModelChoice(None, "demo" if missing else asked, missing)
    cloud.context["model"] = "demo" if choice.is_demonstration else choice.name or ""
    return cloud, choice, looked["profiles"]


def model_in_words(choice: ModelChoice) -> str:
    if choice.missing:
        return f"the demonstration model, because {choice.missing} is not set (--model takes any litellm name)"
    if choice.is_demonstration:
        return "the demonstration model: a program, no language model; it costs nothing"
    return f"{choice.name}, for all agents" if choice.name else "each agent's own"


def say_if_slow(cloud: OfflineCloud) -> None:
    if not cloud.project.is_kept(cloud.context):
        say("synthesising the app: a few seconds, once for each change of it")


def write_private(path: Path, text: str) -> None:
    """Readable by its owner alone, from the first byte; what was there is replaced."""
    made = path.with_name(f".{path.name}.{os.getpid()}")
    made.unlink(missing_ok=True)
    with os.fdopen(os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
    made.replace(path)


def _key(cloud: OfflineCloud) -> str:
    """The first key is made once and kept beside the state."""
    kept = cloud.folder / KEY_FILE
    if kept.is_file() and cloud.knows_key(key := kept.read_text(encoding="utf-8").strip()):
        return key
    key = cloud.create_key(USER, name="helix dev")
    write_private(kept, key + "\n")
    return key


def _variables(cloud: OfflineCloud, key: str) -> str:
    from helix.local.cloud import REGION
    from helix.local.emulator import ADMIN

    told = {
        "HELIX_URL": cloud.url,
        "HELIX_KEY": key,
        "AWS_ENDPOINT_URL": cloud.emulator.url,
        "AWS_REGION": REGION,
        "AWS_DEFAULT_REGION": REGION,
        "AWS_ACCESS_KEY_ID": ADMIN,
        "AWS_SECRET_ACCESS_KEY": ADMIN,
    }
    return "".join(f"export {name}={value}\n" for name, value in told.items())


def _welcome(cloud: OfflineCloud, key: str, model: str, traces: str | None, seconds: float, *, to: Any) -> None:
    rows = {
        "url": cloud.url,
        "key": key,
        "stage": f"{cloud.stage} · IAM {'enforced' if cloud.auth else 'not enforced'} · AWS APIs at {cloud.emulator.url}",
        "agents": ", ".join(cloud.agents) or "none",
        "model": model,
        "talk": f"{program()} chat {next(iter(cloud.agents), 'AGENT')} --url {cloud.url} --key {key}",
        "health": cloud.health_url,
        **({"traces": traces} if traces is not None else {}),
        "state": str(cloud.folder),
    }
    print(f"Helix offline: the deployed app on this machine, up in {seconds:.1f} s. Ctrl-C ends it.\n", file=to)
    for name, value in rows.items():
        print(f"  {name:<8}{value}", file=to)
    print(flush=True, file=to)


def _watch(cloud: OfflineCloud, profiles: Any, ended: threading.Event) -> threading.Event:
    """The event that is set once it watches."""
    from helix.local.reload import Reloader, watch

    def tell(done: Reloaded) -> None:
        if ended.is_set():
            return  # a reload that the same Ctrl-C has broken off
        say(done.what if done.error is None else f"NOT reloaded, the code before goes on: {done.error}")

    watching = threading.Event()
    threading.Thread(target=watch, args=(Reloader(cloud, profiles), ended, tell, watching), daemon=True).start()
    return watching


def _colour() -> bool:
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")
