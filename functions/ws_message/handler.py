"""Handle a client's message, and post the reply to its connection ($default)."""

from helix.gateway.lambdas import MessageEvent, message
from helix.runtime.lambdas import serve

handler = serve("ws_message", MessageEvent, message)
