"""Node, which CDK needs: said once, and checked before it is used."""

from __future__ import annotations

import re
import shutil
import subprocess

OLDEST, RECOMMENDED = 20, 22
NEEDED = f"Node {OLDEST} or later (https://nodejs.org)"
NODE_NOTICES = {
    "JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION": str(OLDEST),
    "JSII_SILENCE_WARNING_DEPRECATED_NODE_VERSION": str(OLDEST),
}
"""The oldest Node serves; CDK says in eleven lines, each time, that it is old. `node_advice` says it in one."""
LOOK_S = 20


def node_problem(path: str | None = None) -> str | None:
    """Why CDK cannot work with the Node on `path` (default: this process's PATH); None where it can."""
    node = shutil.which("node", path=path)
    if node is None:
        return f"Node is missing: CDK needs {NEEDED}"
    try:
        version = _version(node)
    except (OSError, subprocess.SubprocessError) as error:
        return f"{node} cannot be called, and CDK needs {NEEDED}: {error}"
    if version is None:
        return f"{node} does not say its version, and CDK needs {NEEDED}"
    if _major(version) < OLDEST:
        return f"{node} is Node {version}: CDK needs {NEEDED}"
    return None


def node_advice() -> str | None:
    """One line for a Node that works but gets no more fixes; None for any other, and where it cannot be asked."""
    node = shutil.which("node")
    try:
        version = None if node is None else _version(node)
    except (OSError, subprocess.SubprocessError):  # CDK says what is wrong with it
        return None
    if version is None or _major(version) >= RECOMMENDED:
        return None
    return f"Node {_major(version)} works and gets no more fixes: Node {RECOMMENDED} or later is recommended"


def _version(node: str) -> str | None:
    """Such as 20.11.1. Raises `OSError`, `SubprocessError`."""
    done = subprocess.run([node, "--version"], capture_output=True, text=True, timeout=LOOK_S, check=False)
    found = re.match(r"v(\d+\.\S*)", done.stdout)
    return None if done.returncode or found is None else found[1]


def _major(version: str) -> int:
    return int(version.partition(".")[0])
