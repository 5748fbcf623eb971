"""Delete a connection and its subscriptions ($disconnect)."""

from helix.gateway.lambdas import SocketEvent, disconnect
from helix.runtime.lambdas import serve

handler = serve("ws_disconnect", SocketEvent, disconnect)
