"""Placements: the differences between runs in this process, in worker processes and in the functions of a stage.

Law: the engine consults the placement and never checks where it runs. A new difference becomes a field here, with its
reason.
"""

from __future__ import annotations

from dataclasses import dataclass

from helix.core.agents import AnyAgent
from helix.core.tools import AnyTool
from helix.services.usage_counters import SHARDS


@dataclass(frozen=True, slots=True)
class Placement:
    """The rules that depend on the place where runs are executed. The runtime chooses one for each engine."""

    executes_whole_runs: bool
    """Whether the worker that claims a run executes it to its end. If so, it waits while another worker holds a step or
    a call, begins every step, and uses the end of the stream that its claim read. Otherwise deliveries execute the run.
    Each delivery has limited time and few steps, and the platform repeats a delivery that meets another worker's
    claim."""
    claims_runs: bool
    """Whether a worker claims the run itself, in addition to its steps and calls. If so, an expired claim lets another
    worker take over the run under a new run id, and that worker's claim records the commits that the stream may lack.
    Otherwise the next delivery of the same run continues and records them, and it must not revive an expired claim on a
    step."""
    executes_children: bool
    """Whether the parent's worker executes sub-agents. If so, it enforces the tool's timeout and records the
    sub-agent's end. Otherwise no worker of the parent waits: the sub-agent's run gets a deadline, its end completes a
    task token, and the parent's next step records it."""
    executes_all_tools: bool
    """Whether the worker that bought a step executes all of its tool calls. Otherwise it executes only the calls of
    `inline` tools. Every other call gets a function invocation with its own timeout, memory and permissions."""
    reads_stop_before_calls: bool
    """Whether a worker reads the stop again between staging an answer and executing its calls. Otherwise the poll finds
    it, up to `Settings.stop_poll_s` later, which saves a billed read per step on a deployed stage."""
    indexes_open_runs: bool
    """Whether a run is in the index of open runs from its claim until its effects are done. The sweep needs the index,
    because an event that continues the run may be lost. Without the index, the next claim of the session repairs its
    runs, and the session's first claim writes a row that lists the user."""
    replaces_silent_parts: bool
    """Whether the sweep starts the next part of a run whose execution waits for a silent worker. A hanging function
    would end only at its timeout. A worker process has a lease on the execution, which expires on its own."""
    has_profiles: bool
    """Whether agents with resources of their own are executed by functions of their own. If so, a handoff to such an
    agent moves the run to its functions, which have the rights of its tools."""
    counter_shards: int
    """The number of rows among which each usage counter is divided. On a stage, runs may end more often than one row
    can be written."""

    def executes_tool(self, agent: AnyAgent, tool: AnyTool | None) -> bool:
        """Return whether the worker that bought a step executes this tool's call itself."""
        return self.executes_all_tools or agent.is_inline(tool)


IN_PROCESS = Placement(
    executes_whole_runs=True,
    claims_runs=True,
    executes_children=True,
    executes_all_tools=True,
    reads_stop_before_calls=True,
    indexes_open_runs=False,
    replaces_silent_parts=False,
    has_profiles=False,
    counter_shards=1,
)
"""The placement of runs that the process that claims them executes (`LocalExecutor`)."""

IN_WORKERS = Placement(
    executes_whole_runs=False,
    claims_runs=False,
    executes_children=False,
    executes_all_tools=True,
    reads_stop_before_calls=False,
    indexes_open_runs=True,
    replaces_silent_parts=False,
    has_profiles=False,
    counter_shards=1,
)
"""The placement of runs that worker processes execute, from a queue in the store (`AgentRuntime`)."""

IN_FUNCTIONS = Placement(
    executes_whole_runs=False,
    claims_runs=False,
    executes_children=False,
    executes_all_tools=False,
    reads_stop_before_calls=False,
    indexes_open_runs=True,
    replaces_silent_parts=True,
    has_profiles=True,
    counter_shards=SHARDS,
)
"""The placement of runs that a state machine and functions execute (a deployed stage)."""
