"""Record the connection of an admitted client ($connect)."""

from helix.gateway.lambdas import ConnectEvent, connect
from helix.runtime.lambdas import serve

handler = serve("ws_connect", ConnectEvent, connect)
