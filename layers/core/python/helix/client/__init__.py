"""The WebSocket client: agents that run elsewhere, from any Python program. Needs neither AWS nor model libraries."""

from helix.client.client import HelixClient
from helix.client.link import ClientSettings, ConnectionLostError

__all__ = ["ClientSettings", "ConnectionLostError", "HelixClient"]
