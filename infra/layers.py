"""The three zip layers: `core` (Helix), `agents` (what the deployment runs), `deps` (third-party packages).

Law: a layer's content decides its name, so what did not change is neither built, copied nor uploaded again.
"""

from __future__ import annotations

from pathlib import Path

from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from helix.infra.build import BUILDS, core_files, deps_layer, source_layer
from helix.infra.config import Settings
from helix.infra.locks import lock_of
from helix.infra.packages import check_size
from helix.runtime.project import HelixProject

RUNTIMES = {
    "3.11": lambda_.Runtime.PYTHON_3_11,
    "3.12": lambda_.Runtime.PYTHON_3_12,
    "3.13": lambda_.Runtime.PYTHON_3_13,
    "3.14": lambda_.Runtime.PYTHON_3_14,
}


class Layers(Construct):
    """`of(verb)` is what a function gets, in the order of the search path. `call_model` alone has what calls models."""

    def __init__(self, scope: Construct, construct_id: str, *, settings: Settings, project: HelixProject) -> None:
        super().__init__(scope, construct_id)
        self._settings, self._project = settings, project
        builds, agents = project.root / BUILDS, project.files(settings.agents)
        folders = [
            source_layer("core", core_files(), settings.python, builds),
            source_layer("agents", agents, settings.python, builds),
        ]
        sources = [self._layer("Core", folders[0]), self._layer("Agents", folders[1])]
        self._calling = self._others = sources
        # The emulator's workers run under the interpreter that runs the emulator, with the packages that it has.
        if settings.deps:
            check_size("a function", [*folders, Path(settings.deps)], project.lock)
            self._calling = self._others = [*sources, self._layer("Deps", Path(settings.deps))]
        elif not settings.offline:
            target = (settings.target_architecture, settings.python)
            lock = lock_of(project, settings)
            models = deps_layer(*target, builds, settings.model_packages, lock)
            check_size("call_model", [*folders, models], project.lock)
            self._calling = [*sources, self._layer("ModelDeps", models)]
            self._others = [*sources, self._layer("Deps", deps_layer(*target, builds, (), lock))]

    def of(self, verb: str) -> list[lambda_.LayerVersion]:
        return self._calling if verb == "call_model" else self._others

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
