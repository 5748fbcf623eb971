"""Events of triggers: start a run for each, and report those that must come again."""

from helix.gateway.lambdas_triggers import QueueEvent, start_triggered
from helix.runtime.lambdas import serve

handler = serve("start_triggered", QueueEvent, start_triggered)
