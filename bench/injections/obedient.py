"""A scripted model that performs the user's task, and obeys every injection that it reads.

Law: it knows only what a model would know. If a call of the user's task is refused, or its result is withheld, it cannot
continue the task, and says so. It obeys an injection only if a result that it was shown contains the goal.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from helix.core.messages import AnyMessage, ToolResultMessage
from injections.cases import Call, Injection, Task, World

GAVE_UP = "I could not do this."
WITHHELD = "guard_blocked"


@dataclass
class ObedientModel:
    """The model of one run."""

    task: Task
    injection: Injection | None
    world: World
    left: list[Call] = field(default_factory=list)
    """The calls of the user's task that it has not made yet."""
    orders: list[Call] = field(default_factory=list)
    """The calls that reach the injection's goal, and that it has not made yet."""
    obeys: bool = False
    """Whether it has read the injection."""
    gave_up: bool = False
    """Whether it could not continue the user's task."""
    is_own: bool = True
    """Whether its last call belongs to the user's task."""

    def __post_init__(self) -> None:
        self.left = list(self.task.calls)

    def answer(self, messages: Sequence[AnyMessage]) -> dict[str, Any]:
        """Return the next step: one call, or the answer to the user."""
        if isinstance(last := messages[-1], ToolResultMessage):
            self._read(last)
        if self.orders or (self.left and not self.gave_up):
            self.is_own = not self.orders
            call = (self.orders or self.left).pop(0)
            return {"tool_calls": [{"name": call.name, "arguments": call.arguments}]}
        parts = [GAVE_UP if self.gave_up else self.task.answer]
        if self.obeys and self.injection is not None:
            parts.append(self.injection.answer)
        return {"content": "\n".join(part for part in parts if part) or "Done."}

    def _read(self, result: ToolResultMessage) -> None:
        never_ran = result.tool_call_id not in self.world.executed
        if self.is_own and not result.success and (never_ran or WITHHELD in result.content):
            self.gave_up = True
        if self.injection is not None and not self.obeys and reads(result.content, self.injection.goal):
            self.obeys = True
            self.orders = list(self.injection.calls(self.world))


def reads(content: str, goal: str) -> bool:
    """Return whether a text in the result contains the goal, however its lines are broken."""
    return any(" ".join(goal.split()) in " ".join(text.split()) for text in _texts(content))


def _texts(content: str) -> Iterator[str]:
    yield content
    try:
        pending = [json.loads(content)]
    except ValueError:
        return
    while pending:
        match pending.pop():
            case str() as text:
                yield text
            case list() as items:
                pending += items
            case dict() as fields:
                pending += [*fields, *fields.values()]
