"""What encrypts a living stage stays.

Law: a stage that has a customer managed key keeps it. Objects and log lines that it has encrypted stay so when another key
takes its place: without it nobody reads them. The other way round everything stays readable.
"""

from __future__ import annotations

from collections.abc import MutableMapping

from helix.cli.cloud.stack import KEY, Deployed
from helix.cli.output import RefusedError


def keep_key(deployed: Deployed | None, wanted: str, context: MutableMapping[str, str]) -> None:
    """Set `key` of `context` where the stage has a key. `wanted`: the setting, "" for none. Raises `RefusedError`."""
    if deployed is None or not any(resource.kind == KEY for resource in deployed.resources):
        return
    if wanted == "aws":
        raise RefusedError(
            "the stage has a customer managed key, and objects and logs that only this key can read: it stays "
            "(-c key=own). A new stage may have -c key=aws"
        )
    context["key"] = "own"
