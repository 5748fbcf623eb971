"""What the parent process may ask of the emulator, beyond the APIs of AWS.

Law: a command stands for something that happens by itself in AWS (a minute passes, a machine dies) and that a test or a
person does not want to wait for. Each is a method `do_NAME` whose parameters are the command's fields.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ministack.core.responses import set_request_account_id, set_request_region
from ministack.services import eventbridge, lambda_svc

from helix.local.corrections import code_of
from helix.local.pool import Pool


class Commands:
    def __init__(self, pool: Pool, save: Callable[[], bool]) -> None:
        self._pool, self._save = pool, save

    def __call__(self, command: Mapping[str, Any]) -> Any:
        fields = {name: value for name, value in command.items() if name not in ("id", "command")}
        return getattr(self, f"do_{command['command']}")(**fields)

    def do_save(self) -> bool:
        """Save the state now. False if it could not be written."""
        return self._save()

    def do_tick(self) -> int:
        """Every schedule is due now. Returns how many rules there are; their targets have been called."""
        rules = [key for key, rule in eventbridge._rules._data.items() if rule.get("ScheduleExpression")]
        for key in rules:
            eventbridge._rule_last_fired[key] = 0.0
        eventbridge._tick_scheduled_rules()
        return len(rules)

    def do_kill(self, function: str) -> int:
        """Kill the workers of a function that are at work. Returns how many."""
        return self._pool.kill(function)

    def do_retire(self) -> None:
        """End all idle workers: the next calls are cold starts."""
        self._pool.retire()

    def do_warm(self, account: str, region: str, functions: list[str], qualifier: str) -> None:
        """Start a worker for each function, one after the other."""
        set_request_account_id(account)
        set_request_region(region)
        for name in functions:
            record, config = lambda_svc._get_func_record_for_qualifier(name, qualifier)
            if record is not None and config is not None:
                self._pool.warm(code_of(record), lambda_svc.execution_credentials(config))
