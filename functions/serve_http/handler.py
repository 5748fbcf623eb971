"""Serve POST /run, GET /sessions/ID and GET /sessions/ID/stream."""

from helix.gateway.lambdas_http import HttpEvent, serve_http
from helix.runtime.lambdas import serve

handler = serve("serve_http", HttpEvent, serve_http)
