"""Hostile HTTP requests to each server of Helix. It answers or closes, writes no traceback, and serves the next request."""

from __future__ import annotations

import asyncio
import logging
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.routing import Mount, Route
from tests.integration.test_http import desk, who
from tests.support.asgi_server import serving as asgi_serving
from tests.support.command_line import CommandLine
from tests.support.hostile_requests import BOUND_S, HEADERS, LINES, HostileRequest, attack, read_all, talk

import helix.http
from helix import LocalExecutor, ScriptedModel
from helix.adapters.memory import MemoryStateStore
from helix.cli.mcp import ClosingProtocol
from helix.client import HelixClient
from helix.console.here import serve_console
from helix.console.server import ConsoleServer, Service
from helix.local.traces import TraceReceiver

SERVICE = Service("ws://127.0.0.1:1", "helix_key", "a test", ["desk"])
COUNT = 150


@pytest.fixture(autouse=True)
def quiet(capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """The rule of every test here: no traceback on standard error, in the log, or in a thread."""
    caplog.set_level(logging.INFO)
    yield
    said = capfd.readouterr()
    assert "Traceback" not in said.out + said.err, said.err[-3_000:]
    assert [
        record.getMessage() for record in caplog.records if record.exc_info or record.levelno >= logging.ERROR
    ] == []


def status_of(port: int, path: str, method: str = "GET", **headers: str) -> int:
    connection = HTTPConnection("127.0.0.1", port, timeout=BOUND_S)
    try:
        connection.request(method, path, headers=headers)
        return connection.getresponse().status
    finally:
        connection.close()


def port_of(url: str) -> int:
    return int(re.findall(r":(\d+)", url)[0])


@contextmanager
def console() -> Iterator[tuple[int, tuple[str, ...]]]:
    with ConsoleServer(SERVICE, patience_s=2) as served:
        yield served.port, ("/", "/console.js", "/sign-in", "/nothing")


@contextmanager
def traces() -> Iterator[tuple[int, tuple[str, ...]]]:
    with TraceReceiver() as served:
        secret = served.url.rpartition("/")[2]
        yield served.port, (f"/{secret}/", f"/{secret}/v1/traces", f"/{secret}/x", "/")


OURS = pytest.mark.parametrize("server", [console, traces])


@OURS
def test_hostile_requests_are_answered(server: Callable[[], Iterator[tuple[int, tuple[str, ...]]]]) -> None:
    with server() as (port, paths):  # type: ignore[attr-defined]
        answers = attack(port, COUNT, paths, lambda: status_of(port, paths[0]) == 200)
    assert {answer[9:10] for answer in answers} >= {b"4", b"2"}


@OURS
@pytest.mark.parametrize("method", [b"GET", b"POST"])
def test_each_broken_request_gets_a_short_refusal(server: Callable[[], object], method: bytes) -> None:
    with server() as (port, paths):  # type: ignore[attr-defined]
        host, path = b"host: 127.0.0.1:%d" % port, paths[-2].encode()
        lines = [line for line in LINES if line.strip()]
        broken = [b"\r\n".join([line, host, b"", b""]) for line in lines]
        fine = (b"content-encoding", b"x-", b"connection", b"expect", b"upgrade")
        headers = [one for one in HEADERS if not one.startswith(fine)]
        broken += [b"\r\n".join([method + b" " + path + b" HTTP/1.1", host, one, b"", b"abc"]) for one in headers]
        for sent in broken:
            answer = talk(port, HostileRequest((sent,), "finish"))
            head, _, body = answer.partition(b"\r\n\r\n")
            assert answer.startswith(b"HTTP/1.1 4") and len(answer) < 1_000, (sent[:200], answer[:300])
            assert answer.count(b"HTTP/1.1 ") == 1, (sent[:200], answer)
            assert b" 404 " in answer[:20] or b"connection: close" in head.lower(), (sent[:200], answer)
            assert b"<html" not in body.lower() and b"Python" not in head, answer
        assert status_of(port, paths[0]) == 200


def test_what_comes_behind_a_refused_request_is_not_read_as_another() -> None:
    with console() as (port, _):
        inner = b"GET /console.js HTTP/1.1\r\nhost: 127.0.0.1:%d\r\n\r\n" % port
        for header in (
            b"transfer-encoding: chunked",
            b"content-length: 1\r\ncontent-length: 0",
            b"content-length: 99999",
        ):
            for line in (b"POST /sign-in", b"GET /nothing", b"PUT /"):
                sent = b"%s HTTP/1.1\r\nhost: 127.0.0.1:%d\r\n%s\r\n\r\n%s" % (line, port, header, inner)
                answer = talk(port, HostileRequest((sent,), "finish"))
                assert answer.count(b"HTTP/1.1") == 1 and b"text/javascript" not in answer, (sent, answer[:300])
        good = inner * 3 + b"GET /nothing HTTP/1.1\r\nhost: 127.0.0.1:%d\r\n\r\n" % port
        assert talk(port, HostileRequest((good,), "finish")).count(b"HTTP/1.1 ") == 4, "pipelined requests are served"


@pytest.mark.parametrize("begin", [b"", b"GET /", b"GET / HTTP/1.1\r\nhost", b"POST /sign-in HTTP/1.1\r\n"])
def test_a_slow_client_is_let_go(begin: bytes) -> None:
    """It sends a byte now and then, in real time. The deadline is for the entire request, not for each byte."""
    with ConsoleServer(SERVICE, patience_s=0.3) as served:
        with socket.create_connection(("127.0.0.1", served.port), timeout=BOUND_S) as client:
            if begin.startswith(b"POST"):
                begin += b"host: 127.0.0.1:%d\r\ncontent-length: 4000\r\n\r\n" % served.port
            client.sendall(begin)
            ended = threading.Event()

            def drip() -> None:
                while begin and not ended.wait(0.05):
                    try:
                        client.sendall(b"x")
                    except OSError:
                        return

            dripping = threading.Thread(target=drip)
            dripping.start()
            try:
                answer = read_all(client)
            finally:
                ended.set()
                dripping.join()
        assert answer.startswith(b"HTTP/1.1 408") or (answer == b"" and begin == b""), answer


def answering() -> list[threading.Thread]:
    """Return the server threads that answer a request."""
    return [thread for thread in threading.enumerate() if "process_request_thread" in thread.name]


def test_a_client_that_reads_nothing_holds_no_thread() -> None:
    """The server's timeout ends the connection, in real time."""
    others = set(answering())  # of a server of an earlier test, whose client keeps a connection
    with ConsoleServer(SERVICE, patience_s=0.2) as served:
        asked = b"GET /console.js HTTP/1.1\r\nhost: 127.0.0.1:%d\r\n\r\n" % served.port
        with socket.create_connection(("127.0.0.1", served.port), timeout=BOUND_S) as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.sendall(asked * 200)
            ended, seen = threading.Event(), False
            for _ in range(200):
                own = set(answering()) - others
                seen = seen or bool(own)
                if seen and not own:
                    break
                ended.wait(0.05)
        assert seen and not own
        assert status_of(served.port, "/") == 200


async def test_the_gateway_on_loopback_answers() -> None:
    async with LocalExecutor(MemoryStateStore(), model=ScriptedModel([])) as executor:
        async with serve_console(executor, "a test") as service:
            port = port_of(service.url)
            await asyncio.to_thread(attack, port, COUNT, ("/", "/x"), lambda: status_of(port, "/") in (401, 426))
            async with HelixClient(service.url, service.token) as client:
                await client.ping()


async def test_helix_http_answers() -> None:
    """The app runs under uvicorn, as in `helix mcp`. By itself, uvicorn raises if it cannot send its own 400 response."""
    async with LocalExecutor(MemoryStateStore(), model=ScriptedModel(["Hello."] * 500)) as executor:
        mounted = helix.http.app(executor, [desk], user=who)
        async with asgi_serving(Starlette(routes=[Mount("/agents", mounted)]), http=ClosingProtocol) as url:
            port, paths = port_of(url), ("/agents/desk/ai-sdk", "/agents/desk/chunks", "/agents/x", "/")
            await asyncio.to_thread(attack, port, COUNT, paths, lambda: status_of(port, "/nothing") == 404)


async def test_mcp_on_the_web_answers() -> None:
    from tests.support_mcp_server import on_http
    from tests.support_run import agent

    from helix.core.registry import AgentRegistry
    from helix.mcp import app

    registry = AgentRegistry()
    registry.replace(agent("helper"))
    async with LocalExecutor(MemoryStateStore(), model=ScriptedModel([]), registry=registry) as executor:
        async with on_http(Starlette(routes=[Route("/mcp", app(executor))]), http=ClosingProtocol) as url:
            port = port_of(url)
            await asyncio.to_thread(attack, port, COUNT, ("/mcp", "/"), lambda: status_of(port, "/nothing") == 404)


@pytest.mark.slow  # this starts the command
def test_the_command_console_answers_and_says_nothing(tmp_path: Path) -> None:
    line = CommandLine(tmp_path)
    command = [
        sys.executable,
        "-m",
        "helix.cli",
        "console",
        "--no-open",
        "--agent",
        "agents.py:desk",
        "--model",
        "demo",
    ]
    with (tmp_path / "said").open("w") as said:
        options = {"cwd": line.folder, "env": line.environment, "text": True}
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=said, **options) as process:  # type: ignore[call-overload]
            try:
                port = port_of(process.stdout.readline())
                attack(port, COUNT, ("/", "/sign-in"), lambda: status_of(port, "/") == 200)
            finally:
                process.terminate()
    text = (tmp_path / "said").read_text()
    assert "Traceback" not in text and len(text.splitlines()) <= 3, text[-2_000:]
