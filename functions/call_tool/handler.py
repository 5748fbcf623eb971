"""Run one tool call of a step, once."""

from helix.runtime.lambdas import serve
from helix.runtime.verbs import CallToolEvent, call_tool, prepare_call_tool

handler = serve("call_tool", CallToolEvent, call_tool, prepare_call_tool)
