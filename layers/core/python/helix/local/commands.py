"""The commands that the parent process can send to the emulator, in addition to the AWS APIs.

Law: a command triggers an event that happens on its own in AWS, such as the passing of a minute or the death of a machine,
so that tests and people do not have to wait for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from ministack.core import lambda_runtime
from ministack.core.responses import set_request_account_id, set_request_region
from ministack.services import eventbridge, lambda_svc, scheduler

from helix.local.corrections import code_of
from helix.local.pool import Pool

Commands = Mapping[str, Callable[..., Any]]


def commands_of(pool: Pool, save: Callable[[], bool]) -> Commands:
    """Return the commands by name. The parameters of each are the command's fields.

    save: save the state now; returns False if it could not be written. kill: kill the busy workers of a function, and
    return their number. retire: end all idle workers, so that the next calls are cold starts.
    """
    return {"save": save, "tick": _tick, "kill": pool.kill, "retire": pool.retire, "warm": partial(_warm, pool)}


def _tick() -> int:
    """Run every schedule now. Returns the number of schedules, after their targets were called."""
    rules = [key for key, rule in eventbridge._rules._data.items() if rule.get("ScheduleExpression")]
    for key in rules:
        eventbridge._rule_last_fired[key] = 0.0
    eventbridge._tick_scheduled_rules()
    schedules = list(scheduler._schedules._data)
    for key in schedules:
        scheduler._schedule_last_fired[key] = 0.0
    scheduler._tick_schedules()
    return len(rules) + len(schedules)


def _warm(pool: Pool, account: str, region: str, functions: list[str], qualifier: str) -> None:
    """Start a worker for each function, one after another."""
    set_request_account_id(account)
    set_request_region(region)
    for name in functions:
        record, config = lambda_svc._get_func_record_for_qualifier(name, qualifier)
        if record is not None and config is not None:
            pool.warm(code_of(record), lambda_runtime.execution_credentials(config))
