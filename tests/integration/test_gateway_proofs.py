"""Authentication of connections: API keys, JSON Web Tokens with a key server on loopback, and the places where a token may
be sent."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm
from tests.support_gateway import BRISK, executor_of
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from helix import LocalExecutor, MemoryStateStore, ScriptedModel
from helix.adapters.system import SystemClock, SystemIds
from helix.client import HelixClient
from helix.core.errors import InvalidInputError, NotAuthenticatedError, StoreError
from helix.core.registry import AgentRegistry
from helix.gateway import json_web_tokens
from helix.gateway.authoriser import ApiKeys, Authoriser, Principal, accepted_subprotocol, token_of
from helix.gateway.backend import FOREVER, OperatorBackend
from helix.gateway.connections import MAX_CONNECTION_S, ROW_MARGIN_S
from helix.gateway.gateway import Gateway
from helix.gateway.json_web_tokens import KEEP_S, REFRESH_S, TokenRules, TokenVerifier
from helix.gateway.loopback import LoopbackGateway, LoopbackSockets
from helix.testing.clocks import ShiftedClock
from helix.testing.loopback_server import LoopbackServer, RecordedRequest, Responder

ISSUER, AUDIENCE = "https://issuer.example", "helix"
ADA = Principal("ada", "acme")


# --- API keys -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def clock() -> ShiftedClock:
    return ShiftedClock()


@pytest.fixture
def keys(clock: ShiftedClock) -> ApiKeys:
    return ApiKeys(MemoryStateStore(), clock)


async def test_a_key_opens_for_its_user_and_the_store_cannot_make_it_again(keys: ApiKeys) -> None:
    key = await keys.create(SystemIds(), ADA, name="laptop")
    found = await keys.verify(key)
    assert found is not None and (found.principal, found.name, found.expires_at) == (ADA, "laptop", None)
    rows = json.dumps([row.value for row in await keys._store.query("control", f"key#{found.key_id}")])
    assert key.rpartition("_")[2] not in rows
    assert len(key.rpartition("_")[2]) == 32


async def test_wrong_keys_open_nothing(keys: ApiKeys) -> None:
    key = await keys.create(SystemIds(), ADA)
    other = await keys.create(SystemIds(), Principal("bob"))
    ident, secret = key.split("_")[1:]
    for wrong in (
        f"helix_{ident}_{other.rpartition('_')[2]}",
        f"helix_{ident}_{secret[:-1]}",
        f"helix_{ident}_{secret.lower()}",
        f"helix_{'0' * 26}_{secret}",
        f"helix_{ident}_",
        f"helix_{ident}",
        f"{key}\n",
        "",
    ):
        assert await keys.verify(wrong) is None


async def test_revoked_and_expired_keys_open_nothing(keys: ApiKeys, clock: ShiftedClock) -> None:
    lasting = await keys.create(SystemIds(), ADA)
    short = await keys.create(SystemIds(), ADA, expires_at=clock.now() + 60)
    assert await keys.verify(short) is not None
    clock.ahead_s = 61
    assert await keys.verify(short) is None
    ident = lasting.split("_")[1]
    assert await keys.revoke(ident) and await keys.revoke(ident)
    assert await keys.verify(lasting) is None
    assert not await keys.revoke("0" * 26)
    listed = await keys.list()
    assert [key.key_id for key in listed] == sorted([ident, short.split("_")[1]])
    assert [key.revoked_at is not None for key in listed if key.key_id == ident] == [True]
    assert [key.key_id for key in await keys.list(limit=1, after=listed[0].key_id)] == [listed[1].key_id]
    with pytest.raises(InvalidInputError):
        await keys.create(SystemIds(), ADA, expires_at=clock.now() - 1)


# --- JSON Web Tokens ----------------------------------------------------------------------------------------------------

RSA_KEY = rsa.generate_private_key(65537, 2048)
EC_KEY = ec.generate_private_key(ec.SECP256R1())
ED_KEY = ed25519.Ed25519PrivateKey.generate()


def public(kid: str, key: Any, algorithm: str, **more: Any) -> dict[str, Any]:
    makers: dict[str, Any] = {"R": RSAAlgorithm, "P": RSAAlgorithm, "E": ECAlgorithm}
    maker = OKPAlgorithm if algorithm == "EdDSA" else makers[algorithm[0]]
    made: dict[str, Any] = maker.to_jwk(key.public_key(), as_dict=True)
    return {**made, "kid": kid, "alg": algorithm, "use": "sig", **more}


class Issuer:
    """A key server, and the tokens that its keys sign."""

    def __init__(self) -> None:
        self.keys = [public("r1", RSA_KEY, "RS256"), public("e1", EC_KEY, "ES256"), public("d1", ED_KEY, "EdDSA")]
        self.status = 200
        self.server = LoopbackServer(self._answer)

    async def _answer(self, request: RecordedRequest, responder: Responder) -> None:
        await responder.send_json(self.status, {"keys": self.keys})

    @property
    def rules(self) -> TokenRules:
        return TokenRules(ISSUER, AUDIENCE, f"{self.server.origin}/keys.json")


def token(
    clock: ShiftedClock, key: Any = RSA_KEY, algorithm: str = "RS256", kid: str | None = "r1", **claims: Any
) -> str:
    now = clock.now()
    body = {"iss": ISSUER, "aud": AUDIENCE, "sub": "ada", "exp": now + 300, "iat": now, **claims}
    given = {name: value for name, value in body.items() if value is not None}
    return jwt.encode(given, key, algorithm, headers={"kid": kid} if kid else {})


@pytest.fixture
async def issuer() -> AsyncIterator[Issuer]:
    made = Issuer()
    async with made.server:
        yield made


@pytest.fixture
def verifier(issuer: Issuer, clock: ShiftedClock) -> TokenVerifier:
    return TokenVerifier(issuer.rules, clock)


async def test_tokens_of_the_issuer_open_for_their_subject(verifier: TokenVerifier, clock: ShiftedClock) -> None:
    expires = clock.now() + 120
    assert (await verifier.verify(token(clock, exp=expires)))[0] == Principal("ada")
    assert (await verifier.verify(token(clock, EC_KEY, "ES256", "e1", tenant="acme")))[0] == ADA
    principal, until = await verifier.verify(token(clock, ED_KEY, "EdDSA", "d1", aud=["other", AUDIENCE], exp=expires))
    assert principal == Principal("ada") and until == pytest.approx(expires + 30, abs=1)


async def test_tokens_that_are_not_for_us_are_refused(verifier: TokenVerifier, clock: ShiftedClock) -> None:
    now, other = clock.now(), rsa.generate_private_key(65537, 2048)
    good = token(clock)
    head, body, signature = good.split(".")
    secret = public("r1", RSA_KEY, "RS256")["n"]  # the public key, used as a secret
    for wrong in (
        token(clock, iss="https://other.example"),
        token(clock, aud="other"),
        token(clock, exp=now - 31),
        token(clock, nbf=now + 60),
        token(clock, exp=True),
        token(clock, sub=None),
        token(clock, exp=None),
        token(clock, aud=None),
        token(clock, iss=None),
        token(clock, sub=""),
        token(clock, sub="x" * 300),
        token(clock, tenant=7),
        token(clock, other),
        token(clock, kid="unknown"),
        token(clock, kid=None),
        token(clock, kid="e1"),
        jwt.encode(
            {"iss": ISSUER, "aud": AUDIENCE, "sub": "ada", "exp": now + 60}, secret, "HS256", headers={"kid": "r1"}
        ),
        jwt.encode({"iss": ISSUER, "aud": AUDIENCE, "sub": "ada", "exp": now + 60}, "", "none", headers={"kid": "r1"}),
        f"{head}.{body}.",
        f"{head}.{body}x.{signature}",
        "a.b.c",
        "nothing",
        "",
    ):
        with pytest.raises(NotAuthenticatedError):
            await verifier.verify(wrong)
    assert (await verifier.verify(good))[0] == Principal("ada")


async def test_another_claim_may_name_the_user(issuer: Issuer, clock: ShiftedClock) -> None:
    by_name = TokenVerifier(replace(issuer.rules, user_claim="preferred_username"), clock)
    assert (await by_name.verify(token(clock, preferred_username="ada.l")))[0] == Principal("ada.l")
    for wrong in (token(clock), token(clock, preferred_username=7), token(clock, preferred_username="")):
        with pytest.raises(NotAuthenticatedError):
            await by_name.verify(wrong)
    by_email = TokenVerifier(replace(issuer.rules, user_claim="email"), clock)
    mine = {"email": "ada@example.com"}
    assert (await by_email.verify(token(clock, **mine, email_verified=True)))[0] == Principal("ada@example.com")
    for verified in (None, False, "true", 1):
        with pytest.raises(NotAuthenticatedError):
            await by_email.verify(token(clock, **mine, email_verified=verified))


async def test_keys_that_are_too_many_come_from_elsewhere_or_never_come_are_none(
    issuer: Issuer, clock: ShiftedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json_web_tokens, "FETCH_S", 0.3)
    for answer in ("flood", "elsewhere", "drip"):
        async with LoopbackServer(partial(_bad_keys, answer)) as server:
            verifier = TokenVerifier(replace(issuer.rules, jwks_url=f"{server.origin}/keys.json"), clock)
            async with asyncio.timeout(5):
                with pytest.raises(StoreError):
                    await verifier.verify(token(clock))


async def _bad_keys(answer: str, request: RecordedRequest, responder: Responder) -> None:
    if answer == "elsewhere":  # a redirect could lead from TLS to plain HTTP, or to an internal address
        await responder.start(302, {"location": "http://localhost:1/keys.json"})
        await responder.end()
        return
    await responder.start(200, {"content-type": "application/json"})
    with contextlib.suppress(ConnectionError):
        for _ in range(1000):
            await responder.send(b" " * (2048 if answer == "flood" else 1))
            await asyncio.sleep(0.1 if answer == "drip" else 0)
        await responder.end()


@pytest.mark.parametrize("claim", ["exp", "nbf"])
@pytest.mark.parametrize(
    "value", [float("inf"), float("-inf"), float("nan"), -1, 10**15, 1e300, 10**400, "9999999999", True, [], {}]
)
async def test_times_that_are_no_times_are_refused(
    verifier: TokenVerifier, clock: ShiftedClock, claim: str, value: Any
) -> None:
    with pytest.raises(NotAuthenticatedError):
        await verifier.verify(_signed(clock, **{claim: value}))


async def test_a_token_whose_json_python_cannot_read_is_refused(verifier: TokenVerifier, clock: ShiftedClock) -> None:
    deep: Any = json.loads("[" * 900 + "]" * 900)
    for _ in range(4):
        assert (await verifier.verify(_signed(clock, extra=deep)))[0] == Principal("ada")
    nested = jwt.api_jws.encode(b'{"a":' + b"[" * 3000 + b"]" * 3000 + b"}", RSA_KEY, "RS256", headers={"kid": "r1"})
    digits = jwt.api_jws.encode(b'{"exp":' + b"9" * 5000 + b"}", RSA_KEY, "RS256", headers={"kid": "r1"})
    for wrong in (nested, digits):
        with pytest.raises(NotAuthenticatedError):
            await verifier.verify(wrong)


def _signed(clock: ShiftedClock, **claims: Any) -> str:
    """Sign a token with these times unchanged. PyJWT refuses to create some of them."""
    body = {"iss": ISSUER, "aud": AUDIENCE, "sub": "ada", "exp": int(clock.now()) + 300, **claims}
    return jwt.api_jws.encode(json.dumps(body).encode(), RSA_KEY, "RS256", headers={"kid": "r1"})


async def test_a_clock_that_is_a_little_off_is_forgiven(verifier: TokenVerifier, clock: ShiftedClock) -> None:
    await verifier.verify(token(clock, exp=clock.now() - 20))
    await verifier.verify(token(clock, nbf=clock.now() + 20))


async def test_keys_are_fetched_once_and_again_for_a_key_that_is_new(
    issuer: Issuer, verifier: TokenVerifier, clock: ShiftedClock
) -> None:
    await asyncio.gather(*(verifier.verify(token(clock)) for _ in range(5)))
    assert len(issuer.server.requests) == 1
    fresh = ec.generate_private_key(ec.SECP256R1())
    issuer.keys.append(public("e2", fresh, "ES256"))
    for _ in range(3):  # a client that invents key ids does not cause a request each time
        with pytest.raises(NotAuthenticatedError):
            await verifier.verify(token(clock, fresh, "ES256", "e2"))
    assert len(issuer.server.requests) == 1
    clock.ahead_s += REFRESH_S + 1
    assert (await verifier.verify(token(clock, fresh, "ES256", "e2")))[0] == Principal("ada")
    assert len(issuer.server.requests) == 2


async def test_while_the_issuer_is_away_its_known_keys_count(
    issuer: Issuer, verifier: TokenVerifier, clock: ShiftedClock
) -> None:
    await verifier.verify(token(clock))
    issuer.status = 503
    clock.ahead_s = KEEP_S + 60
    await verifier.verify(token(clock))
    assert len(issuer.server.requests) == 2
    unlucky = TokenVerifier(issuer.rules, clock)
    with pytest.raises(StoreError):
        await unlucky.verify(token(clock))


async def test_a_key_that_is_not_for_signing_or_of_another_algorithm_signs_nothing(
    issuer: Issuer, clock: ShiftedClock
) -> None:
    issuer.keys = [public("r1", RSA_KEY, "RS256", use="enc"), public("r2", RSA_KEY, "RS512")]
    verifier = TokenVerifier(issuer.rules, clock)
    for kid in ("r1", "r2"):
        with pytest.raises(NotAuthenticatedError):
            await verifier.verify(token(clock, kid=kid))


@pytest.mark.parametrize(
    "fields",
    [
        {"jwks_url": "http://issuer.example/keys"},
        {"jwks_url": "file:///etc/passwd"},
        {"issuer": ""},
        {"audience": ""},
        {"user_claim": ""},
        {"algorithms": ("HS256",)},
        {"algorithms": ("none",)},
    ],
)
def test_rules_that_would_let_anybody_in_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError):
        TokenRules(**{"issuer": ISSUER, "audience": AUDIENCE, "jwks_url": "https://issuer.example/keys", **fields})


# --- the authoriser -----------------------------------------------------------------------------------------------------


async def test_keys_and_tokens_may_both_count(
    issuer: Issuer, verifier: TokenVerifier, keys: ApiKeys, clock: ShiftedClock
) -> None:
    both = Authoriser(clock, keys=keys, tokens=verifier)
    key = await keys.create(SystemIds(), ADA)
    proof = await both.prove(key)
    assert proof.principal == "acme/ada"
    assert proof.expires_at == pytest.approx(clock.now() + MAX_CONNECTION_S + ROW_MARGIN_S, abs=5)
    assert (await both.prove(token(clock, exp=clock.now() + 100))).expires_at == pytest.approx(clock.now() + 130, abs=5)
    for authoriser, proof_of in (
        (Authoriser(clock, keys=keys), token(clock)),
        (Authoriser(clock, tokens=verifier), key),
        (both, None),
        (both, "x" * 10_000),
    ):
        with pytest.raises(NotAuthenticatedError):
            await authoriser.prove(proof_of)


async def test_nobody_is_asked_only_where_that_is_said(clock: ShiftedClock, keys: ApiKeys) -> None:
    assert (await Authoriser(clock, anonymous=True).prove(None)).principal is None
    with pytest.raises(InvalidInputError):
        Authoriser(clock)
    with pytest.raises(InvalidInputError):
        Authoriser(clock, keys=keys, anonymous=True)


@pytest.mark.parametrize(
    ("headers", "found"),
    [
        ({"Authorization": "Bearer abc"}, "abc"),
        ({"authorization": "bearer  abc "}, "abc"),
        ({"Authorization": "Basic abc"}, None),
        ({"Authorization": "Bearer "}, None),
        ({"Sec-WebSocket-Protocol": "helix.v1, bearer.a.b.c"}, "a.b.c"),
        ({"sec-websocket-protocol": "bearer."}, None),
        ({"sec-websocket-protocol": "helix.v1"}, None),
        ({}, None),
    ],
)
def test_where_a_token_may_be(headers: dict[str, str], found: str | None) -> None:
    assert token_of(headers) == found


def test_the_token_is_never_echoed() -> None:
    assert accepted_subprotocol({"Sec-WebSocket-Protocol": "bearer.secret, helix.v1"}) == "helix.v1"
    assert accepted_subprotocol({"Sec-WebSocket-Protocol": "bearer.secret"}) is None


async def test_the_handshake_of_a_browser_and_of_a_program(issuer: Issuer, verifier: TokenVerifier) -> None:
    executor = executor_of(["Hello."])
    clock = ShiftedClock()
    async with executor, LoopbackGateway(executor, authoriser=Authoriser(clock, tokens=verifier)) as server:
        offered: Any = ["helix.v1", f"bearer.{token(clock)}"]
        async with connect(server.url, subprotocols=offered) as socket:
            assert socket.subprotocol == "helix.v1"
            await socket.send('{"v":1,"action":"authenticate","id":"a"}')
            assert json.loads(await socket.recv())["result"]["principal"] == "ada"
        with pytest.raises(InvalidStatus):
            await connect(f"{server.url}/?token={token(clock)}")  # never in the URL
        async with HelixClient(server.url, token(clock), settings=BRISK) as client:
            assert (await client.whoami())["prefix"] == "ada:"
            renewed = await client.authenticate(token(clock, exp=clock.now() + 1000))
            assert float(str(renewed["expires_at"])) == pytest.approx(clock.now() + 1030, abs=5)


async def test_an_operator_whom_iam_has_authorised_is_told_who_it_is() -> None:
    async with LocalExecutor(MemoryStateStore(), model=ScriptedModel([]), registry=AgentRegistry()) as executor:
        gateway = Gateway(OperatorBackend(executor, LoopbackSockets(), Authoriser(SystemClock(), anonymous=True)))
        said = json.loads(await gateway.respond('{"v": 1, "action": "authenticate", "id": "1"}'))
    assert said["type"] == "reply", said
    assert said["result"] == {"principal": None, "expires_at": FOREVER, "operator": True, "prefix": ""}
