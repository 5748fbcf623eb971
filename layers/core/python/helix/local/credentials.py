"""The credentials for one start of the offline cloud, and the file from which its user gets them.

Law: the credentials are random and valid until the emulator ends. They are passed through the environment or a file that
only its owner can read, never as a process argument, because every user on the machine can read those.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from helix.adapters.system import SystemIds
from helix.ports.ids import RANDOM, new_secret

ENV_FILE = "env"
"""The file of shell variables that let the AWS CLI, SDKs and examples find the offline cloud: `source .helix/env`."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """The credentials of the account's root user."""

    access_key: str
    """The id of the access key."""
    secret_key: str
    """The secret that signs requests."""

    @property
    def variables(self) -> dict[str, str]:
        """The environment variables that the AWS CLI and SDKs read."""
        return {"AWS_ACCESS_KEY_ID": self.access_key, "AWS_SECRET_ACCESS_KEY": self.secret_key}

    @property
    def options(self) -> dict[str, str]:
        """The keyword arguments for boto3's sessions and clients."""
        return {name.lower(): value for name, value in self.variables.items()}


def new_credentials() -> Credentials:
    ids = SystemIds()
    return Credentials(f"AKIA{new_secret(ids)[:RANDOM]}", new_secret(ids))


def write_variables(path: Path, variables: Mapping[str, str]) -> None:
    write_private(path, "".join(f"export {name}={shlex.quote(value)}\n" for name, value in variables.items()))


def write_private(path: Path, text: str) -> None:
    """Write a file that is never readable by anyone but its owner. It replaces an existing file."""
    made = path.with_name(f".{path.name}.{os.getpid()}")
    made.unlink(missing_ok=True)
    with os.fdopen(os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
    made.replace(path)
