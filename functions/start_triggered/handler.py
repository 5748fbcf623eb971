"""Start a run for each event of a trigger, and report the events that must be redelivered."""

from helix.gateway.lambdas_triggers import QueueEvent, start_triggered
from helix.runtime.lambdas import serve

handler = serve("start_triggered", QueueEvent, start_triggered)
