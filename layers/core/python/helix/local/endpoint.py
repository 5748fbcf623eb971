"""The AWS endpoint from the environment variable that boto3, the AWS CLI and the CDK CLI read.

Law: a template for AWS is not deployed to an emulator. The deployment would fail late, because it needs roles that only a
bootstrapped account has.
"""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Mapping
from urllib.parse import urlsplit

ENDPOINT = "AWS_ENDPOINT_URL"


def given_endpoint(environment: Mapping[str, str] = os.environ) -> str:
    """Return the endpoint without a trailing slash, or "" if the variable is not set."""
    return environment.get(ENDPOINT, "").strip().rstrip("/")


def emulator_problem(*, offline: bool, environment: Mapping[str, str] = os.environ) -> str | None:
    """Return why a template that was synthesised without `offline` cannot be deployed here, or None."""
    endpoint = given_endpoint(environment)
    if offline or not _is_loopback(endpoint):
        return None
    return (
        f"{ENDPOINT} is {endpoint!r}, an emulator on this machine, and needs a template of its own: give "
        f"-c offline=true, or unset {ENDPOINT} to deploy to AWS"
    )


def _is_loopback(url: str) -> bool:
    try:
        host = urlsplit(url).hostname or ""
        return host == "localhost" or host.endswith(".localhost") or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
