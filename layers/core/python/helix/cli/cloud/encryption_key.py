"""The check that a deployed stage keeps its encryption key.

Law: a stage that has a customer managed key keeps it. Existing objects and log lines stay encrypted with it even if another
key replaces it, and are unreadable without it. A stage without such a key may get one, because its old data stays readable.
"""

from __future__ import annotations

from collections.abc import MutableMapping

from helix.cli.cloud.stack import KEY, Deployed
from helix.cli.output import RefusedError


def keep_key(deployed: Deployed | None, wanted: str, context: MutableMapping[str, str]) -> None:
    """Set `key` of `context` to `own` if the stage has a customer managed key. `wanted` is the user's setting, or "".
    Raises `RefusedError` if the setting would replace the key."""
    if deployed is None or not any(resource.kind == KEY for resource in deployed.resources):
        return
    if wanted == "aws":
        raise RefusedError(
            "the stage has a customer managed key, and only this key can read its objects and logs: "
            "keep -c key=own. A new stage may have -c key=aws"
        )
    context["key"] = "own"
