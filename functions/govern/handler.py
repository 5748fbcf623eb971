"""Check the fleet every minute and when an alarm changes, and adjust its limits."""

from helix.fleet.lambdas import GovernEvent, govern
from helix.runtime.lambdas import serve

handler = serve("govern", GovernEvent, govern)
