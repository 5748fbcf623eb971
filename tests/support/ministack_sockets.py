"""A WebSocket API in MiniStack, and clients on real WebSockets, which are the peers of `SocketsContract`."""

from __future__ import annotations

import asyncio
import io
import zipfile
from typing import Any

from tests.support.aws_servers import MiniStack
from websockets.asyncio.client import ClientConnection, connect

from helix.adapters.aws.sockets import sockets_config

PATIENCE_S = 20.0
WHOAMI = """
def handler(event, context):
    return {"statusCode": 200, "body": event["requestContext"]["connectionId"]}
"""
STAGE = "dev"


class SocketApi:
    """A WebSocket API whose one route tells a client its own connection id. The tests need nothing else."""

    def __init__(self, server: MiniStack) -> None:
        self._server = server
        gateway = server.client("apigatewayv2")
        made = gateway.create_api(
            Name="sockets", ProtocolType="WEBSOCKET", RouteSelectionExpression="$request.body.action"
        )
        self._path = f"/_aws/execute-api/{made['ApiId']}/{STAGE}"
        function = server.client("lambda").create_function(
            FunctionName=f"whoami-{made['ApiId']}",
            Runtime="python3.13",
            Handler="whoami.handler",
            Role="arn:aws:iam::000000000000:role/whoami",
            Code={"ZipFile": _zipped("whoami.py", WHOAMI)},
        )
        uri = f"arn:aws:apigateway:us-east-1:lambda:path/2015-03-31/functions/{function['FunctionArn']}/invocations"
        told = gateway.create_integration(ApiId=made["ApiId"], IntegrationType="AWS_PROXY", IntegrationUri=uri)
        gateway.create_route(
            ApiId=made["ApiId"],
            RouteKey="$default",
            Target=f"integrations/{told['IntegrationId']}",
            RouteResponseSelectionExpression="$default",
        )
        gateway.create_stage(ApiId=made["ApiId"], StageName=STAGE)
        self._clients: dict[str, ClientConnection] = {}
        self._unnamed: list[ClientConnection] = []

    def client(self, deadline_s: float) -> Any:
        endpoint = f"{self._server.url}{self._path}"
        return self._server.client("apigatewaymanagementapi", endpoint_url=endpoint, config=sockets_config(deadline_s))

    async def connect(self) -> str:
        url = f"ws://127.0.0.1:{self._server.port}{self._path}"
        client = await connect(url, proxy=None)
        await client.send("{}")
        self._unnamed.append(client)
        name = str(await asyncio.wait_for(client.recv(), PATIENCE_S))
        self._clients[name] = self._unnamed.pop()
        return name

    async def hang_up(self, connection_id: str) -> None:
        await self._clients[connection_id].close()
        gateway = self.client(PATIENCE_S)
        async with asyncio.timeout(PATIENCE_S):
            while True:
                try:
                    await asyncio.to_thread(gateway.get_connection, ConnectionId=connection_id)
                except gateway.exceptions.GoneException:
                    return gateway.close()

    async def received(self, connection_id: str, count: int) -> list[bytes]:
        found: list[bytes] = []
        async with asyncio.timeout(PATIENCE_S):
            while len(found) < count:
                frame = await self._clients[connection_id].recv()
                found.append(frame.encode() if isinstance(frame, str) else frame)
        return found

    async def close(self) -> None:
        for client in (*self._clients.values(), *self._unnamed):
            await client.close()


def _zipped(name: str, text: str) -> bytes:
    body = io.BytesIO()
    with zipfile.ZipFile(body, "w") as archive:
        archive.writestr(name, text)
    return body.getvalue()
