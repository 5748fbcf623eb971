"""Container images of `call_tool`, for packages that no layer holds.

Law: an image is what the zip function would have, and the packages of `image` beside it. Its Dockerfile copies and runs
nothing: a synthesis needs no Docker, and a build no emulation of Lambda's processor.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Collection, Mapping
from pathlib import Path

from aws_cdk import aws_ecr_assets as ecr_assets
from aws_cdk import aws_lambda as lambda_

from helix.infra.build import built
from helix.infra.config import Architecture
from helix.runtime.project import FILES

BASE = "public.ecr.aws/lambda/python"
"""https://docs.aws.amazon.com/lambda/latest/dg/python-image.html"""
VERB = "call_tool"
PLATFORMS: Mapping[Architecture, ecr_assets.Platform] = {
    "arm64": ecr_assets.Platform.LINUX_ARM64,
    "x86_64": ecr_assets.Platform.LINUX_AMD64,
}
NOT_CODE = shutil.ignore_patterns("__pycache__", "*.pyc")


def dockerfile(python: str, parts: Collection[str]) -> str:
    """Layers are where Lambda puts those of a zip function, in their order; what changes seldom comes first."""
    # The user that Lambda runs functions as must be able to read all of it, whatever the modes are here.
    copies = [f"COPY --chmod=755 {part}/ /opt/" for part in parts]
    return "\n".join(
        [
            f"FROM {BASE}:{python}",
            *copies,
            "COPY --chmod=755 function/ ${LAMBDA_TASK_ROOT}/",
            'CMD ["handler.handler"]',
            "",
        ]
    )


def image_folder(name: str, python: str, layers: Mapping[str, Path], builds: Path) -> Path:
    """What `docker build` is given: the Dockerfile, and what it copies. `layers`: by name, in the order of copying; each as
    a zip layer has it. The folder is kept in `builds`."""
    parts = {**layers, "function": FILES / "functions" / VERB}
    text = dockerfile(python, layers)
    digest = hashlib.sha256(text.encode())
    for part, folder in parts.items():
        if folder.is_relative_to(builds):  # its name has the digest of what it holds
            digest.update(f"\0{part}\0{folder.name}".encode())
            continue
        for path in sorted(path for path in folder.rglob("*") if path.is_file() and path.suffix != ".pyc"):
            with path.open("rb") as file:
                content = hashlib.file_digest(file, "sha256").hexdigest()
            digest.update(f"\0{part}\0{path.relative_to(folder).as_posix()}\0{content}".encode())

    def make(target: Path) -> None:
        (target / "Dockerfile").write_text(text, encoding="utf-8")
        for part, folder in parts.items():
            copy = _link if folder.is_relative_to(builds) else shutil.copy2  # what is built there never changes
            shutil.copytree(folder, target / part, ignore=NOT_CODE if part == "function" else None, copy_function=copy)

    return built(builds, name, digest.hexdigest(), make)


def image_code(folder: Path, architecture: Architecture) -> lambda_.DockerImageCode:
    return lambda_.DockerImageCode.from_image_asset(str(folder), platform=PLATFORMS[architecture])


def _link(source: str, target: str) -> None:
    """A copy that shares its bytes, where both are on one disk."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
