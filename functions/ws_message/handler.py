"""$default: do what a client asks, and post the answer to its connection."""

from helix.gateway.lambdas import MessageEvent, message
from helix.runtime.lambdas import serve

handler = serve("ws_message", MessageEvent, message)
