"""A stage of an earlier Helix, offline: its template and functions, from the repository's history, until `upgrade`.

The emulator is that of the current `helix dev`. The app in it is the earlier one: roles, state machines, functions with
their layers.
"""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.support.offline_cloud import PRIVATE, ROOT, STREAMING, CloudForTests

from helix.local.cloud import OfflineCloud
from helix.local.project import QUICK_SYNTH

AGENTS = "tests/support/cloud_agents"
CONTEXT = {"stage": "test", "agents": "cloud_agents", "model": "import:cloud_agents:model", "provision_agents": "true"}
SETTINGS = '[tool.helix]\nsource = "agents"\nagents = ["cloud_agents"]\n'
SYNTH_S = 300


class OldStage(CloudForTests):
    """A stage of an earlier release. `upgrade()` deploys the current code over it."""

    def __init__(self, cloud: OfflineCloud, assembly: Path) -> None:
        super().__init__(cloud)
        self._present = cloud.project.synthesise
        cloud.project.synthesise = lambda context: assembly  # type: ignore[method-assign]

    def upgrade(self) -> None:
        self.cloud.project.synthesise = self._present  # type: ignore[method-assign]
        self.cloud.update()


@contextmanager
def old_stage(commit: str, folder: Path) -> Iterator[OldStage]:
    assembly = synthesised(sources_of(commit, folder / "sources"), folder / "assembly")
    root = folder / "project"
    shutil.copytree(ROOT / AGENTS, root / "agents" / "cloud_agents", ignore=shutil.ignore_patterns("__pycache__"))
    (root / "pyproject.toml").write_text(SETTINGS)
    environment = {name: value for name, value in os.environ.items() if not PRIVATE.match(name)}
    cloud = OfflineCloud(
        root,
        folder=folder / "state",
        context={**CONTEXT, "streaming": STREAMING},
        wait_scale=0.1,
        environment=environment,
        assemblies=folder / "assemblies",
    )
    stage = OldStage(cloud, assembly)
    with cloud:
        yield stage


def sources_of(commit: str, folder: Path) -> Path:
    """Check out the sources of that commit. A clone without its history does not have them."""
    told = subprocess.run(["git", "archive", "--format=tar", commit], cwd=ROOT, capture_output=True, check=False)
    if told.returncode:
        shallow = subprocess.run(
            ["git", "rev-parse", "--is-shallow-repository"], cwd=ROOT, capture_output=True, text=True, check=False
        )
        if shallow.stdout.strip() == "true":
            pytest.skip("the clone is shallow: git fetch --unshallow")
        raise AssertionError(told.stderr.decode())
    with tarfile.open(fileobj=io.BytesIO(told.stdout)) as archive:
        archive.extractall(folder, filter="data")
    return folder


def synthesised(sources: Path, output: Path) -> Path:
    layer = sources / "layers" / "agents" / "python"
    shutil.copytree(sources / AGENTS, layer / "cloud_agents")
    path = os.pathsep.join([str(sources / "layers" / "core" / "python"), str(layer)])
    environment = {name: value for name, value in os.environ.items() if not PRIVATE.match(name)}
    pairs = [word for name, value in {**CONTEXT, "offline": "true"}.items() for word in ("-c", f"{name}={value}")]
    done = subprocess.run(
        [sys.executable, "-m", "infra.app", *pairs, "-o", str(output)],
        cwd=sources,
        env={**environment, **QUICK_SYNTH, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=SYNTH_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return output
