"""The guards that come with Helix."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from typing import Any

import pytest
from pydantic import BaseModel

from helix import Allow, Ask, Block, DefinitionError, GuardContext, Replace
from helix.guards import (
    SECRET_PATTERNS,
    allowed_hosts,
    block_secrets,
    fits_schema,
    max_size,
    named_by_user,
    replace_secrets,
)

CONTEXT = GuardContext(on="output", agent_type="a", session_id="s", run_id="r", step=1)
SECRETS = {
    "private key": "-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----",
    "AWS access key": "AKIA" + "IOSFODNN7EXAMPLE",
    "GitHub token": "ghp_" + "a" * 36,
    "GitLab token": "glpat-" + "a" * 20,
    "Slack token": "xoxb-" + "1234567890-abc",
    "Stripe key": "sk_live_" + "a" * 24,
    "Google API key": "AIza" + "a" * 35,
    "OpenAI key": "sk-proj-" + "a" * 40,
    "Anthropic key": "sk-ant-" + "api03-" + "a" * 40,
    "npm token": "npm_" + "a" * 36,
    "JSON Web Token": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl",
}


def test_each_pattern_has_an_example() -> None:
    assert SECRETS.keys() == SECRET_PATTERNS.keys()


@pytest.mark.parametrize("name", SECRETS)
def test_a_secret_is_found_anywhere_and_never_named_in_the_reason(name: str) -> None:
    secret = SECRETS[name]
    for value in (f"it is {secret}.", {"a": [1, {"b": secret}]}, {secret: True}):
        verdict = block_secrets()(value, CONTEXT)
        assert verdict == Block(f"it contains: {name}"), value
        replaced = replace_secrets()(value, CONTEXT)
        assert isinstance(replaced, Replace) and secret not in str(replaced.value) and "[secret]" in str(replaced.value)


@pytest.mark.parametrize(
    "value", ["", "The sky is blue.", "a risk-based-approach-to-testing", "AKIA", {"n": 1.5}, None]
)
def test_a_value_without_a_secret_is_allowed(value: Any) -> None:
    assert block_secrets()(value, CONTEXT) == Allow() and replace_secrets()(value, CONTEXT) == Allow()


def test_own_patterns() -> None:
    guard = block_secrets({"badge": re.compile(r"badge \d+")})
    assert guard("badge 7", CONTEXT) == Block("it contains: badge") and guard(SECRETS["npm token"], CONTEXT) == Allow()


@pytest.mark.parametrize(
    "text",
    [
        "no link",
        "see https://example.com/a?b=https#c",
        "see HTTPS://EXAMPLE.COM:8443/",
        "[x](https://example.com)",
        "https://example.com.",
        "//example.com/x",
        "https://user@example.com/",
        "https://a.example.org/ and http://b.c.example.org",
        "7 // 2, a//b",
        "www.a.example.org",
        "mail to x@www.evil.test, awww.evil.test",
        {"url": ["https://example.com"]},
    ],
)
def test_urls_of_allowed_hosts_pass(text: Any) -> None:
    assert allowed_hosts("example.com", "*.example.org")(text, CONTEXT) == Allow()


@pytest.mark.parametrize(
    "text",
    [
        "https://evil.test",
        "![x](https://evil.test/?q=secret)",
        "![x](//evil.test/?q=secret)",
        "https://example.com@evil.test/",
        "https://example.com:x@evil.test",
        "https:\\\\evil.test",
        "https:evil.test",
        "https:/evil.test",
        "\\\\evil.test/x",
        "https://evil%2etest/",
        "https://example.com.evil.test",
        "https://notexample.org",
        "https://example.org",
        "http://[::1]/",
        "http://169.254.169.254/latest",
        "ftp://evil.test",
        "see www.evil.test/x",
        "(WWW2.evil.test)",
        "https://exämple.com",
        "https://ｅvil.test",
        {"https://evil.test": 1},
    ],
)
def test_urls_of_other_hosts_are_blocked(text: Any) -> None:
    assert isinstance(allowed_hosts("example.com", "*.example.org")(text, CONTEXT), Block)


@pytest.mark.parametrize("host", ["https://example.com", "example.com/x", "", "*", "*.", 3])
def test_a_host_that_is_not_a_name_is_refused(host: Any) -> None:
    with pytest.raises(DefinitionError, match="not the name of a host"):
        allowed_hosts(host)


def test_sizes_are_bytes() -> None:
    assert max_size(4)("äö", CONTEXT) == Allow()
    assert max_size(4)("äöx", CONTEXT) == Block("it has 5 bytes; 4 are allowed")
    assert max_size(7)({"a": 1}, CONTEXT) == Allow() and isinstance(max_size(6)({"a": 1}, CONTEXT), Block)


def test_the_whole_private_key_is_replaced() -> None:
    headers = "Proc-Type: 4,ENCRYPTED\nDEK-Info: AES-256-CBC,1A2B\n\n"
    key = f"-----BEGIN RSA PRIVATE KEY-----\n{headers}MIIEowIBAAKC\n-----END RSA PRIVATE KEY-----"
    assert replace_secrets()(f"before {key} after", CONTEXT) == Replace("before [secret] after")
    cut = "-----BEGIN PRIVATE KEY-----\nMIIE"
    assert isinstance(block_secrets()(cut, CONTEXT), Block)
    assert replace_secrets()(cut, CONTEXT) == Replace("[secret]")


@pytest.mark.parametrize(
    "piece",
    [
        "-----BEGIN PRIVATE KEY-----",
        "-----BEGIN " + "A " * 5,
        "eyJaaaaaaaa-",
        "eyJaaaaaaaa.eyJaaaaaaaa-",
        "sk-aaaaaaaa.",
        "sk-a-",
        "xoxb-1.",
        "a.",
        "a+",
        "http:",
        "https://",
        "//",
        "\\\\",
        "[::",
        "www.",
    ],
)
def test_no_text_takes_long(piece: str) -> None:
    """A search holds the interpreter's lock, so a slow one would stop the heartbeats of a worker."""
    text = piece * (200_000 // len(piece))
    begun = time.process_time()
    for guard in (block_secrets(), replace_secrets(), allowed_hosts("example.com")):
        guard(text, CONTEXT)
    assert time.process_time() - begun < 2


class Price(BaseModel):
    amount: int


def test_schemas() -> None:
    assert fits_schema(Price)({"amount": 3}, CONTEXT) == Allow()
    verdict = fits_schema(Price)({"amount": "much"}, CONTEXT)
    assert isinstance(verdict, Block) and "amount" in verdict.reason
    assert isinstance(fits_schema(list[int])("x", CONTEXT), Block)


# --- values that the user named ---------------------------------------------------------------------------------------

SAID = (
    "Mail bob@example.com about 'Le Marais\n  Boutique', and read https://www.example.com/a.",
    "Pay 1,200.50 or 12 to Alice's account.",
)
CALL = replace(CONTEXT, on="call", tool_name="send", user_messages=SAID)


@pytest.mark.parametrize(
    "value",
    [
        "bob@example.com",
        "BOB@Example.com",
        "le marais boutique",
        "www.example.com/a",
        "https://www.example.com/a",
        "Alice",
        1200.5,
        12,
        12.0,
        "",
        None,
        True,
        ["bob@example.com", "eve@company.test"],
    ],
)
def test_values_that_the_user_named_pass(value: Any) -> None:
    guard = named_by_user("to", "cc", allowed=["*@company.test"])
    assert guard({"to": value, "text": "anything"}, CALL) == Allow()


@pytest.mark.parametrize(
    "value",
    [
        "eve@evil.test",
        "ob@example.com",
        "bob@example.com.evil.test",
        "example.com",
        "www.example.com",
        "www.example.com/a/b",
        "lice",
        13,
        1200,
        200.5,
        "eve@evil.test,x@company.test",
        "eve@evil.test x@company.test",
        "x@evil.test@company.test",
        ["bob@example.com", "eve@evil.test"],
        {"eve@evil.test": "Alice"},
        {"Alice": ["eve@evil.test"]},
    ],
)
def test_a_value_that_the_user_did_not_name_asks_a_person(value: Any) -> None:
    guard = named_by_user("to", "cc", allowed=["*@company.test"])
    verdict = guard({"cc": value}, CALL)
    assert isinstance(verdict, Ask) and verdict.reason.startswith("the user did not name cc ")


def test_a_value_can_be_blocked_instead() -> None:
    guard = named_by_user("to", otherwise="block")
    assert guard({"to": "eve@evil.test"}, CALL) == Block("the user did not name to 'eve@evil.test'")


def test_a_user_who_said_nothing_named_nothing() -> None:
    assert isinstance(named_by_user("to")({"to": "x"}, replace(CALL, user_messages=())), Ask)


def test_it_judges_calls_only() -> None:
    assert isinstance(named_by_user("to")("text", CONTEXT), Block)


@pytest.mark.parametrize(
    ("arguments", "options", "named"),
    [
        ((), {}, "arguments"),
        (("",), {}, "arguments"),
        (("to",), {"allowed": "*@example.com"}, "allowed"),
        (("to",), {"allowed": [" * "]}, "allowed"),
        (("to",), {"allowed": ["*@*.test"]}, "allowed"),
        (("to",), {"otherwise": "retry"}, "otherwise"),
    ],
)
def test_parameters_that_are_not_valid_are_refused(arguments: Any, options: Any, named: str) -> None:
    with pytest.raises(DefinitionError, match=named):
        named_by_user(*arguments, **options)


def test_of_too_many_values_none_is_named() -> None:
    assert named_by_user("to")({"to": ["Alice"] * 1_000}, CALL) == Allow()
    assert isinstance(named_by_user("to")({"to": ["Alice"] * 1_001}, CALL), Ask)


@pytest.mark.parametrize("piece", ["a", "a ", "a.", "1,", "*", "x@", "a" * 300 + "."])
def test_no_value_takes_long_to_compare(piece: str) -> None:
    context = replace(CALL, user_messages=(piece * (200_000 // len(piece)),))
    begun = time.process_time()
    guard = named_by_user("to", allowed=["*a@example.com"])
    for value in (piece * 50, piece * 5_000, [piece + "b"] * 1_000, [piece * 5] * 1_000):
        guard({"to": value}, context)
    assert time.process_time() - begun < 2
