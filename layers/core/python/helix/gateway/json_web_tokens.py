"""JSON Web Tokens: the identity that an issuer states, checked with the issuer's public keys.

Law: only signatures that public keys can verify are accepted. The token's algorithm must be accepted, and must match the
key. Issuer, audience, subject and expiry must all be present. Keys are cached. An unknown key id makes the service fetch
them again, but at most every `REFRESH_S` seconds, so that no client can make it flood the issuer.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from helix._log import get_logger
from helix.core.errors import InvalidInputError, StoreError
from helix.gateway.authoriser import Principal, refusal
from helix.ports.clock import Clock

if TYPE_CHECKING:
    from jwt import PyJWK
    from jwt.types import Options

logger = get_logger("helix.gateway")
ALGORITHMS: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
KEEP_S: Final = 600.0
REFRESH_S: Final = 30.0
LEEWAY_S: Final = 30.0
FETCH_S: Final = 5.0
LATEST: Final = 253_402_300_799
"""The end of the year 9999 in Unix seconds. A later `exp` is rejected as invalid."""
OPTIONS: Final[Options] = {
    "require": ["exp", "iss", "aud", "sub"],
    "verify_exp": False,
    "verify_nbf": False,
    "verify_iat": False,
}
"""PyJWT's own checks of times are off, because times are compared with this process's clock."""
MAX_JWKS_BYTES: Final = 256 * 1024

Fetch = Callable[[str], Awaitable[bytes]]


@dataclass(frozen=True, slots=True)
class TokenRules:
    """The rules that a token must meet."""

    issuer: str
    """The issuer (`iss`) that the token must name."""
    audience: str
    """The audience (`aud`) that the token must name."""
    jwks_url: str
    """The URL of the issuer's public keys: https, except on this machine."""
    algorithms: tuple[str, ...] = ALGORITHMS
    """The accepted signature algorithms."""
    leeway_s: float = LEEWAY_S
    """The seconds by which the issuer's clock may differ from this process's."""
    tenant_claim: str = "tenant"
    """The claim that names the tenant. A token without it belongs to no tenant."""
    user_claim: str = "sub"
    """The claim that names the user. An `email` counts only if the issuer has verified it, because any user could enter
    another's address."""

    def __post_init__(self) -> None:
        url = urlsplit(self.jwks_url)
        if not (url.scheme == "https" or (url.scheme == "http" and url.hostname in ("localhost", "127.0.0.1", "::1"))):
            raise InvalidInputError(f"the keys' URL {self.jwks_url!r} must be https, except on this machine")
        if not self.user_claim:
            raise InvalidInputError("user_claim is empty: use 'sub', unless another claim names the user")
        if not self.issuer or not self.audience:
            raise InvalidInputError("tokens are checked by issuer and audience: give both")
        if wrong := [name for name in self.algorithms if name not in ALGORITHMS]:
            raise InvalidInputError(f"algorithms {wrong} are not supported; use {', '.join(ALGORITHMS)}")


class TokenVerifier:
    def __init__(self, rules: TokenRules, clock: Clock, fetch: Fetch | None = None) -> None:
        self._rules, self._clock, self._fetch = rules, clock, fetch or fetch_url
        self._keys: list[PyJWK] = []
        self._asked_at = self._fetched_at = float("-inf")
        self._lock = asyncio.Lock()

    async def verify(self, token: str) -> tuple[Principal, float]:
        """Return the principal, and the expiry of the token (Unix seconds). Raises `NotAuthenticatedError`, and
        `StoreError` if the issuer's keys are not available."""
        import jwt

        try:
            header = jwt.get_unverified_header(token)
            algorithm = header.get("alg")
            if algorithm not in self._rules.algorithms:
                raise refusal("its algorithm is not accepted")
            key = await self._key(header.get("kid"))
            if key is None or key.algorithm_name != algorithm:
                raise refusal("its issuer has no such key")
            claims: dict[str, Any] = jwt.decode(
                token,
                key,
                algorithms=[algorithm],
                issuer=self._rules.issuer,
                audience=self._rules.audience,
                options=OPTIONS,
            )
        except (jwt.PyJWTError, ValueError, RecursionError) as error:  # the last two: JSON that Python cannot parse
            raise refusal(type(error).__name__) from error
        return self._principal(claims), self._expiry(claims)

    def _principal(self, claims: dict[str, Any]) -> Principal:
        rules = self._rules
        user, tenant = claims.get(rules.user_claim), claims.get(rules.tenant_claim)
        if not isinstance(user, str) or not isinstance(tenant, str | None):
            raise refusal(f"its {rules.user_claim} or {rules.tenant_claim} is not a string")
        if rules.user_claim == "email" and claims.get("email_verified") is not True:
            raise refusal("its email is not verified")
        return Principal(user, tenant)

    def _expiry(self, claims: dict[str, Any]) -> float:
        now, leeway = self._clock.now(), self._rules.leeway_s
        expires, begins = claims["exp"], claims.get("nbf", 0)
        for value in (expires, begins):  # the comparison also refuses NaN and both infinities
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= LATEST:
                raise refusal("its times are not Unix seconds")
        if not now < expires + leeway or not begins - leeway <= now:
            raise refusal("it has expired, or is not valid yet")
        return float(expires + leeway)

    # --- the issuer's keys ------------------------------------------------------------------------------------------------

    async def _key(self, kid: object) -> PyJWK | None:
        async with self._lock:
            now = self._clock.now()
            found = self._find_key(kid)
            stale = now - self._fetched_at > KEEP_S
            if (found is None or stale) and now - self._asked_at > REFRESH_S:
                self._asked_at = now
                await self._refresh(now)
                found = self._find_key(kid)
            if not self._keys:
                raise StoreError("the issuer's keys cannot be read")
            return found

    def _find_key(self, kid: object) -> PyJWK | None:
        if kid is None:
            return self._keys[0] if len(self._keys) == 1 else None
        return next((key for key in self._keys if key.key_id == kid), None)

    async def _refresh(self, now: float) -> None:
        """Fetch the keys. If the issuer cannot be reached, the known keys stay in use, because the issuer will respond
        again before it rotates them."""
        from jwt import PyJWKSet, PyJWTError

        try:
            body = json.loads(await self._fetch(self._rules.jwks_url))
            keys = PyJWKSet.from_dict(body).keys
        except (OSError, ValueError, PyJWTError, AttributeError, TypeError) as error:
            logger.warning("the issuer's keys could not be fetched: %s: %s", type(error).__name__, error)
            return
        self._keys = [key for key in keys if key.public_key_use in (None, "sig")]
        self._fetched_at = now


async def fetch_url(url: str) -> bytes:
    """Return the body of the response. Raises `OSError` or `ValueError`, including when the response is too long, too
    slow or a redirect."""
    async with asyncio.timeout(FETCH_S):
        return await asyncio.to_thread(_fetch, url, FETCH_S)


def _fetch(url: str, patience_s: float) -> bytes:
    from urllib.request import HTTPRedirectHandler, Request, build_opener

    class NoRedirects(HTTPRedirectHandler):
        """A handler that does not follow redirects, because they could lead out of TLS or to an address inside the
        network."""

        def redirect_request(self, *_: object) -> None:
            return None

    request = Request(url, headers={"accept": "application/json"})
    with build_opener(NoRedirects).open(request, timeout=patience_s) as response:
        body: bytes = response.read(MAX_JWKS_BYTES + 1)
    if len(body) > MAX_JWKS_BYTES:
        raise ValueError(f"the keys have more than {MAX_JWKS_BYTES} bytes")
    return body
