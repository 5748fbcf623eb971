"""Usage counted in two ways: from the rows of every call, and from the counters that runs added to.

Law: it only reads. In a store that holds one tree of sessions at rest, both counts are the same.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from helix.core.usage_parts import COMPLETION
from helix.ports.state_store import StateStore
from helix.services.session_calls import session_calls
from helix.services.usage_counters import agent_scope, read_counts, read_totals
from helix.testing.invariants import read_tree


@dataclass(slots=True)
class _Sum:
    runs: int = 0
    calls: int = 0
    input: int = 0
    output: int = 0
    micros: int = 0


async def find_usage_problems(store: StateStore, session_id: str) -> list[str]:
    """Return where the counters of the tree's agents differ from the sum of its rows."""
    wanted: defaultdict[str, _Sum] = defaultdict(_Sum)
    for rows in await read_tree(store, session_id):
        if rows.session is None:
            continue
        tally = wanted[rows.session.agent_type]
        tally.runs += len(rows.runs)
        for call in await session_calls(store, rows.session_id):
            tally.calls += call.usage.calls
            tally.input += call.usage.prompt_tokens
            tally.output += call.usage.completion_tokens
            tally.micros += call.usage.cost_micros
    problems = []
    for agent, tally in wanted.items():
        scope = agent_scope(agent)
        for name, counts in (("hours", await read_counts(store, scope)), ("total", await read_totals(store, scope))):
            found = _Sum()
            for count in counts:
                if count.operation == COMPLETION:
                    found.runs += count.runs
                    found.calls += count.calls
                    found.input += count.input
                    found.output += count.output
                    found.micros += count.micros
            if found != tally:
                problems.append(f"usage_once: {name} of {agent!r} are {found}, its rows say {tally}")
    return problems
