"""The three zip layers: `core` (Helix), `agents` (the project's modules), `deps` (third-party packages).

Law: a layer's name depends on its content, so an unchanged layer is not rebuilt, copied or uploaded again.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from helix.infra.build import BUILDS, core_files, deps_layer, source_layer
from helix.infra.config import Settings
from helix.infra.image_packages import check_image
from helix.infra.images import image_code, image_folder
from helix.infra.imports import imports_processes
from helix.infra.locks import lock_of
from helix.infra.packages import NO_LOCK, check_size
from helix.runtime.project import HelixProject

RUNTIMES = {
    "3.11": lambda_.Runtime.PYTHON_3_11,
    "3.12": lambda_.Runtime.PYTHON_3_12,
    "3.13": lambda_.Runtime.PYTHON_3_13,
    "3.14": lambda_.Runtime.PYTHON_3_14,
}


class Layers(Construct):
    """The layers of a stage. `of(verb)` returns those of a function, in import path order. Only `call_model` has the
    packages that call models. `image(profile, packages)` returns the code of a `call_tool` with packages that are not in
    any layer."""

    def __init__(self, scope: Construct, construct_id: str, *, settings: Settings, project: HelixProject) -> None:
        super().__init__(scope, construct_id)
        self._settings, self._project = settings, project
        builds, agents = project.root / BUILDS, project.files(settings.agents)
        processes = imports_processes(project, settings.agents)
        files = core_files(console=settings.served_console == "http", processes=processes)
        core = source_layer("core", files, settings.python, builds)
        own = source_layer("agents", agents, settings.python, builds)
        self._folders, folders = {"core": core, "agents": own}, [core, own]
        sources = [self._layer("Core", core), self._layer("Agents", own)]
        self._lock, self._images = NO_LOCK, project.tools.images(settings.stage)
        self._calling = self._others = sources
        # Offline there is no deps layer: workers run under the emulator's interpreter, with its packages.
        if settings.deps:
            check_size("a function", [*folders, Path(settings.deps)], project.lock)
            self._calling = self._others = [*sources, self._layer("Deps", Path(settings.deps))]
        elif not settings.offline:
            target = (settings.target_architecture, settings.python)
            self._lock = lock_of(project, settings)
            check_image(self._lock, self._images, project.lock)
            lock = self._lock.without(self._images)
            models = deps_layer(*target, builds, settings.calling, lock)
            check_size("call_model", [*folders, models], project.lock, lock.names)
            self._calling = [*sources, self._layer("ModelDeps", models)]
            self._others = [*sources, self._layer("Deps", deps_layer(*target, builds, (), lock))]

    def of(self, verb: str) -> list[lambda_.LayerVersion]:
        return self._calling if verb == "call_model" else self._others

    def image(self, profile: str, packages: Collection[str]) -> lambda_.DockerImageCode:
        """Return the image of `call_tool` in that profile, with these packages of the lock and their dependencies."""
        settings, builds = self._settings, self._project.root / BUILDS
        if settings.deps:
            deps = Path(settings.deps)
        else:
            lock = self._lock.without(self._images - set(packages))
            target = (settings.target_architecture, settings.python)
            deps = deps_layer(*target, builds, (), lock, f"image-{profile}")
        folder = image_folder(f"context-{profile}", settings.python, {"deps": deps, **self._folders}, builds)
        return image_code(folder, settings.target_architecture)

    def _layer(self, construct_id: str, folder: Path) -> lambda_.LayerVersion:
        settings = self._settings
        arm = settings.target_architecture == "arm64"
        return lambda_.LayerVersion(
            self,
            construct_id,
            code=lambda_.Code.from_asset(str(folder)),
            description=f"Helix {settings.stage}: {construct_id.lower()}",
            compatible_runtimes=[RUNTIMES[settings.python]],
            compatible_architectures=[lambda_.Architecture.ARM_64 if arm else lambda_.Architecture.X86_64],
        )
