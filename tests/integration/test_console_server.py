"""The server of the console: access to the page and to the token, and the page's permissions in a browser."""

from __future__ import annotations

import gzip
import http.client
import json
import random
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.properties.hostile_values import hostile
from tests.support.command_line import CommandLine

from helix import Agent, LLMConfig, LocalExecutor, ScriptedModel
from helix.client import HelixClient
from helix.console.here import serve_console
from helix.console.server import ConsoleServer, Service, storage_of
from helix.core.errors import HelixError, NotAuthenticatedError
from helix.core.registry import AgentRegistry
from helix.gateway.console_page import STATIC

FILES = "https://bucket.s3.eu-central-1.amazonaws.com"
SERVICE = Service("wss://abc.execute-api.eu-central-1.amazonaws.com/dev", "helix_key", "a test", ["desk"], FILES)
FIRST_BYTES, ALL_BYTES, DIAGRAM_BYTES = 90_000, 400_000, 500_000


@pytest.fixture
def console() -> Iterator[ConsoleServer]:
    with ConsoleServer(SERVICE) as made:
        yield made


def asked(
    console: ConsoleServer, method: str, path: str, body: object = None, **headers: str
) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", console.port, timeout=10)
    sent = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    connection.request(method, path, sent, {name.replace("_", "-"): value for name, value in headers.items()})
    answer = connection.getresponse()
    found = answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
    connection.close()
    return found


def test_the_code_of_the_address_gives_the_token(console: ConsoleServer) -> None:
    status, headers, body = asked(console, "POST", "/sign-in", {"code": console.address.partition("#code=")[2]})
    assert (status, headers["cache-control"], headers["content-type"]) == (200, "no-store", "application/json")
    assert json.loads(body) == {
        "url": SERVICE.url,
        "token": "helix_key",
        "place": "a test",
        "agents": [{"name": "desk"}],
    }


WRONG: list[object] = [{"code": ""}, {"code": "A" * 32}, {"code": 7}, {"code": "\ud800"}, {}, [], b"{", b"\xff", b""]


@pytest.mark.parametrize("body", WRONG, ids=repr)
def test_without_the_code_nothing_is_given(console: ConsoleServer, body: object) -> None:
    status, _, answer = asked(console, "POST", "/sign-in", body)
    assert status == 403 and b"helix_key" not in answer and b"execute-api" not in answer


def test_two_consoles_have_two_codes(console: ConsoleServer) -> None:
    with ConsoleServer(SERVICE) as other:
        assert asked(other, "POST", "/sign-in", {"code": console.code})[0] == 403


FOREIGN = [
    {"host": "evil.example"},
    {"host": "evil.example:{port}"},
    {"origin": "https://evil.example"},
    {"origin": "null"},
    {"origin": "http://127.0.0.1:1"},
    {"sec_fetch_site": "cross-site"},
    {"sec_fetch_site": "same-site"},
]


@pytest.mark.parametrize("headers", FOREIGN, ids=str)
def test_pages_of_others_and_rebound_names_are_refused(console: ConsoleServer, headers: dict[str, str]) -> None:
    given = {name: value.format(port=console.port) for name, value in headers.items()}
    for status, _, body in (
        asked(console, "POST", "/sign-in", {"code": console.code}, **given),
        asked(console, "GET", "/console.js", **given),
    ):
        assert status == 403 and body.startswith(b"This request is refused"), body


def test_a_link_on_a_page_may_lead_here(console: ConsoleServer) -> None:
    link = {"sec_fetch_site": "cross-site", "sec_fetch_mode": "navigate"}
    assert asked(console, "GET", "/", **link)[0] == 200
    assert asked(console, "GET", "/", host="evil.example", **link)[0] == 403
    assert asked(console, "POST", "/sign-in", {"code": console.code}, **link)[0] == 403


def test_every_answer_says_what_the_page_may_do(console: ConsoleServer) -> None:
    for method, path in (("GET", "/"), ("GET", "/console.js"), ("GET", "/nothing"), ("POST", "/sign-in")):
        _, headers, _ = asked(console, method, path, {} if method == "POST" else None)
        policy = dict(part.split(" ", 1) for part in headers["content-security-policy"].split("; "))
        assert policy["default-src"] == "'none'" and policy["frame-ancestors"] == "'none'"
        assert policy["script-src"] == policy["style-src"] == "'self'"
        assert policy["connect-src"] == f"'self' wss://abc.execute-api.eu-central-1.amazonaws.com {FILES}"
        assert policy["img-src"] == f"'self' blob: {FILES}"
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff" and headers["referrer-policy"] == "no-referrer"


def test_only_the_bundle_is_served(console: ConsoleServer) -> None:
    for path in ("/../server.py", "/%2e%2e/server.py", "/static/index.html", "/.git", "//etc/passwd", "/server.py"):
        assert asked(console, "GET", path)[0] == 404
    assert asked(console, "POST", "/sign-in", b"x" * 5000)[0] == 413
    assert asked(console, "GET", "/")[1]["content-type"].startswith("text/html")
    assert asked(console, "GET", "/console.js?v=1")[1]["content-type"].startswith("text/javascript")


def test_the_bundle_is_small_and_has_nothing_inline() -> None:
    packed = {path.name: len(gzip.compress(path.read_bytes(), 9)) for path in STATIC.iterdir()}
    assert {"index.html", "console.js"} <= packed.keys()
    page = (STATIC / "index.html").read_text(encoding="utf-8")
    sheets = re.findall(r'href="\./([\w-]+\.css)"', page)
    first, found = {*sheets, "console.woff2", "icon.svg", "index.html"}, ["console.js"]
    while found:  # with all that it imports at once
        first.add(name := found.pop())
        found += set(re.findall(r'from *"\./([\w.-]+)"', (STATIC / name).read_text(encoding="utf-8"))) - first
    drawing = "console-diagram.worker.js"
    assert (
        not {"console-markdown.js", "console-highlight.js", "console-formula.js", "console-diagram.js", drawing} & first
    )
    assert sum(packed[name] for name in first) < FIRST_BYTES, packed
    assert packed.pop(drawing) < DIAGRAM_BYTES and (STATIC / drawing).stat().st_size < 2_000_000
    assert sum(packed.values()) < ALL_BYTES, packed
    assert "<style" not in page and "style=" not in page and "<script>" not in page and "http" not in page


async def test_a_store_is_served_to_the_holder_of_the_token_alone(tmp_path: Path) -> None:
    registry = AgentRegistry()
    registry.replace(Agent(name="desk", system_prompt="x", llm_config=LLMConfig(model="scripted")))
    model = ScriptedModel(["Good morning."])
    async with LocalExecutor(str(tmp_path / "a.db"), model=model, registry=registry) as executor:
        async with serve_console(executor, "a.db") as service:
            assert service.agents == ["desk"] and service.token is not None
            async with HelixClient(service.url, service.token) as client:
                handle = await client.run("desk", "Hello")
                assert (await handle.result(30)).text == "Good morning."
                listed: Any = await client.list_sessions()
                assert [one["session_id"] for one in listed["sessions"]] == [handle.session_id]
            for token in (None, "", "x", service.token[:-1]):
                with pytest.raises(NotAuthenticatedError):
                    async with HelixClient(service.url, token):
                        pass


async def test_a_store_without_agents_is_looked_at(tmp_path: Path) -> None:
    db = str(tmp_path / "a.db")
    agent = Agent[Any, Any](name="desk", system_prompt="x", llm_config=LLMConfig(model="scripted"))
    async with LocalExecutor(db, model=ScriptedModel(["Hi."])) as executor:
        session_id = (await (await executor.execute(agent, "Hello", user_id="ada")).result()).session_id
    async with LocalExecutor(db, registry=AgentRegistry()) as executor, serve_console(executor, db) as service:
        async with HelixClient(service.url, service.token) as client:
            snapshot: dict[str, Any] = await client.get_snapshot(session_id)
            assert len(snapshot["messages"]) == 2, "for every owner"
            assert (await client.whoami())["operator"] is True and (await client.get_fleet())["agents"] == []
            with pytest.raises(HelixError, match="agent"):
                await client.run("desk", "More", session_id=session_id)


def test_the_command_needs_something_to_show(tmp_path: Path) -> None:
    line = CommandLine(tmp_path)
    assert "there is no store" in line("console", "--no-open").refusal
    refused = line("console", "--no-open", "--url", "ws://127.0.0.1:1", "--model", "demo").refusal
    assert "--agent and --model are for agents that run on this machine" in refused


def test_a_port_that_is_taken_is_said(console: ConsoleServer) -> None:
    with pytest.raises(OSError):
        ConsoleServer(SERVICE, port=console.port)


def test_hostile_codes_are_refused(console: ConsoleServer) -> None:
    rng = random.Random(14)
    for _ in range(300):
        body: bytes = rng.choice((b"[]", b"{" * 4000, b"null"))
        with suppress(ValueError, TypeError, RecursionError):
            body = json.dumps({"code": hostile(rng)}, ensure_ascii=rng.random() < 0.5).encode("utf-8", "surrogatepass")
        status, _, answer = asked(console, "POST", "/sign-in", body)
        assert status == (413 if len(body) > 4096 else 403) and b"helix_key" not in answer, (status, body[:200])


def test_the_files_of_a_service_are_in_its_region_if_only_its_address_is_known() -> None:
    assert storage_of("wss://a1.execute-api.eu-central-1.amazonaws.com/x") == "https://*.s3.eu-central-1.amazonaws.com"
    assert storage_of("wss://chat.example.com") == "https://*.amazonaws.com"
    assert storage_of("ws://127.0.0.1:4566/x") == "http://127.0.0.1:*"
