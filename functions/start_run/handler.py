"""Start the sub-agent of a call. When the sub-agent ends, it completes the call's task token."""

from helix.runtime.lambdas import serve
from helix.runtime.verbs import StartRunEvent, start_run

handler = serve("start_run", StartRunEvent, start_run)
