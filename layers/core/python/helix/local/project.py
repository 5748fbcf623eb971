"""The project on disk: its location, its stored syntheses, and the stacks, templates and files of a synthesis.

Law: a synthesis is cached by the hash of its inputs, and used only if every input file and setting is unchanged. A start
without changes therefore does not need Node. Synthesis runs in a separate process and folder, and its result becomes
visible only when it is complete. A file's key is the content hash that CDK computed. An archive depends only on its files,
because it has a fixed order and no timestamps.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import shlex
import shutil
import stat
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any

from helix._private_files import make_private, private_files
from helix.local.node import NODE_NOTICES, node_problem
from helix.local.process import OfflineError
from helix.runtime.project import PACKAGE, PYPROJECT, read_project

_SESSIONS = re.compile(r"helix-([a-z][a-z0-9]*)-sessions")
_EPOCH = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class Asset:
    """A file or folder that a template refers to."""

    path: Path
    """The file or folder in the assembly."""
    bucket: str
    """The target bucket, still with CDK's ${AWS::...} placeholders."""
    key: str
    """The target object's key, still with CDK's ${AWS::...} placeholders."""
    zipped: bool
    """Whether a folder is uploaded as an archive."""

    def read(self) -> bytes:
        return zip_folder(self.path) if self.zipped and self.path.is_dir() else self.path.read_bytes()


@dataclass(frozen=True, slots=True)
class StackArtifact:
    """A stack in the assembly."""

    id: str
    """The stack's name in CDK."""
    name: str
    """The stack's name in CloudFormation."""
    stage: str | None
    """The stage whose tables are in the stack. None: the stack contains no tables of a stage."""
    template: Path
    """The template file."""
    parameters: dict[str, str]
    """The parameter values that CDK passes."""
    tags: dict[str, str]
    """The stack's tags."""
    bootstrap: str | None = None
    """The SSM parameter with the version of CDK's bootstrap stack, if the stack requires one. Otherwise None."""


@dataclass(frozen=True, slots=True)
class Assembly:
    stacks: tuple[StackArtifact, ...]
    """The stacks, each after those it depends on."""
    assets: tuple[Asset, ...]
    """The files to upload."""

    def of_stage(self, stage: str) -> Assembly:
        """Return the assembly without the stacks of other stages. Raises `SynthError` if the stack `helix-<stage>` does not
        belong to the stage."""
        stacks = tuple(stack for stack in self.stacks if stack.stage in (None, stage))
        if (name := f"helix-{stage}") not in [stack.name for stack in stacks if stack.stage == stage]:
            known = ", ".join(f"{s.name!r} has stage {s.stage!r}" for s in self.stacks if s.stage) or "no stack has one"
            raise SynthError(
                f"the app has no stack {name!r} with stage {stage!r} ({known}): make it a HelixStack, or name it so"
            )
        return replace(self, stacks=stacks)


def read_assembly(folder: Path) -> Assembly:
    artifacts: dict[str, Any] = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))["artifacts"]
    stacks, assets = [], list[Asset]()
    order = TopologicalSorter({name: artifact.get("dependencies", []) for name, artifact in artifacts.items()})
    for name in order.static_order():
        artifact = artifacts[name]
        properties = artifact.get("properties", {})
        match artifact["type"]:
            case "aws:cloudformation:stack":
                stacks.append(
                    StackArtifact(
                        artifact.get("displayName", name),
                        properties.get("stackName", name),
                        _stage_of(folder / properties["templateFile"]),
                        folder / properties["templateFile"],
                        properties.get("parameters", {}),
                        properties.get("tags", {}),
                        properties.get("bootstrapStackVersionSsmParameter"),
                    )
                )
            case "cdk:asset-manifest":
                assets += _assets(folder / properties["file"])
    return Assembly(tuple(stacks), tuple(assets))


def _stage_of(template: Path) -> str | None:
    resources: dict[str, Any] = json.loads(template.read_text(encoding="utf-8")).get("Resources", {})
    tables = [r["Properties"].get("TableName") for r in resources.values() if r["Type"] == "AWS::DynamoDB::Table"]
    found = [_SESSIONS.fullmatch(name) for name in tables if isinstance(name, str)]
    return next((match[1] for match in found if match), None)


def _assets(manifest: Path) -> Iterator[Asset]:
    for file in json.loads(manifest.read_text(encoding="utf-8"))["files"].values():
        source = file["source"]
        for destination in file["destinations"].values():
            yield Asset(
                manifest.parent / source["path"],
                destination["bucketName"],
                destination["objectKey"],
                source.get("packaging") == "zip",
            )


def zip_folder(folder: Path) -> bytes:
    """Return a zip of the folder's files."""
    return zip_files({path.relative_to(folder).as_posix(): path for path in sorted(files_of(folder))})


def zip_files(files: Mapping[str, Path]) -> bytes:
    """Return a zip of the files. The keys are the names in the zip."""
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as package:
        for name, path in files.items():
            entry = zipfile.ZipInfo(name, _EPOCH)
            executable = path.stat().st_mode & stat.S_IXUSR
            entry.external_attr = (0o755 if executable else 0o644) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            package.writestr(entry, path.read_bytes())
    return written.getvalue()


def files_of(folder: Path) -> Iterator[Path]:
    """Yield every file in the folder and its subfolders, following links and skipping Python's caches."""
    for place, folders, names in os.walk(folder, followlinks=True):
        folders[:] = [name for name in folders if name != "__pycache__"]
        yield from (Path(place) / name for name in names if not name.endswith(".pyc"))


SETTINGS = (PYPROJECT, "cdk.json")
APP = (sys.executable, "-m", "helix.infra.app")
MADE = ("node_modules", "cdk.out", "build", "dist", "__pycache__")
VENV = "pyvenv.cfg"
RETAINED, UNUSED_S = 3, 3600.0
"""The number of stored syntheses that are always retained, and how long others are, in seconds after their last use. Other
processes may be creating or reading the newer ones."""
SYNTH_S = 300
QUICK_SYNTH = {"CDK_VALIDATION": "false", **NODE_NOTICES}
"""The environment variables that skip slow checks. CDK takes seven seconds to validate a template against CloudFormation's
schemas. `helix deploy` and CI do this; here the emulator's CloudFormation reports errors."""


class SynthError(OfflineError):
    """The app could not be synthesised. The message contains the app's output."""

    code = "synth_failed"


class Project:
    """A project, with its stored syntheses.

    root: the folder of the project. folder: the folder for stored syntheses. paths: more folders with modules, which are
    searched first. A synthesis depends on the modules in them that the context's `agents` names.
    """

    def __init__(self, root: Path, folder: Path, paths: Sequence[Path], environment: Mapping[str, str]) -> None:
        self.root, self._folder, self._paths = root, folder, tuple(paths)
        self._environment = dict(environment)

    def synthesise(self, context: Mapping[str, str]) -> Path:
        """Return the folder of the assembly, synthesising it if necessary. Raises `SynthError`."""
        folder = self._folder / self.digest(context)
        if (folder / "manifest.json").is_file():
            os.utime(folder)
            return folder
        made = folder.with_suffix(f".{os.getpid()}")
        shutil.rmtree(made, ignore_errors=True)
        project = read_project(self.root)
        pairs = [word for name, value in sorted(context.items()) for word in ("-c", f"{name}={value}")]
        try:
            with private_files():
                made.mkdir(parents=True)
                if project.app:
                    given = json.dumps({**project.context, **context})
                    self._run(shlex.split(app_command(project.app)), CDK_CONTEXT_JSON=given, CDK_OUTDIR=str(made))
                else:
                    self._run([*APP, *pairs, "-o", str(made)])
            make_private(made)  # CDK also copies file modes
            _move_into_place(made, folder)
        finally:
            shutil.rmtree(made, ignore_errors=True)
        self._forget_old()
        return folder

    def is_retained(self, context: Mapping[str, str]) -> bool:
        """Return whether a valid synthesis for this context is already stored."""
        return (self._folder / self.digest(context) / "manifest.json").is_file()

    def digest(self, context: Mapping[str, str]) -> str:
        known = hashlib.sha256(json.dumps([sys.version_info[:3], sorted(context.items())]).encode())
        for path in self._inputs(context):
            known.update(f"\0{os.path.relpath(path, self.root)}\0".encode())
            known.update(path.read_bytes())
        return known.hexdigest()[:20]

    def modules(self) -> str:
        """Return the names of the agents' modules, separated by commas."""
        return ",".join(read_project(self.root).modules)

    def environment(self) -> dict[str, str]:
        """Return the environment for a process that imports the project's modules."""
        more = os.pathsep.join([*map(str, self._paths), *filter(None, [self._environment.get("PYTHONPATH")])])
        return {**self._environment, **({"PYTHONPATH": more} if more else {})}

    def _inputs(self, context: Mapping[str, str]) -> Iterator[Path]:
        given = context.get("agents", "")
        named = [module.split(".")[0] for module in given.split(",")]
        agents = [path / form for path in self._paths for name in named if name for form in (name, f"{name}.py")]
        settings = [self.root / name for name in SETTINGS]
        project = read_project(self.root)
        own = _app_files(self.root) if project.app else []
        for path in (PACKAGE, *settings, *project.parts(given), *agents, *own):
            yield from sorted(files_of(path)) if path.is_dir() else [path] if path.is_file() else []

    def _run(self, command: list[str], **more: str) -> None:
        if (problem := node_problem(self._environment.get("PATH"))) is not None:
            raise SynthError(problem)
        environment = {**self.environment(), **QUICK_SYNTH, **more}
        try:
            done = subprocess.run(
                command, cwd=self.root, env=environment, capture_output=True, text=True, timeout=SYNTH_S, check=False
            )
        except subprocess.TimeoutExpired:
            raise SynthError(f"the app could not be synthesised within {SYNTH_S} seconds") from None
        if done.returncode:
            log = self._folder / "synth.log"
            log.write_text(done.stdout + done.stderr, encoding="utf-8")
            raise SynthError(f"the app could not be synthesised: {_last_line(done.stderr)} (all of it: {str(log)!r})")

    def _forget_old(self) -> None:
        used: list[tuple[float, Path]] = []
        for path in self._folder.iterdir():
            with suppress(FileNotFoundError):  # another process deletes it too
                if path.is_dir():
                    used.append((path.stat().st_mtime, path))
        used.sort(reverse=True)
        for last, folder in used[RETAINED:]:
            if last < used[0][0] - UNUSED_S:  # the newest was made just now
                shutil.rmtree(folder, ignore_errors=True)


def app_command(app: str) -> str:
    """Return the command, with a leading `python` replaced by this interpreter."""
    program, _, rest = app.partition(" ")
    return f"{shlex.quote(sys.executable)} {rest}" if program in ("python", "python3") else app


def _app_files(root: Path) -> Iterator[Path]:
    """Yield the files that a project's own app may read: all except hidden, installed and generated files."""
    for place, folders, names in os.walk(root):
        made = [
            name for name in folders if name.startswith(".") or name in MADE or (Path(place) / name / VENV).is_file()
        ]
        folders[:] = sorted(set(folders) - set(made))
        yield from (Path(place) / name for name in sorted(names) if not name.startswith("."))


def _move_into_place(made: Path, folder: Path) -> None:
    """Move the folder to its final place, unless another process has created the same folder in the meantime."""
    try:
        made.rename(folder)
    except OSError:
        if not (folder / "manifest.json").is_file():
            raise


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1].removeprefix("infra: ") if lines else "no error output"
