"""Apply the effects of a run that has ended."""

from helix.runtime.lambdas import serve
from helix.runtime.verbs import FinishRunEvent, finish_run

handler = serve("finish_run", FinishRunEvent, finish_run)
