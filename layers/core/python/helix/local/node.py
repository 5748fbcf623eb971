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
        done = subprocess.run([node, "--version"], capture_output=True, text=True, timeout=LOOK_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{node} cannot be called, and CDK needs {NEEDED}: {error}"
    found = re.match(r"v(\d+)\.", done.stdout)
    if done.returncode or found is None:
        return f"{node} does not say its version, and CDK needs {NEEDED}"
    if int(found[1]) < OLDEST:
        return f"{node} is Node {done.stdout.strip().removeprefix('v')}: CDK needs {NEEDED}"
    return None


def node_advice() -> str | None:
    """What to say to whoever has a Node that works and gets no more fixes."""
    node = shutil.which("node")
    if node is None:
        return None
    done = subprocess.run([node, "--version"], capture_output=True, text=True, timeout=LOOK_S, check=False)
    found = re.match(r"v(\d+)\.", done.stdout)
    if found is None or int(found[1]) >= RECOMMENDED:
        return None
    return f"Node {found[1]} works and gets no more fixes: Node {RECOMMENDED} or later is recommended"
