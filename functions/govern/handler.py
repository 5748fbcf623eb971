"""Every minute, and when an alarm changes: look at the fleet, and move its limits."""

from helix.fleet.lambdas import GovernEvent, govern
from helix.runtime.lambdas import serve

handler = serve("govern", GovernEvent, govern)
