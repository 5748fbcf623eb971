"""Each Lambda state of the deployed state machine with a function that fails: how often it is retried, and what follows.

A `Scene` answers the invocations of a state machine as the functions do, before the state and after it, without a store.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tests.support.state_machine import Execution, ExecutionFailedError, StateMachine

Json = dict[str, Any]
VERB = {
    "CallModel": "call_model",
    "CallTool": "call_tool",
    "CallOneTool": "call_tool",
    "StartRun": "start_run",
    "StartOneRun": "start_run",
    "FinishRun": "finish_run",
    "FailRun": "fail_run",
}
"""The function of each Lambda state."""
PLACE: Json = {"session_id": "ses_1", "run_id": "run_1", "part": 1, "step": 1}
START: Json = {**PLACE, "events": 0}
FOR_EVER, FINAL = 10_000, "SomeFinalError"
END_EVENTS = 1
FINISH: Json = {"next": "finish"}
CALL: Json = {"call_id": "call_0", "step": 1}
CALLS: dict[str, Json] = {
    "CallTool": {"next": "call_tool", "call": {**CALL, "kind": "call_tool"}},
    "StartRun": {"next": "start_run", "call": {**CALL, "kind": "start_run"}},
    "CallOneTool": {"next": "map", "calls": [{**CALL, "kind": "call_tool"}]},
    "StartOneRun": {"next": "map", "calls": [{**CALL, "kind": "start_run"}]},
}
"""The first answer of `call_model` that leads to the state."""


class Scene:
    """A scene. The function of `state` fails with `error` `times` times, and then answers."""

    def __init__(self, state: str, error: str, times: int = FOR_EVER) -> None:
        self.state, self._error, self._left, self._asked = state, error, times, 0

    def answer(self, verb: str) -> Json:
        """Raise `ExecutionFailedError` with the name of the error, or return what the function answers."""
        if verb == VERB[self.state] and self._left:
            self._left -= 1
            raise ExecutionFailedError(self._error)
        if verb != "call_model":
            return {}
        if self.state == "FailRun":
            raise ExecutionFailedError(FINAL)
        self._asked += 1
        first = self._asked == 1
        return {**START, **(CALLS.get(self.state, FINISH) if first else FINISH)}


@dataclass(frozen=True)
class Outcome:
    """An outcome. `follows` is the state after the failed one, or "" if the execution failed there. `events` is the length
    of the execution's history, and `waited_s` the average of its pauses."""

    retries: int
    follows: str
    events: int
    waited_s: float = 0.0


async def play(state: str, error: str, times: int = FOR_EVER) -> Outcome:
    """Play the scene in this process."""
    scene = Scene(state, error, times)

    async def invoke(verb: str, payload: Any) -> Any:
        answer = scene.answer(verb)
        if verb == "start_run":
            machine.wake(payload["token"])
        return answer

    machine, execution = StateMachine(invoke, tries=None), Execution("run_1", START)
    await machine.play(execution)
    retries, follows = execution.states.count(f"{state} again"), follower(state, execution.states)
    return Outcome(retries, follows, execution.events + END_EVENTS, execution.waited_s)


def follower(state: str, states: Sequence[str]) -> str:
    """Return the state that was entered after `state`."""
    after = list(states)[list(states).index(state) + 1 :]
    return next((name for name in after if name != f"{state} again"), "")
