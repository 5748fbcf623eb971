"""Container images for `call_tool`, with packages that are not in any layer.

Law: an image contains the same files as the zip function, plus the packages of `image`. Its Dockerfile only copies files
and does not run commands. Therefore synthesis does not need Docker, and a build does not need to emulate another CPU
architecture.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Collection, Mapping
from pathlib import Path

from aws_cdk import aws_ecr_assets as ecr_assets
from aws_cdk import aws_lambda as lambda_

from helix.infra.build import build_once
from helix.infra.config import Architecture
from helix.runtime.project import shipped

BASE = "public.ecr.aws/lambda/python"
"""The base image: https://docs.aws.amazon.com/lambda/latest/dg/python-image.html"""
VERB = "call_tool"
PLATFORMS: Mapping[Architecture, ecr_assets.Platform] = {
    "arm64": ecr_assets.Platform.LINUX_ARM64,
    "x86_64": ecr_assets.Platform.LINUX_AMD64,
}
NOT_CODE = shutil.ignore_patterns("__pycache__", "*.pyc")


def dockerfile(python: str, parts: Collection[str]) -> str:
    """Return the text of the Dockerfile. It copies the layers, in order, to the folder where Lambda extracts those of a zip
    function. Parts that rarely change come first, so that Docker can cache their image layers."""
    # Lambda's user must be able to read every file, regardless of its mode here.
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
    """Return the build context for `docker build`: the Dockerfile and the files that it copies. It is kept in `builds`.
    `layers`: folders with the content of zip layers, by name, in the order in which they are copied."""
    parts = {**layers, "function": shipped("functions") / VERB}
    text = dockerfile(python, layers)
    digest = hashlib.sha256(text.encode())
    for part, folder in parts.items():
        if folder.is_relative_to(builds):  # its name contains the digest of its content
            digest.update(f"\0{part}\0{folder.name}".encode())
            continue
        for path in sorted(path for path in folder.rglob("*") if path.is_file() and path.suffix != ".pyc"):
            with path.open("rb") as file:
                content = hashlib.file_digest(file, "sha256").hexdigest()
            digest.update(f"\0{part}\0{path.relative_to(folder).as_posix()}\0{content}".encode())

    def make(target: Path) -> None:
        (target / "Dockerfile").write_text(text, encoding="utf-8")
        for part, folder in parts.items():
            copy = _link if folder.is_relative_to(builds) else shutil.copy2  # builds never change
            shutil.copytree(folder, target / part, ignore=NOT_CODE if part == "function" else None, copy_function=copy)

    return build_once(builds, name, digest.hexdigest(), make)


def image_code(folder: Path, architecture: Architecture) -> lambda_.DockerImageCode:
    return lambda_.DockerImageCode.from_image_asset(str(folder), platform=PLATFORMS[architecture])


def _link(source: str, target: str) -> None:
    """Hard-link a file, or copy it if that is not possible."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
