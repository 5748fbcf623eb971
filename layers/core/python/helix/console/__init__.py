"""The console: a web page on loopback for listing sessions, talking to agents and inspecting runs."""

from helix.console.server import ConsoleServer, Service

__all__ = ["ConsoleServer", "Service"]
