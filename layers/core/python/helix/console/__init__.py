"""The console: a page that lists sessions, talks with agents and shows what runs did, served on loopback."""

from helix.console.server import ConsoleServer, Service

__all__ = ["ConsoleServer", "Service"]
