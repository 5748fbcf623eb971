"""Access to agents over MCP: tokens, owners, host names, repeated requests."""

from typing import Any

import pytest

pytest.importorskip("mcp")

import httpx2
from starlette.applications import Starlette
from starlette.routing import Route
from tests.support_gateway import executor_of, key_for, keyed
from tests.support_mcp_server import (
    ERAS,
    HEADERS,
    INITIALIZE,
    ORDER,
    buyer,
    client_of,
    on_http,
    text_of,
)

from helix.mcp import app


@ERAS
async def test_another_users_session_is_not_found(mode: str) -> None:
    done: list[str] = []
    async with executor_of([*ORDER, "Hi."], buyer(done)) as executor:
        ada, bob = await key_for(executor, "ada"), await key_for(executor, "bob")
        async with on_http(app(executor, authoriser=keyed(executor))) as url:
            async with client_of(url, ada, mode=mode) as client:
                paused = (await client.call_tool("buyer", {"message": "tea"})).structured_content
            place = {name: paused[name] for name in ("session_id", "run_id")}
            answer = {**place, "call_id": paused["pending"][0]["call_id"], "approved": True}
            async with client_of(url, bob, mode=mode) as client:
                for name, given in (
                    ("helix__wait", place),
                    ("helix__answer", answer),
                    ("helix__interrupt", place),
                    ("buyer", {"message": "hi", "session_id": place["session_id"]}),
                ):
                    refused = await client.call_tool(name, given)
                    unknown = await client.call_tool(name, {**given, "session_id": "ses_0"})
                    assert refused.is_error and unknown.is_error
                    text = text_of(refused).replace(place["session_id"], "ses_0")
                    assert text == text_of(unknown)
            assert done == []
            state = await executor.sessions.get(place["session_id"])
            assert (state.status, state.user_id, state.turn) == ("paused", "ada", 1)


async def test_a_repeat_of_a_request_starts_no_second_run() -> None:
    """It is the same id in the same MCP session, as sent by a client that lost the answer."""
    async with executor_of(["One.", "Two."]) as executor, on_http(app(executor)) as url, httpx2.AsyncClient() as http:
        opened = await http.post(url, json=INITIALIZE, headers=HEADERS)
        headers = {**HEADERS, "mcp-session-id": opened.headers["mcp-session-id"]}
        await http.post(url, json={"jsonrpc": "2.0", "method": "notifications/initialized"}, headers=headers)
        asked = {"jsonrpc": "2.0", "id": 2, "method": "tools/call"}
        asked |= {"params": {"name": "helper", "arguments": {"message": "go"}}}
        first, again = [await http.post(url, json=asked, headers=headers) for _ in range(2)]
        assert '"output":"One."' in first.text.replace(" ", "")
        assert first.text.partition("data:")[2] == again.text.partition("data:")[2]
        other = {**asked, "params": {"name": "helper", "arguments": {"message": "other"}}}
        assert "Two." in (await http.post(url, json=other, headers=headers)).text
        assert len((await executor.sessions.list_sessions()).sessions) == 2


async def test_who_proves_nothing_is_not_answered() -> None:
    async with executor_of(["One."]) as executor:
        key = await key_for(executor, "ada")
        async with on_http(app(executor, authoriser=keyed(executor))) as url, httpx2.AsyncClient() as http:
            for token in (None, "helix_wrong", key[:-1], key + "x", "x" * 9000):
                given = {} if token is None else {"authorization": f"Bearer {token}"}
                answer = await http.post(url, json=INITIALIZE, headers={**HEADERS, **given})
                assert answer.status_code == 401
                assert "www-authenticate" in answer.headers
            good = {**HEADERS, "authorization": f"Bearer {key}"}
            opened = await http.post(url, json=INITIALIZE, headers=good)
            assert opened.status_code == 200
            other = await key_for(executor, "bob")
            stolen = {**HEADERS, "authorization": f"Bearer {other}", "mcp-session-id": opened.headers["mcp-session-id"]}
            ping = {"jsonrpc": "2.0", "id": 2, "method": "ping"}
            assert (await http.post(url, json=ping, headers=stolen)).status_code == 404


@pytest.mark.parametrize("version", ["2025-11-25", "2026-07-28"])
async def test_other_names_of_this_machine_are_not_answered(version: str) -> None:
    async with executor_of(["One."]) as executor, httpx2.AsyncClient() as http:
        async with on_http(app(executor, origins=["https://app.example.org"])) as url:
            headers = {**HEADERS, "mcp-protocol-version": version}

            async def status(**more: str) -> int:
                return (await http.post(url, json=INITIALIZE, headers={**headers, **more})).status_code

            assert await status(host="evil.example.org") == 421
            assert await status(host="evil.example.org:80") == 421
            assert await status(origin="https://evil.example.org") == 403
            assert await status(origin="null") == 403
            assert await status(origin="https://app.example.org") not in (403, 421)
            assert await status() not in (403, 421)


async def test_an_app_starts_without_a_lifespan_and_in_another_app() -> None:
    async with executor_of(["One."]) as executor:
        served = app(executor)
        outer = Starlette(routes=[Route("/mcp", served)])
        async with on_http(outer) as url, client_of(url) as client:
            assert (await client.call_tool("helper", {"message": "go"})).structured_content["output"] == "One."
        await served.aclose()
        with pytest.raises(RuntimeError, match="was closed"):
            await served({"type": "http", "headers": []}, _never, _never)


async def _never(*_: Any) -> Any:
    raise AssertionError("nothing is read or sent")
