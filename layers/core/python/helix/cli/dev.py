"""`helix dev`: the offline cloud in a terminal, until Ctrl-C."""

from __future__ import annotations

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
from helix.cli.refusal import COMPLETED, RefusedError
from helix.cli.views import say

if TYPE_CHECKING:
    from helix.local.cloud import OfflineCloud
    from helix.local.reload import Reloaded

PORT = 4566
STAGE = "dev"
USER = "dev"
KEY_FILE = "api-key"
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
    from helix.local.console import Console
    from helix.local.project import find_project

    root, begun = find_project(options.project), SystemClock().now()
    cloud, model, profiles = make_cloud(options, root)
    json = options.logs == "json"
    console = Console(sys.stdout, prefix=cloud.function(""), colour=_colour(), as_json=json)
    if not cloud.project.is_kept(cloud.context):
        say("synthesising the app: about ten seconds, once for each change of it")
    with cloud:
        ended = threading.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: ended.set())
        cloud.listen(console.hear)
        _welcome(cloud, _key(cloud), model, SystemClock().now() - begun, to=sys.stderr if json else sys.stdout)
        threading.Thread(target=cloud.warm, daemon=True).start()
        if options.watch:
            _watch(cloud, profiles, ended)
        while not ended.wait(1):
            if not cloud.emulator.alive:
                raise RefusedError(f"the emulator has ended; its log is {str(cloud.emulator.log_path)!r}")
        say("ending; sessions are kept")
    return COMPLETED


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


def make_cloud(options: DevOptions, root: Path, *, aside: str = "") -> tuple[OfflineCloud, str, Any]:
    """The cloud, which model plays in it in words, and the agents' profiles. `aside`: keep its state in a folder of that
    name. Raises `RefusedError` for broken code."""
    from helix.local.cloud import OfflineCloud

    kept = options.folder or root / ".helix"
    cloud = OfflineCloud(
        root,
        folder=kept / aside,
        assemblies=kept / "assemblies",
        port=options.port,
        auth=options.auth,
        context=options.context,
    )
    looked = cloud.look()
    if "error" in looked:
        raise RefusedError(f"the project's code cannot be loaded: {looked['error']}")
    name, words = options.model or "", f"{options.model}, for all agents"
    if options.model is None and looked["missing"] is not None:
        name, words = (
            "demo",
            f"the demonstration model, because {looked['missing']} is not set (--model takes any litellm name)",
        )
    elif options.model in ("demo", "demonstration"):
        name, words = "demo", "the demonstration model: a program, no language model; it costs nothing"
    elif options.model is None:
        words = "each agent's own"
    cloud.context["model"] = name
    return cloud, words, looked["profiles"]


def _key(cloud: OfflineCloud) -> str:
    """The first key is made once and kept beside the state, readable by its owner alone."""
    kept = cloud.folder / KEY_FILE
    if kept.is_file() and cloud.knows_key(key := kept.read_text(encoding="utf-8").strip()):
        return key
    key = cloud.create_key(USER, name="helix dev")
    kept.touch(mode=0o600)
    kept.write_text(key + "\n", encoding="utf-8")
    return key


def _welcome(cloud: OfflineCloud, key: str, model: str, seconds: float, *, to: Any) -> None:
    rows = {
        "url": cloud.url,
        "key": key,
        "stage": f"{cloud.stage} · IAM {'enforced' if cloud.auth else 'not enforced'} · AWS APIs at {cloud.emulator.url}",
        "agents": ", ".join(cloud.agents) or "none",
        "model": model,
        "talk": f"helix chat {next(iter(cloud.agents), 'AGENT')} --url {cloud.url} --key {key}",
        "state": str(cloud.folder),
    }
    print(f"Helix offline: the deployed app on this machine, up in {seconds:.1f} s. Ctrl-C ends it.\n", file=to)
    for name, value in rows.items():
        print(f"  {name:<8}{value}", file=to)
    print(flush=True, file=to)


def _watch(cloud: OfflineCloud, profiles: Any, ended: threading.Event) -> None:
    from helix.local.reload import Reloader, watch

    def tell(done: Reloaded) -> None:
        say(done.what if done.error is None else f"NOT reloaded, the code before goes on: {done.error}")

    threading.Thread(target=watch, args=(Reloader(cloud, profiles), ended, tell), daemon=True).start()


def _colour() -> bool:
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")
