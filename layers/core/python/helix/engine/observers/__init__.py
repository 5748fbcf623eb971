"""The observers of a run's facts: the stream, hooks, metrics and traces. The table in `helix.engine.facts` lists what
each of them receives.

Law: a fact reaches its observers in this order, and only the stream can fail a run. Adding an observer takes one more
line here.
"""

from __future__ import annotations

from helix.engine.context import RunContext
from helix.engine.facts import Fact
from helix.engine.observers.chunks import put_chunks
from helix.engine.observers.hooks import call_hooks
from helix.engine.observers.telemetry import record_metrics, record_spans


def show(run: RunContext, fact: Fact) -> None:
    """Record a fact that no hook waits for. May be called from any thread of a model adapter."""
    put_chunks(run, fact)
    record_metrics(run, fact)
    record_spans(run, fact)


async def record(run: RunContext, fact: Fact) -> None:
    """Record a fact, and return once its hooks have returned."""
    show(run, fact)
    await call_hooks(run, fact)
