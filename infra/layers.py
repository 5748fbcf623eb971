"""The three zip layers: `core` (Helix), `agents` (what the deployment runs), `deps` (third-party packages).

Law: a layer's content decides its name, so what did not change is neither built, copied nor uploaded again.
"""

from __future__ import annotations

from pathlib import Path

from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from helix.infra.build import BUILDS, core_files, deps_layer, source_layer
from helix.infra.config import Settings
from helix.runtime.project import HelixProject

RUNTIMES = {
    "3.11": lambda_.Runtime.PYTHON_3_11,
    "3.12": lambda_.Runtime.PYTHON_3_12,
    "3.13": lambda_.Runtime.PYTHON_3_13,
    "3.14": lambda_.Runtime.PYTHON_3_14,
}


class Layers(Construct):
    """`all` is what every function gets, in the order of the search path."""

    def __init__(self, scope: Construct, construct_id: str, *, settings: Settings, project: HelixProject) -> None:
        super().__init__(scope, construct_id)
        self._settings = settings
        builds, agents = project.root / BUILDS, project.files(settings.agents)
        self.all = [
            self._layer("Core", source_layer("core", core_files(), settings.python, builds)),
            self._layer("Agents", source_layer("agents", agents, settings.python, builds)),
        ]
        # The emulator's workers run under the interpreter that runs the emulator, with the packages that it has.
        if settings.deps:
            self.all.append(self._layer("Deps", Path(settings.deps)))
        elif not settings.offline:
            packages = deps_layer(settings.target_architecture, settings.python, builds, settings.model_packages)
            self.all.append(self._layer("Deps", packages))

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
