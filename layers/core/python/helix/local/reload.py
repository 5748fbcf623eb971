"""Hot reload: the next invocation runs the changed code, while sessions, sockets and runs continue.

Law: code is checked in a separate process before it is deployed, so a broken edit changes nothing and is reported with its
file and line. New code is deployed as on AWS: a new layer or package, a published version, then the alias. Invocations in
progress finish on the old code. A change to the settings, to Helix itself, or to the infrastructure that agents need
triggers a full deployment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from helix.core.errors import HelixError
from helix.local.cloud import ALIAS, OfflineCloud
from helix.local.project import SETTINGS, zip_files
from helix.runtime.project import PACKAGE, HelixProject, read_project, shipped

AGENTS = "agents"
"""The name of the agents' layer in its description."""
LOOK_MS = 200
OWN = tuple({path.resolve() for path in (PACKAGE, PACKAGE / "infra", shipped("functions"))})
"""Helix's own sources. They are in the project's folder only when someone works on Helix itself."""


@dataclass(frozen=True, slots=True)
class Reloaded:
    """The result of a reload."""

    what: str = ""
    """A description of what was reloaded or deployed. Empty if it failed."""
    error: str | None = None
    """The reason why nothing changed. None: it succeeded."""


class Reloader:
    """Reloads changed code into one offline cloud. Workers also import from the cloud's `paths`; a change there only needs
    a restart of the workers."""

    def __init__(self, cloud: OfflineCloud, profiles: Any) -> None:
        self._cloud, self._profiles = cloud, profiles

    def watched(self) -> list[Path]:
        root = self._cloud.root
        own = [path for path in OWN if path.is_relative_to(root)]
        settings = [root / name for name in SETTINGS if (root / name).is_file()]
        parts = [part.resolve() for part in self._project().parts(self._modules)]
        files = [path.resolve() for path in self._project().files(self._modules).values()]
        linked = {file.parent for file in files if not any(file.is_relative_to(part) for part in parts)}
        return [*own, *settings, *self._project().app_files, *parts, *linked, *self._cloud.paths]

    def reload(self, changed: Iterable[Path]) -> Reloaded | None:
        """Reload the changes. Returns None if none of the changed files is relevant."""
        files = [path for path in changed if _is_relevant(path)]
        if not files:
            return None
        looked = self._cloud.check_code()
        if "error" in looked:
            return Reloaded(error=looked["error"])
        names = sorted({_short_name(path, self._cloud.root) for path in files})
        said = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
        try:
            if looked["profiles"] != self._profiles or any(self._is_infrastructure(path) for path in files):
                self._cloud.update()
                self._profiles = looked["profiles"]
                return Reloaded(f"deployed {said}")
            self._replace_code(files)
        except HelixError as error:
            return Reloaded(error=str(error))
        return Reloaded(f"reloaded {said}")

    def _is_infrastructure(self, path: Path) -> bool:
        settings = [self._cloud.root / name for name in SETTINGS]
        deployed = [*OWN, *self._project().app_files]
        return path in settings or any(path.is_relative_to(place) for place in deployed)

    @property
    def _modules(self) -> str:
        return self._cloud.context.get("agents", "")

    def _project(self) -> HelixProject:
        return read_project(self._cloud.root)

    # --- code ------------------------------------------------------------------------------------------------------------

    def _replace_code(self, files: list[Path]) -> None:
        deployed = self._project().files(self._modules)
        if {path.resolve() for path in deployed.values()} & {path.resolve() for path in files} or any(
            not path.exists() for path in files
        ):
            fresh = zip_files({f"python/{name}": path for name, path in deployed.items()})
            published: dict[str, str] = {}
            for function in self._cloud.functions():
                if self._attach_layer(function, fresh, published):
                    self._publish(function)
        self._cloud.retire_workers()

    def _attach_layer(self, function: str, fresh: bytes, published: dict[str, str]) -> bool:
        """Replace the old version of the agents' layer with the new one."""
        client = self._cloud.client("lambda")
        arns = [layer["Arn"] for layer in client.get_function_configuration(FunctionName=function).get("Layers", [])]
        replaced = [self._publish_layer(arn, fresh, published) for arn in arns]
        if replaced != arns:
            client.update_function_configuration(FunctionName=function, Layers=replaced)
        return replaced != arns

    def _publish_layer(self, arn: str, fresh: bytes, published: dict[str, str]) -> str:
        """If the layer contains the agents (its description is `Helix STAGE: agents`), return the ARN of its new
        version."""
        if arn not in published:
            client = self._cloud.client("lambda")
            known = client.get_layer_version_by_arn(Arn=arn)
            name = known.get("Description", "").rpartition(": ")[2]
            published[arn] = arn
            if name == AGENTS:
                made = client.publish_layer_version(
                    LayerName=arn.split(":")[6], Description=known["Description"], Content={"ZipFile": fresh}
                )
                published[arn] = made["LayerVersionArn"]
                published[made["LayerVersionArn"]] = made["LayerVersionArn"]
        return published[arn]

    def _publish(self, function: str) -> None:
        client = self._cloud.client("lambda")
        version = client.publish_version(FunctionName=function)["Version"]
        client.update_alias(FunctionName=function, Name=ALIAS, FunctionVersion=version)


def watch(reloader: Reloader, stop: Any, report: Callable[[Reloaded], None], watching: Any) -> None:
    """Reload on each change, until the event `stop` is set. The event `watching` is set once changes are being watched."""
    from watchfiles import watch as changes

    for batch in changes(
        *reloader.watched(),
        stop_event=stop,
        raise_interrupt=False,
        debounce=300,
        step=100,
        rust_timeout=LOOK_MS,
        yield_on_timeout=True,
    ):
        watching.set()
        done = reloader.reload(Path(path) for _, path in batch)
        if done is not None:
            report(done)


def _is_relevant(path: Path) -> bool:
    return (
        "__pycache__" not in path.parts
        and not path.name.startswith(".")
        and not path.name.endswith(("~", ".pyc", ".swp"))
    )


def _short_name(path: Path, root: Path) -> str:
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else path.name
