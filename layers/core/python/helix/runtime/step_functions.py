"""StepFunctionsExecutor: the same sessions and runs, executed by Step Functions and Lambda."""

from __future__ import annotations

from helix.runtime.launching import LaunchingExecutor


class StepFunctionsExecutor(LaunchingExecutor):
    """Claims runs and starts their executions; what runs them is deployed (`helix deploy`). Safe from any number of
    processes with access to the tables. `helix.runtime.cloud.application().executor` makes one of the environment that a
    deployed function has."""

    async def __aenter__(self) -> StepFunctionsExecutor:
        return self
