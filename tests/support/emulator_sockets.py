"""Checks of the emulator for `tests/integration/test_emulator.py`: WebSocket APIs behave as on AWS."""

from __future__ import annotations

import contextlib
from functools import partial

import pytest
from tests.support.emulator_desk import PATIENCE_S, Desk, until
from websockets.exceptions import ConnectionClosed, InvalidStatus

from helix.local import corrections_sockets


def sockets_echo_the_subprotocol(desk: Desk) -> None:
    with desk.socket(subprotocols=["helix.v1"]) as socket:
        assert socket.subprotocol == "helix.v1"


def authorizers_without_identity_source_are_always_asked(desk: Desk) -> None:
    """A browser sends its token as a subprotocol, without the Authorization header."""
    try:
        with desk.socket(authorizer=True, subprotocols=["helix.v1", "bearer.key"]):
            pass
    except InvalidStatus as error:
        raise AssertionError(f"refused: {error}") from error
    with pytest.raises(InvalidStatus, match="403"), desk.socket(authorizer=True):
        pass


def messages_without_a_route_go_to_the_default(desk: Desk) -> None:
    """This includes JSON that is nested too deeply to be read."""
    with desk.socket() as socket:
        socket.send("[" * 30_000)
        try:
            until(lambda: any("nested $default 30000" in line["line"] for line in list(desk.lines)), patience_s=10)
            socket.ping().wait(PATIENCE_S)
        except ConnectionClosed as error:
            raise AssertionError(f"the connection ended: {error}") from error


def sockets_close_on_long_frames(desk: Desk) -> None:
    """Frames of 32 KB make a message of 128 KB, in bytes."""
    most, longest = 32 * 1024, 128 * 1024
    with desk.socket() as socket:
        socket.send([b"x" * most] * 3, text=True)
        until(lambda: any(line["line"] == f"body {3 * most}" for line in list(desk.lines)))
    too_long = ("x" * (most + 1), "é" * most, [b"x" * most] * (longest // most) + [b"x"])
    for message in (*too_long, [b"x" * most] * 14, [b"x" * 1_000] * 200, "x" * 400_000):
        with desk.socket() as socket:
            with contextlib.suppress(ConnectionClosed):
                socket.send(message, text=True)
            assert until(partial(getattr, socket, "close_code"), patience_s=5) == 1009


def routes_answer_only_when_asked(desk: Desk) -> None:
    """The result of the route's function is not sent. Its failure is sent, without the error's text."""
    with desk.socket() as socket:
        socket.send("hello")
        socket.send("fail")
        answer = str(socket.recv(timeout=PATIENCE_S))
    assert "Internal server error" in answer and "secret" not in answer


def socket_messages_have_a_limit(desk: Desk) -> None:
    with desk.socket() as socket:
        posts = desk.client("apigatewaymanagementapi", endpoint_url=f"{desk.emulator.url}{socket.path}")
        connection = desk.connection_id()
        try:
            posts.post_to_connection(ConnectionId=connection, Data=b"x" * (corrections_sockets.SOCKET_MESSAGE + 1))
        except posts.exceptions.PayloadTooLargeException:
            return
        raise AssertionError("a message of more than 128 KB is posted")
