"""The project on disk: where it is, what its deployment depends on, and its synthesis, kept by the hash of that.

Law: what is kept is used only if every file and setting it was made from is unchanged; so a start without changes does
not need Node. Synthesis happens in a process of its own, aside, and becomes visible when it is whole.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from helix.local.assembly import files_of
from helix.local.process import OfflineError

INPUTS = ("infra", "functions", "layers/core", "layers/agents", "layers/deps", "cdk.json")
KEPT = 3
SYNTH_S = 300
NODE_NOTICES = {
    "JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION": "20",
    "JSII_SILENCE_WARNING_DEPRECATED_NODE_VERSION": "20",
}
"""Node 20 serves; jsii says in eleven lines, each time, that 22 is newer."""
QUICK_SYNTH = {"CDK_VALIDATION": "false", **NODE_NOTICES}
"""CDK checks a template against CloudFormation's schemas for seven seconds. `helix deploy` and CI let it; here the
emulator's CloudFormation says what is wrong."""


class NoProjectError(OfflineError):
    """There is no Helix project here."""

    code = "no_project"


class SynthError(OfflineError):
    """The app could not be synthesised; the message has what it said."""

    code = "synth_failed"


def find_project(start: Path) -> Path:
    """The folder at or above `start` that has cdk.json and infra/app.py. Raises `NoProjectError`."""
    for folder in (start.resolve(), *start.resolve().parents):
        if (folder / "cdk.json").is_file() and (folder / "infra" / "app.py").is_file():
            return folder
    raise NoProjectError(
        f"there is no Helix project at {str(start)!r} or above: a folder with cdk.json and infra/app.py"
    )


class Project:
    """root: of the project. folder: where syntheses are kept. paths: more folders with modules, before all others; what
    the context's `agents` names of them is part of what the synthesis depends on."""

    def __init__(self, root: Path, folder: Path, paths: Sequence[Path], environment: Mapping[str, str]) -> None:
        self.root, self._folder, self._paths = root, folder, tuple(paths)
        self._environment = dict(environment)

    def synthesise(self, context: Mapping[str, str]) -> Path:
        """The assembly's folder. Raises `SynthError`."""
        folder = self._folder / self.digest(context)
        if (folder / "manifest.json").is_file():
            os.utime(folder)
            return folder
        made = folder.with_suffix(f".{os.getpid()}")
        shutil.rmtree(made, ignore_errors=True)
        made.mkdir(parents=True)
        pairs = [word for name, value in sorted(context.items()) for word in ("-c", f"{name}={value}")]
        try:
            self._run([sys.executable, "-m", "infra.app", *pairs, "-o", str(made)])
            _put(made, folder)
        finally:
            shutil.rmtree(made, ignore_errors=True)
        self._forget_old()
        return folder

    def is_kept(self, context: Mapping[str, str]) -> bool:
        """Whether `synthesise` will find what it would make."""
        return (self._folder / self.digest(context) / "manifest.json").is_file()

    def digest(self, context: Mapping[str, str]) -> str:
        known = hashlib.sha256(json.dumps([sys.version_info[:3], sorted(context.items())]).encode())
        for path in self._inputs(context):
            known.update(f"\0{os.path.relpath(path, self.root)}\0".encode())
            known.update(path.read_bytes())
        return known.hexdigest()[:20]

    def environment(self) -> dict[str, str]:
        """Of a process that imports the project's modules."""
        more = os.pathsep.join([*map(str, self._paths), *filter(None, [self._environment.get("PYTHONPATH")])])
        return {**self._environment, **({"PYTHONPATH": more} if more else {})}

    def _inputs(self, context: Mapping[str, str]) -> Iterator[Path]:
        named = [module.split(".")[0] for module in context.get("agents", "").split(",")]
        agents = [path / form for path in self._paths for name in named if name for form in (name, f"{name}.py")]
        for path in (*(self.root / name for name in INPUTS), *agents):
            yield from sorted(files_of(path)) if path.is_dir() else [path] if path.is_file() else []

    def _run(self, command: list[str]) -> None:
        if shutil.which("node", path=self._environment.get("PATH")) is None:
            raise SynthError(
                "Node is missing: CDK needs it to synthesise the app (https://nodejs.org, version 22 or later)"
            )
        environment = {**self.environment(), **QUICK_SYNTH}
        done = subprocess.run(
            command, cwd=self.root, env=environment, capture_output=True, text=True, timeout=SYNTH_S, check=False
        )
        if done.returncode:
            self._folder.mkdir(parents=True, exist_ok=True)
            log = self._folder / "synth.log"
            log.write_text(done.stdout + done.stderr, encoding="utf-8")
            raise SynthError(f"the app could not be synthesised: {_last(done.stderr)} (all of it: {str(log)!r})")

    def _forget_old(self) -> None:
        kept = sorted(
            (path for path in self._folder.iterdir() if path.is_dir()),
            key=lambda folder: folder.stat().st_mtime,
            reverse=True,
        )
        for folder in kept[KEPT:]:
            shutil.rmtree(folder, ignore_errors=True)


def _put(made: Path, folder: Path) -> None:
    """Make it visible, unless another process has made the same meanwhile."""
    try:
        made.rename(folder)
    except OSError:
        if not (folder / "manifest.json").is_file():
            raise


def _last(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1].removeprefix("infra: ") if lines else "it said nothing"
