"""Checks of the installed Node, which CDK needs. They run before Node is used, so that a problem is reported only once."""

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
"""The environment variables that silence CDK's notices about an old Node. The oldest supported Node works, but CDK prints
eleven lines about it each time. `node_advice` returns a single line."""
LOOK_S = 20


def node_problem(path: str | None = None) -> str | None:
    """Return why CDK cannot work with the Node on `path` (default: this process's PATH), or None if it can."""
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
    """Return one line of advice about a Node that works but no longer receives fixes. None for any other Node, or if the
    version cannot be determined."""
    node = shutil.which("node")
    try:
        version = None if node is None else _version(node)
    except (OSError, subprocess.SubprocessError):  # CDK reports the problem
        return None
    if version is None or _major(version) >= RECOMMENDED:
        return None
    return f"Node {_major(version)} works and gets no more fixes: Node {RECOMMENDED} or later is recommended"


def _version(node: str) -> str | None:
    """Return the version, such as 20.11.1. Raises `OSError`, `SubprocessError`."""
    done = subprocess.run([node, "--version"], capture_output=True, text=True, timeout=LOOK_S, check=False)
    found = re.match(r"v(\d+\.\S*)", done.stdout)
    return None if done.returncode or found is None else found[1]


def _major(version: str) -> int:
    return int(version.partition(".")[0])
