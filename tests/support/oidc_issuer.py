"""An OpenID Connect issuer on loopback: discovery, authorization code with PKCE, renewable tokens, keys.

It shows no login page: each sign-in is that of `user`. It checks the duties of a client: the registered address, the
verifier, and that each code and refresh token is used once.
"""

from __future__ import annotations

import base64
import hashlib
import secrets
import time
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import jwt
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import ECAlgorithm

from helix.testing.loopback_server import LoopbackServer, RecordedRequest, Responder

CORS = {"access-control-allow-origin": "*"}


class OidcIssuer:
    """An issuer. `audience` is that of access tokens. `redirects` are the allowed redirect addresses, and `life_s` the
    lifetime of a token. `denies` is an error with which each sign-in ends. `renews` says whether it issues and accepts
    refresh tokens. `nonce` replaces the requested one. `token_origin` is the origin of the token endpoint in its document,
    where "" is this server."""

    def __init__(self, client_id: str, audience: str) -> None:
        self.client_id, self.audience = client_id, audience
        self.user, self.life_s, self.denies, self.renews = "ada", 3600.0, "", True
        self.nonce, self.token_origin = "", ""
        self.redirects: set[str] = set()
        self.renewals = 0
        self.problems: list[str] = []
        self._key, self._kid = ec.generate_private_key(ec.SECP256R1()), "k1"
        self._codes: dict[str, dict[str, str]] = {}
        self._refreshes: set[str] = set()
        self.server = LoopbackServer(self._answer)

    @property
    def url(self) -> str:
        return self.server.origin

    @property
    def jwks_url(self) -> str:
        return f"{self.url}/keys.json"

    async def _answer(self, request: RecordedRequest, responder: Responder) -> None:
        parts = urlsplit(request.path)
        match request.method, parts.path:
            case "GET", "/.well-known/openid-configuration":
                places = {
                    "authorization_endpoint": f"{self.url}/authorize",
                    "token_endpoint": f"{self.token_origin or self.url}/token",
                }
                found = {"issuer": self.url, "jwks_uri": self.jwks_url, **places}
                await responder.send_json(200, found, CORS)
            case "GET", "/keys.json":
                key: dict[str, Any] = ECAlgorithm.to_jwk(self._key.public_key(), as_dict=True)
                await responder.send_json(200, {"keys": [{**key, "kid": self._kid, "alg": "ES256", "use": "sig"}]})
            case "GET", "/authorize":
                await responder.start(302, {"location": self._authorize(dict(parse_qsl(parts.query)))})
                await responder.end()
            case "POST", "/token":
                status, body = self._token(dict(parse_qsl(request.body.decode())))
                await responder.send_json(status, body, CORS)
            case _:
                await responder.send_json(404, {})

    def _authorize(self, asked: dict[str, str]) -> str:
        back = asked.get("redirect_uri", "")
        if back not in self.redirects or asked.get("client_id") != self.client_id:
            self.problems.append(f"{asked.get('client_id')!r} may not come back to {back!r}")
            return f"{self.url}/refused"
        if (
            asked.get("response_type") != "code"
            or asked.get("code_challenge_method") != "S256"
            or "openid" not in asked["scope"]
        ):
            self.problems.append(f"{asked} is no request for a code with PKCE")
        given = {"state": asked["state"], "iss": self.url}
        if self.denies:
            return f"{back}?{urlencode({**given, 'error': self.denies})}"
        code = secrets.token_urlsafe()
        self._codes[code] = asked
        return f"{back}?{urlencode({**given, 'code': code})}"

    def _token(self, asked: dict[str, str]) -> tuple[int, dict[str, Any]]:
        nonce = None
        if asked.get("grant_type") == "authorization_code":
            begun = self._codes.pop(asked.get("code", ""), None)
            digest = hashlib.sha256(asked.get("code_verifier", "").encode()).digest()
            challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
            if begun is None or (begun["code_challenge"], begun["redirect_uri"]) != (challenge, asked["redirect_uri"]):
                self.problems.append("a code that is unknown, or was used, or whose verifier is wrong")
                return 400, {"error": "invalid_grant"}
            nonce = self.nonce or begun["nonce"]
        elif not self.renews or asked.get("refresh_token") not in self._refreshes:
            return 400, {"error": "invalid_grant", "error_description": "the session is over"}
        else:
            self._refreshes.discard(asked["refresh_token"])
            self.renewals += 1
        answer: dict[str, Any] = {
            "id_token": self.signed(aud=[self.client_id, self.audience], nonce=nonce),
            "access_token": self.signed(aud=self.audience),
        }
        answer |= {"token_type": "Bearer", "expires_in": self.life_s}
        if self.renews:
            self._refreshes.add(refresh := secrets.token_urlsafe())
            answer["refresh_token"] = refresh
        return 200, answer

    def signed(self, **claims: Any) -> str:
        now = time.time()
        body = {"iss": self.url, "sub": self.user, "iat": now, "exp": now + self.life_s, **claims}
        return jwt.encode(
            {k: v for k, v in body.items() if v is not None}, self._key, "ES256", headers={"kid": self._kid}
        )
