"""Verification of Signature Version 4. botocore signs the received request again, and the two signatures must match.

Law: a request is considered signed if its signature was made with a secret that this emulator issued. The signature must be
at most five minutes old (or within its `X-Amz-Expires`). It must cover the method, path, query, host, body and each
`x-amz-` header. Only S3 accepts an unsigned body, as on AWS.
https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-create-signed-request.html
"""

from __future__ import annotations

import calendar
import hmac
import re
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from hashlib import sha256
from typing import Any
from urllib.parse import parse_qsl

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.compat import HTTPHeaders
from botocore.credentials import Credentials

ALGORITHM = "AWS4-HMAC-SHA256"
WINDOW_S, WEEK_S = 300, 7 * 24 * 3600
UNSIGNED = ("UNSIGNED-PAYLOAD", "STREAMING-UNSIGNED-PAYLOAD-TRAILER")
IN_CHUNKS = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"
_HEADER = re.compile(r"AWS4-HMAC-SHA256 +Credential=([^, ]+), *SignedHeaders=([^, ]+), *Signature=([0-9a-f]{64})")
_IN_QUERY = ("x-amz-algorithm", "x-amz-credential", "x-amz-date", "x-amz-signedheaders", "x-amz-signature")
_OLD = ("awsaccesskeyid",)  # from Signature Version 2, which is no longer used

SecretOf = Callable[[str, str], str]
"""A function that returns the secret for an access key id and a session token. Raises `SignatureError`."""


class SignatureError(Exception):
    """The request is not signed, or its signature is wrong. `code` is AWS's name for the error."""

    def __init__(self, code: str, message: str, service: str = "") -> None:
        super().__init__(message)
        self.code, self.service = code, service


@dataclass(frozen=True)
class Request:
    """A request as received."""

    method: str
    """The HTTP method."""
    path: str
    """The path, still encoded as on the wire."""
    query: str
    """The query string, still encoded as on the wire. Empty if the request does not have a query."""
    headers: Sequence[tuple[str, str]]
    """The headers in order, with names in lower case."""

    @cached_property
    def pairs(self) -> list[tuple[str, str]]:
        """The name and value pairs of the query."""
        return parse_qsl(self.query, keep_blank_values=True)

    def values_of(self, name: str) -> list[str]:
        return [value for known, value in self.headers if known == name]

    def value_of(self, name: str) -> str:
        """Return the header's value, or an empty string if it is missing. Raises `SignatureError` if the header occurs more
        than once."""
        found = self.values_of(name)
        if len(found) > 1:
            raise SignatureError("InvalidSignatureException", f"There are {len(found)} headers {name!r}.")
        return found[0] if found else ""


@dataclass(frozen=True, slots=True)
class Claim:
    """The unverified signature of a request and its parameters."""

    access_key: str
    """The id of the access key that made the signature."""
    region: str
    """The region in the credential's scope."""
    service: str
    """The service in the credential's scope, such as `s3`."""
    timestamp: str
    """The time of signing in ISO 8601, such as `20261121T140000Z`."""
    signed: tuple[str, ...]
    """The names of the signed headers, in lower case."""
    signature: str
    """The signature in hexadecimal."""
    token: str
    """The session token. Empty if the credentials do not have a token."""
    presigned: bool
    """Whether the signature is in the query rather than in a header."""
    valid_s: int = WINDOW_S
    """The number of seconds for which the signature is valid. Only a presigned request can set it."""


def is_signed(request: Request) -> bool:
    """Return whether the request carries any kind of signature."""
    names = {name.lower() for name, _ in request.pairs}
    schemes = request.values_of("authorization")
    return any(text.startswith(("AWS4-", "AWS ")) for text in schemes) or bool(names & {*_IN_QUERY, *_OLD})


def claim_of(request: Request, now: float) -> Claim:
    """Parse the signature, and check everything that does not require the secret. Raises `SignatureError`."""
    if not request.path.startswith("/") or "#" in request.path:
        raise SignatureError("InvalidSignatureException", "The path must begin with a slash and have no fragment.")
    names = Counter(name.lower() for name, _ in request.pairs)
    in_query = any(names[name] for name in (*_IN_QUERY, *_OLD))
    header = request.value_of("authorization")
    if in_query and header:
        raise SignatureError("InvalidSignatureException", "Only one way to sign is allowed: a header or the query.")
    claim = _claim_of_query(dict(request.pairs), names, request) if in_query else _claim_of_header(header, request)
    signed_at = _seconds(claim.timestamp)
    if now > signed_at + claim.valid_s or now < signed_at - WINDOW_S:
        raise SignatureError("RequestTimeTooSkewed", f"Signature expired: {claim.timestamp}.", claim.service)
    needed = {"host"} | {name for name, _ in request.headers if name.startswith("x-amz-")}
    if missing := needed - set(claim.signed):
        raise SignatureError("InvalidSignatureException", f"Headers not signed: {sorted(missing)}.", claim.service)
    return claim


def verify(request: Request, claim: Claim, secret: str, body: bytes) -> None:
    """Compare the signature with the one computed from the secret. Raises `SignatureError`."""
    declared = request.value_of("x-amz-content-sha256")
    if declared in UNSIGNED or declared.startswith(IN_CHUNKS):
        whole = claim.service == "s3"
    else:
        whole = not declared or hmac.compare_digest(declared.encode(), sha256(body).hexdigest().encode())
    signer = _Signer(claim, secret)
    wire = AWSRequest(request.method, f"http://host{request.path}", data=body)
    wire.params = [pair for pair in request.pairs if pair[0] != "X-Amz-Signature"]
    wire.context["timestamp"] = claim.timestamp
    for name, value in request.headers:
        wire.headers.add_header(name, value)
    expected = signer.signature(signer.string_to_sign(wire, signer.canonical_request(wire)), wire)
    if not hmac.compare_digest(expected, claim.signature):
        raise SignatureError("SignatureDoesNotMatch", _MISMATCH, claim.service)
    if not whole or (declared.startswith(IN_CHUNKS) and not _chunks_match(body, claim, secret)):
        raise SignatureError("SignatureDoesNotMatch", "The body is not the one that was signed.", claim.service)


_MISMATCH = (
    "The request signature we calculated does not match the signature you provided. Check your AWS Secret Access Key and "
    "signing method."
)


class _Signer(SigV4Auth):  # type: ignore[misc]
    """botocore's signer, limited to the headers that the sender signed."""

    def __init__(self, claim: Claim, secret: str) -> None:
        super().__init__(Credentials(claim.access_key, secret), claim.service, claim.region)
        self._claim = claim

    def headers_to_sign(self, request: Any) -> Any:
        chosen = HTTPHeaders()
        for name, value in request.headers.items():
            if name in self._claim.signed:
                chosen[name] = value
        return chosen

    def signed_headers(self, headers_to_sign: Any) -> str:
        return ";".join(self._claim.signed)

    def payload(self, request: Any) -> str:
        if self._claim.service == "s3" and self._claim.presigned:
            return UNSIGNED[0]
        return sha256(request.data).hexdigest()

    def _normalize_url_path(self, path: str) -> str:
        return path if self._claim.service == "s3" else str(super()._normalize_url_path(path))

    def signature(self, string_to_sign: str, request: Any) -> str:
        return str(self._sign(_key_of(self._claim, self.credentials.secret_key), string_to_sign, hex=True))


def _key_of(claim: Claim, secret: str) -> bytes:
    return _signing_key(secret, claim.timestamp[:8], claim.region, claim.service)


@lru_cache(maxsize=256)
def _signing_key(secret: str, *scope: str) -> bytes:
    """Return the signing key, which is valid for a day."""
    key = f"AWS4{secret}".encode()
    for part in (*scope, "aws4_request"):
        key = hmac.digest(key, part.encode(), "sha256")
    return key


def _chunks_match(body: bytes, claim: Claim, secret: str) -> bool:
    """Return whether each chunk of a chunked S3 upload has a valid signature, which includes the previous chunk's."""
    from ministack.core import sigv4

    scope = (claim.access_key, claim.timestamp[:8], claim.region, claim.service)
    signature = sigv4.HeaderSignature(*scope, ";".join(claim.signed), claim.signature, claim.timestamp)
    return bool(sigv4._chunk_signatures_match(body, claim.signature, signature, _key_of(claim, secret)))


def _claim_of_header(header: str, request: Request) -> Claim:
    found = _HEADER.fullmatch(header)
    if found is None:
        raise SignatureError(
            "MissingAuthenticationToken", "The request has no Signature Version 4; see docs/guide/offline.md."
        )
    return _claim(
        credential=found[1],
        timestamp=request.value_of("x-amz-date"),
        signed=found[2],
        signature=found[3],
        token=request.value_of("x-amz-security-token"),
        presigned=False,
    )


def _claim_of_query(query: dict[str, str], names: Counter[str], request: Request) -> Claim:
    if any(names[name] != 1 for name in _IN_QUERY) or names["x-amz-security-token"] > 1:
        raise SignatureError("IncompleteSignature", "Each parameter of the signature must be in the query once.")
    if query.get("X-Amz-Algorithm") != ALGORITHM:
        raise SignatureError("IncompleteSignature", f"X-Amz-Algorithm must be {ALGORITHM}.")
    expires = query.get("X-Amz-Expires", str(WINDOW_S))
    if not expires.isdecimal() or not 0 < int(expires) <= WEEK_S:
        raise SignatureError("IncompleteSignature", f"X-Amz-Expires must be at most {WEEK_S}.")
    return _claim(
        credential=query.get("X-Amz-Credential", ""),
        timestamp=query.get("X-Amz-Date", ""),
        signed=query.get("X-Amz-SignedHeaders", ""),
        signature=query.get("X-Amz-Signature", ""),
        token=query.get("X-Amz-Security-Token", ""),
        presigned=True,
        valid_s=int(expires),
    )


def _claim(credential: str, timestamp: str, signed: str, **more: Any) -> Claim:
    parts = credential.split("/")
    if len(parts) != 5 or parts[4] != "aws4_request" or parts[1] != timestamp[:8]:
        raise SignatureError("IncompleteSignature", "The credential is not KEY/DATE/REGION/SERVICE/aws4_request.")
    access_key, _, region, service, _ = parts
    return Claim(access_key, region, service, timestamp, tuple(signed.lower().split(";")), **more)


def _seconds(timestamp: str) -> int:
    try:
        return calendar.timegm(time.strptime(timestamp, "%Y%m%dT%H%M%SZ"))
    except ValueError:
        raise SignatureError("IncompleteSignature", f"The date {timestamp!r} is not in ISO 8601.") from None
