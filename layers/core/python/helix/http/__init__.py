"""Agents in any ASGI app, with one line: `app.mount("/agents", helix.http.app(executor, [agent]))`."""

from helix.http.app import Encoding as Encoding
from helix.http.app import User as User
from helix.http.app import app as app

__all__ = ["Encoding", "User", "app"]
