"""The console: a page on loopback that lists sessions, talks to agents and shows what their runs did."""

from helix.console.server import ConsoleServer, Service

__all__ = ["ConsoleServer", "Service"]
