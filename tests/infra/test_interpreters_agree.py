"""The deployed definition behaves the same on moto's Step Functions interpreter and on ours, which plays the table of
errors.

If the two disagree, AWS's documentation decides. docs/guide/offline.md#emulators lists the differences.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.support.error_plays import VERB, play
from tests.support.moto_machine import MotoMachine, moto_machine

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::DeprecationWarning")]
ON_TOKEN = ("StartRun", "StartOneRun")
ALONE = ("CallModel", "CallTool", "FinishRun", "FailRun")
"""The other states wait for a token, or are in a map."""
TERMINAL = "States.DataLimitExceeded"
BUSY = "Lambda.TooManyRequestsException"
ROWS = ("Lambda.ResourceNotFoundException", "StoreError", "AccessDeniedError", "States.Timeout", BUSY)
"""One error of each row of the table except WorkInProgressError, which is retried hundreds of times like the others."""


@pytest.fixture(scope="module")
def machine() -> Iterator[MotoMachine]:
    with moto_machine() as made:
        yield made


@pytest.mark.parametrize("state", VERB)
async def test_both_interpreters_agree(machine: MotoMachine, state: str) -> None:
    for error in ROWS:
        if error == BUSY and state == "FinishRun":
            continue  # as in CallModel, and as long: 360 retries
        ours, moto = await play(state, error), machine.play(state, error)
        assert (moto.retries, moto.follows) == (ours.retries, ours.follows), error
        # Ours is an upper bound: it counts TaskSubmitted for a failed attempt, and the exit of a failed item.
        assert moto.events == ours.events if state in ALONE else moto.events <= ours.events, error


@pytest.mark.parametrize("state", [state for state in VERB if state not in ON_TOKEN])
async def test_moto_catches_an_error_that_states_all_does_not_catch(machine: MotoMachine, state: str) -> None:
    """The run fails in both cases: through `FailRun`, or through the event of the execution's end."""
    assert (await play(state, TERMINAL)).follows == ""
    assert machine.play(state, TERMINAL).follows == ("Failed" if state == "FailRun" else "FailRun")


def test_an_error_of_an_item_is_the_maps_but_moto_renames_those_of_step_functions(machine: MotoMachine) -> None:
    named = {}
    for error in ("AccessDeniedError", "States.Timeout"):
        machine.play("CallOneTool", error)
        named[error] = machine.failures[-1]
    assert named == {"AccessDeniedError": "AccessDeniedError", "States.Timeout": "States.Runtime"}
