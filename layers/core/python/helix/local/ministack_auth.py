"""Connects the request filter to MiniStack. It looks up the secrets that MiniStack issued, and formats refusals as
MiniStack's services do.

Law: an access key is known if it belongs to this start's root, to an IAM user, or to a session that has not expired.
MiniStack's own well-known keys ("test", and every account number) are not known.
"""

from __future__ import annotations

from typing import Any

from ministack import app
from ministack.core.iam_evaluator import AuthError, CredentialResolutionError, resolve_credential
from ministack.core.responses import _account_from_sts_session

from helix.adapters.system import SystemClock
from helix.gateway.origins import hosts_of
from helix.local.emulator import ACCOUNT
from helix.local.request_filter import RequestFilter
from helix.local.signatures import SignatureError

_WELL_KNOWN = "test"


def make_request_filter(served: Any, port: int, hosts: str) -> RequestFilter:
    """Return the filter in front of `served`. `hosts`: further host names of this machine, separated by commas."""
    allowed = hosts_of(port, filter(None, hosts.split(",")))
    return RequestFilter(served, allowed, find_secret, format_failure, SystemClock().now)


def find_secret(access_key: str, token: str) -> str:
    """Return the secret of an access key. Raises `SignatureError`."""
    if access_key in ("", _WELL_KNOWN) or access_key.isdigit():
        raise SignatureError("UnrecognizedClientException", _UNKNOWN)
    found = resolve_credential(access_key, _account_from_sts_session(access_key) or ACCOUNT, token)
    if isinstance(found, CredentialResolutionError):
        raise SignatureError(found.code, found.message)
    return str(found.secret_access_key)


_UNKNOWN = "The security token included in the request is invalid."


def format_failure(error: SignatureError, headers: dict[str, str]) -> tuple[int, dict[str, str], bytes]:
    """Return the error response in the protocol of the service that the signature names."""
    service = error.service or "dynamodb"  # its responses are plain JSON
    status, sent, body = app._credential_failure(service, "", "", AuthError(error.code, str(error)), headers)
    return status, sent, body
