"""Buy the next step of a run, and return what its execution must do next."""

from helix.runtime.lambdas import serve
from helix.runtime.verbs import CallModelEvent, call_model, prepare_call_model

handler = serve("call_model", CallModelEvent, call_model, prepare_call_model)
