"""$connect: a client that was let in has a connection."""

from helix.gateway.lambdas import ConnectEvent, connect
from helix.runtime.lambdas import serve

handler = serve("ws_connect", ConnectEvent, connect)
