"""A check that the container images of a stage can be built, and a note about the offline cloud, which does not use
them."""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
from collections.abc import Collection, Mapping

from helix.cli.output import RefusedError

PROGRAM = "CDK_DOCKER"
"""The environment variable that makes CDK use another program instead of `docker`."""
ANSWERS_S = 30


def check_builder(packages: Collection[str], environment: Mapping[str, str] = os.environ) -> None:
    """Raise `RefusedError` if `packages` need container images and this machine cannot build any."""
    if not packages:
        return
    program = environment.get(PROGRAM) or "docker"
    why = ""
    try:
        done = subprocess.run(
            [program, "version"], env=dict(environment), capture_output=True, text=True, timeout=ANSWERS_S, check=False
        )
        if done.returncode:
            said = (done.stderr or done.stdout).strip().splitlines()
            why = f"`{program} version` fails: {said[-1] if said else f'it ends with {done.returncode}'}"
    except OSError as error:
        why = f"{program!r} cannot be started ({error.strerror})"
    except subprocess.TimeoutExpired:
        why = f"`{program} version` does not answer within {ANSWERS_S} s"
    if why:
        named = ", ".join(sorted(packages))
        advice = f"Install and start Docker, or name another builder, such as finch, in {PROGRAM}"
        raise RefusedError(f"{named}: tool.helix.image asks for a container image, and {why}. {advice}")


def describe_substitute(packages: Collection[str]) -> str:
    """Return one line that says what the offline cloud uses instead of images, or "" if the stage has no images."""
    if not packages:
        return ""
    named = ", ".join(name if _is_installed(name) else f"{name} (not installed)" for name in sorted(packages))
    return f"none here: tools import {named} from this environment"


def _is_installed(name: str) -> bool:
    try:
        importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True
