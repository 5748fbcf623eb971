"""The WebSocket client. It runs deployed agents from any Python program, and requires neither AWS nor model
libraries."""

from helix.client.client import HelixClient
from helix.client.link import ClientSettings, ConnectionLostError

__all__ = ["ClientSettings", "ConnectionLostError", "HelixClient"]
