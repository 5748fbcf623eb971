"""Handle an execution that ended without ending its run: fail the run, or start its next part."""

from helix.runtime.lambdas import serve
from helix.runtime.verbs import FailRunEvent, fail_run

handler = serve("fail_run", FailRunEvent, fail_run)
