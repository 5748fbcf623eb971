"""Serve GET /health, /ready, /live and /metrics: the health of the stage, and its metrics."""

from helix.fleet.lambdas_health import HealthEvent, health
from helix.runtime.lambdas import serve

handler = serve("health", HealthEvent, health)
