"""`serve_console` as an HTTP API calls it: the page's files and the headers of each."""

from __future__ import annotations

import base64
import dataclasses
import gzip
import json
from collections.abc import Iterator
from typing import Any

import pytest
from tests.functions.conftest import Functions

from helix.gateway.console_page import STATIC
from helix.gateway.lambdas_console import site_of

CONFIG = {"url": "wss://abc.example/dev", "files": "https://files.example", "place": "stage dev", "sign_in": ["key"]}


@pytest.fixture
def page(functions: Functions) -> Iterator[Functions]:
    app = functions.app
    app.settings = dataclasses.replace(app.settings, console=json.dumps(CONFIG))
    site_of.cache_clear()
    yield functions
    site_of.cache_clear()


def asked(page: Functions, file: str | None = None, **headers: str) -> Any:
    event = page.sample("serve_console")
    event["pathParameters"] = {"file": file} if file else None
    event["headers"] = {name.replace("_", "-"): value for name, value in headers.items()}
    return page.invoke("serve_console", event, left_s=10)


def test_the_sample_is_the_script_compressed(page: Functions) -> None:
    answer = page.invoke("serve_console", page.sample("serve_console"), left_s=10)
    assert answer["headers"]["content-encoding"] == "gzip" and answer["isBase64Encoded"] is True
    assert gzip.decompress(base64.b64decode(answer["body"])) == (STATIC / "console.js").read_bytes()


def test_every_file_of_the_bundle_is_served_and_nothing_else(page: Functions) -> None:
    for path in STATIC.iterdir():
        answer = asked(page, path.name)
        assert answer["statusCode"] == 200 and base64.b64decode(answer["body"]) == path.read_bytes()
    assert json.loads(base64.b64decode(asked(page, "config.json")["body"])) == CONFIG
    for name in ("nothing", "../server.py", "/etc/passwd", "__init__.py", "index.html/"):
        assert asked(page, name)["statusCode"] == 404
    assert asked(page)["headers"]["location"] == "console/index.html"


def test_what_a_browser_has_already_is_not_sent_again(page: Functions) -> None:
    for headers in ({}, {"accept_encoding": "gzip, br"}):
        first = asked(page, "console.js", **headers)
        assert first["headers"]["cache-control"] == "no-cache"
        tag = first["headers"]["etag"]
        for known in (tag, f"W/{tag}", f'"old", {tag}'):
            again = asked(page, "console.js", **headers, if_none_match=known)
            assert again["statusCode"] == 304 and "body" not in again
        assert asked(page, "console.js", **headers, if_none_match='"old"')["statusCode"] == 200


def test_each_answer_says_what_the_page_may_do(page: Functions) -> None:
    for file in ("index.html", "nothing", None):
        policy = asked(page, file)["headers"]["content-security-policy"]
        assert "connect-src 'self' wss://abc.example/dev https://files.example;" in policy and "unsafe" not in policy
        assert "img-src 'self' blob: https://files.example;" in policy
