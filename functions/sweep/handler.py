"""Complete the work that crashes and lost events left unfinished. It runs every minute, or every hour while the stage is
idle."""

from helix.runtime.lambdas import serve
from helix.runtime.verbs import SweepEvent, sweep

handler = serve("sweep", SweepEvent, sweep)
