"""GET /health, /ready, /live and /metrics: whether the stage is well, and what it has done."""

from helix.fleet.lambdas_health import HealthEvent, health
from helix.runtime.lambdas import serve

handler = serve("health", HealthEvent, health)
