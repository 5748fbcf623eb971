"""The logs of a stage: the choice of their adapter, for deployed functions and for the command line."""

from __future__ import annotations

from typing import Any

from helix.ports.clock import Clock
from helix.ports.function_logs import Logs


def open_logs(client: Any, stage: str, clock: Clock) -> Logs:
    """Return the logs of the stage's functions. `client`: a botocore `logs` client."""
    from helix.adapters.aws.cloudwatch_logs import CloudWatchLogs

    return CloudWatchLogs(client, stage, clock)
