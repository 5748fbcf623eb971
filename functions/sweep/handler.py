"""Every minute: find what crashes and lost events left."""

from helix.runtime.lambdas import serve
from helix.runtime.verbs import SweepEvent, sweep

handler = serve("sweep", SweepEvent, sweep)
