"""The recorded state of one process of the fleet."""

from __future__ import annotations

from enum import StrEnum

from pydantic import BaseModel, ConfigDict


class ProcessStatus(StrEnum):
    """The state of a process.

    `failed`: the supervisor gave up, because the process does not start or keeps dying. `crashed`: the process died and
    will be restarted.
    """

    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    STOPPED = "stopped"
    FAILED = "failed"
    CRASHED = "crashed"


OVER = frozenset({ProcessStatus.STOPPED, ProcessStatus.FAILED})
"""The final states. A process leaves them only at a user's request."""


class ProcessInfo(BaseModel):
    """A process and its current life. The process manager of its supervisor writes it as a row."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    process_id: str
    """The id of the process across all its lives. Ids sort by time."""
    name: str
    """The name of the agent that the process serves."""
    pid: int | None = None
    """The operating system's process id. None while there is no process."""
    status: ProcessStatus = ProcessStatus.STARTING
    """The state of the process."""
    cpu_percent: float = 0.0
    """The CPU usage in percent of one core: 200 is two cores."""
    memory_mb: float = 0.0
    """The memory of the process and its descendants in MiB."""
    cpu_limit: float | None = None
    """The CPU limit in cores. None: no limit."""
    memory_limit_mb: int | None = None
    """The memory limit in MiB. None: no limit."""
    started_at: float | None = None
    """The start of the current life in Unix seconds."""
    stopped_at: float | None = None
    """The end of the process in Unix seconds. None while it is alive."""
    restart_count: int = 0
    """The number of starts after the first."""
    last_error: str | None = None
    """The reason why a life of the process ended unexpectedly. None: that has not happened."""
    born: float | None = None
    """The start time of `pid` in Unix seconds. It distinguishes the process from a later one with the same pid."""
    host: str = ""
    """The host name of the machine that the process runs on."""
    supervisor: str = ""
    """The id of the runtime that supervises the process."""
    seen_at: float = 0.0
    """The time of the supervisor's last check in Unix seconds."""
    log: str = ""
    """The path of the log file on `host`."""
    generation: int = 0
    """The agent's `restarts` when this life began. A value below the entry's current one means that its code is
    outdated."""

    @property
    def worker_id(self) -> str:
        """The id of this life of the process. The process uses it to claim executions."""
        return f"{self.process_id}.{self.restart_count}"

    @property
    def alive(self) -> bool:
        return self.status in (ProcessStatus.STARTING, ProcessStatus.RUNNING, ProcessStatus.STOPPING)


def born(pid: int) -> float | None:
    """Return when the process started, in Unix seconds. It distinguishes the process from a later one with the same
    pid. None if there is no such process."""
    import psutil  # psutil is not installed where functions run

    try:
        return float(psutil.Process(pid).create_time())
    except psutil.Error:
        return None


def is_living(pid: int | None, since: float | None) -> bool:
    """Return whether the process with this pid and start time exists and is not a zombie."""
    if pid is None:
        return False
    import psutil

    try:
        process = psutil.Process(pid)
        same = since is None or abs(process.create_time() - since) < 0.02
        return bool(same and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False
