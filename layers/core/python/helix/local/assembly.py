"""What CDK synthesised: stacks in the order of their dependencies, their templates and the files that these name.

Law: reading changes nothing, and a file's key is its content's hash, as CDK made it. An archive is a function of the
files in it: no times, the same order everywhere.
"""

from __future__ import annotations

import io
import json
import os
import stat
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_EPOCH = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class Asset:
    """A file that a template names. `bucket` and `key` still have CDK's ${AWS::...} places; `zipped`: a folder to
    archive.
    """

    path: Path
    bucket: str
    key: str
    zipped: bool

    def read(self) -> bytes:
        return archive(self.path) if self.zipped and self.path.is_dir() else self.path.read_bytes()


@dataclass(frozen=True, slots=True)
class StackArtifact:
    name: str
    template: Path
    parameters: dict[str, str]
    tags: dict[str, str]


@dataclass(frozen=True, slots=True)
class Assembly:
    stacks: tuple[StackArtifact, ...]
    assets: tuple[Asset, ...]


def read_assembly(folder: Path) -> Assembly:
    artifacts: dict[str, Any] = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))["artifacts"]
    stacks, assets = [], list[Asset]()
    for name in _in_order(artifacts):
        artifact = artifacts[name]
        properties = artifact.get("properties", {})
        match artifact["type"]:
            case "aws:cloudformation:stack":
                stacks.append(
                    StackArtifact(
                        properties.get("stackName", name),
                        folder / properties["templateFile"],
                        properties.get("parameters", {}),
                        properties.get("tags", {}),
                    )
                )
            case "cdk:asset-manifest":
                assets += _assets(folder / properties["file"])
    return Assembly(tuple(stacks), tuple(assets))


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


def _in_order(artifacts: dict[str, Any]) -> list[str]:
    """Dependencies first."""
    done: list[str] = []

    def visit(name: str) -> None:
        if name not in done and name in artifacts:
            for before in artifacts[name].get("dependencies", []):
                visit(before)
            done.append(name)

    for name in artifacts:
        visit(name)
    return done


def archive(folder: Path, prefix: str = "") -> bytes:
    """A zip of the folder's files, their names behind `prefix`."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as package:
        for path in sorted(files_of(folder)):
            entry = zipfile.ZipInfo(prefix + path.relative_to(folder).as_posix(), _EPOCH)
            executable = path.stat().st_mode & stat.S_IXUSR
            entry.external_attr = (0o755 if executable else 0o644) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            package.writestr(entry, path.read_bytes())
    return packed.getvalue()


def files_of(folder: Path) -> Iterator[Path]:
    """Every file below, links followed, without what Python leaves behind."""
    for place, folders, names in os.walk(folder, followlinks=True):
        folders[:] = [name for name in folders if name != "__pycache__"]
        yield from (Path(place) / name for name in names if not name.endswith(".pyc"))
