"""Complete the work that crashes and lost events left unfinished. Runs every minute, or every hour at rest."""

from helix.runtime.lambdas import serve
from helix.runtime.verbs import SweepEvent, sweep

handler = serve("sweep", SweepEvent, sweep)
