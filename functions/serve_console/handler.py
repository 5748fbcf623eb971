"""Serve GET /console, and the files of the console page."""

from helix.gateway.lambdas_console import PageEvent, serve_console
from helix.runtime.lambdas import serve

handler = serve("serve_console", PageEvent, serve_console)
