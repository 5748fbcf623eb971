"""A check before a deployment: the secrets that its tools use must exist."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from botocore.exceptions import ClientError

from helix.cli.output import RefusedError
from helix.core.tool_settings import SecretPlace

NOT_THERE = ("ParameterNotFound", "ResourceNotFoundException")


def check_secrets(client: Callable[[str], Any], places: Mapping[SecretPlace, str]) -> None:
    """Raise `RefusedError` with the names of missing secrets. ARNs are not checked: a secret in another account may be
    readable only for the functions."""
    missing = {
        name: place for place, name in places.items() if not place.id.startswith("arn:") and _is_missing(client, place)
    }
    if missing:
        named = ", ".join(f"{name} at {str(place)!r}" for name, place in sorted(missing.items()))
        how = "aws secretsmanager create-secret, aws ssm put-parameter --type SecureString"
        raise RefusedError(f"secrets of [tool.helix.secrets] are not there: {named}; create them first ({how})")


def _is_missing(client: Callable[[str], Any], place: SecretPlace) -> bool:
    try:
        if place.service == "ssm":
            client("ssm").get_parameter(Name=place.id)
        else:
            client("secretsmanager").describe_secret(SecretId=place.id)
    except ClientError as error:  # the user who deploys may not have the right to look
        return error.response["Error"]["Code"] in NOT_THERE
    return False
