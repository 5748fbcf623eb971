"""Random interleavings of every verb over memory and SQLite, and PROTOCOL 12 after every step.

    HELIX_EXAMPLES=5000 .venv/bin/python -m pytest tests/properties/test_protocol_machine.py -k memory

one_winner_per_claim, legal_transitions, no_answer_rebought, staged_answer_immutable, answer_fits_history,
no_finished_tool_again, result_immutable, zombie_invisible, interrupt_own_run, first_answer_wins: at each transaction
(`protocol_watch`). pairs_whole, checkpoint_forever, no_answer_lost, budget_exact, stream_gapless, final_is_committed,
end_truthful: after each rule. never_stuck, effects_once, one_child, told_once, parent_wakes and what is drawn, spent and
returned: once everything was delivered and nothing moves (`protocol_checks`).
"""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test
from tests.properties.protocol_machine import ProtocolMachine, machine_on

EXAMPLES = int(os.environ.get("HELIX_EXAMPLES", "0"))
STEPS = int(os.environ.get("HELIX_STEPS", "40"))


def profile(examples: int) -> settings:
    """A fixed, repeatable budget where nobody asks for more."""
    return settings(
        max_examples=EXAMPLES or examples,
        stateful_step_count=STEPS,
        deadline=None,
        derandomize=not EXAMPLES,
        database=None,
        print_blob=True,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate, Phase.shrink],
    )


@pytest.mark.slow
@pytest.mark.timeout(0)
@pytest.mark.parametrize(("kind", "examples"), [("memory", 90), ("sqlite", 30)])
def test_the_protocol_holds_whatever_happens(kind: str, examples: int) -> None:
    machine: type[ProtocolMachine] = machine_on(kind)
    run_state_machine_as_test(machine, settings=profile(examples))
