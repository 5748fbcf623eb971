"""What is known of one process of the fleet."""

from __future__ import annotations

from enum import StrEnum

from pydantic import BaseModel, ConfigDict


class ProcessStatus(StrEnum):
    """`failed`: given up, it does not come up or dies again and again. `crashed`: dead, and about to be started again."""

    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    STOPPED = "stopped"
    FAILED = "failed"
    CRASHED = "crashed"


OVER = frozenset({ProcessStatus.STOPPED, ProcessStatus.FAILED})
"""What does not become anything else by itself."""


class ProcessInfo(BaseModel):
    """Units: `cpu_percent` of one core (200 is two cores), memory in MiB of the process and those under it, `cpu_limit` in
    cores, times in Unix seconds. `pid` is None while there is no process; `born` is when that pid began, so that another
    process with its number is not taken for it. `restart_count` counts the starts after the first; `seen_at` is when its
    supervisor looked last, `host` where that is."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    process_id: str
    name: str
    pid: int | None = None
    status: ProcessStatus = ProcessStatus.STARTING
    cpu_percent: float = 0.0
    memory_mb: float = 0.0
    cpu_limit: float | None = None
    memory_limit_mb: int | None = None
    started_at: float | None = None
    stopped_at: float | None = None
    restart_count: int = 0
    last_error: str | None = None
    born: float | None = None
    host: str = ""
    supervisor: str = ""
    seen_at: float = 0.0
    log: str = ""
    generation: int = 0

    @property
    def worker_id(self) -> str:
        """This life of the process: what holds executions, and dies."""
        return f"{self.process_id}.{self.restart_count}"

    @property
    def alive(self) -> bool:
        return self.status in (ProcessStatus.STARTING, ProcessStatus.RUNNING, ProcessStatus.STOPPING)


def born(pid: int) -> float | None:
    """When that process began, which distinguishes it from a later one with its number."""
    import psutil  # where functions run there are no processes to look at

    try:
        return float(psutil.Process(pid).create_time())
    except psutil.Error:
        return None


def lives(pid: int | None, since: float | None) -> bool:
    """Whether it is that very process, and no zombie."""
    if pid is None:
        return False
    import psutil

    try:
        process = psutil.Process(pid)
        same = since is None or abs(process.create_time() - since) < 0.02
        return bool(same and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False
