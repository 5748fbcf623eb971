"""The machine finds defects: removing any rule of the protocol is detected within a limited number of walks.

A mutation rewrites transactions on their way to the store, or replaces one decision of the engine.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from tests.properties.protocol_walk import walk
from tests.properties.protocol_world import GatedStore

from helix.core import claim_plan as claiming
from helix.core.claim_plan import OpenRows, close
from helix.core.errors import StoreError
from helix.core.lineage import fork
from helix.engine.calls import tool as call_tool
from helix.engine.claims import claim as claims
from helix.engine.claims import liveness
from helix.engine.claims.claim_rows import operations_of
from helix.engine.context import RunContext
from helix.engine.engine import Settings
from helix.engine.steps import buy as buy_step
from helix.engine.steps import stage
from helix.ports.state_store import Check, Operation, Put, Update
from helix.runtime import executor

WALKS, ACTS = 200, 70
FIRST = {
    "closing over what it did not read": 690,
    "draws without remaining": 80,
    "results of a wide step beside its pause": 69,
    "tools that start late": 62,
    "holders that ignore their clock": 48,
    "no margin for clocks": 25,
    "claims dead at once": 21,
    "claims that no sweep finds": 18,
    "answers without asked": 15,
    "pausing over an answer": 15,
    "models that are asked late": 14,
    "staging without AT": 11,
    "call claims without their row": 10,
}
"""The first walk of a long search. If it no longer fails, the search takes longer."""
Rewrite = Callable[[str, Sequence[Operation]], Sequence[Operation]]


def bare(operation: Operation) -> Operation:
    """Return the same write without its condition."""
    return operation if isinstance(operation, Check) else replace(operation, when=None)


def without(names: str, sorts: str) -> Rewrite:
    """Remove the conditions on rows `sorts...` from transactions named `names...`."""

    def rewrite(name: str, operations: Sequence[Operation]) -> Sequence[Operation]:
        if not name.startswith(tuple(names.split())):
            return operations
        hit = tuple(sorts.split())
        kept = [o for o in operations if not (isinstance(o, Check) and o.key.sort.startswith(hit))]
        return [bare(o) if o.key.sort.startswith(hit) else o for o in kept] or operations

    return rewrite


def without_version(name: str, operations: Sequence[Operation]) -> Sequence[Operation]:
    """Let the claim check only that the session exists."""
    changed: list[Operation] = []
    claims_session = name.startswith("claim_") and name != "claim_step"
    for o in operations:
        if claims_session and o.key.sort == "session" and isinstance(o, Put) and o.when and not o.when.absent:
            o = replace(o, when=replace(o.when, equal={}))
        changed.append(o)
    return changed


def unlisted(name: str, operations: Sequence[Operation]) -> Sequence[Operation]:
    """Leave claims out of the index of open runs."""
    return [o for o in operations if not (isinstance(o, Put) and o.key.partition.startswith("open-runs#"))]


def unmoved(name: str, operations: Sequence[Operation]) -> Sequence[Operation]:
    """Leave the session's version unchanged when a result of a wide step is written."""
    if not name.startswith(("answer", "report_to_parent")):
        return operations
    return [Check(o.key, o.when) if isinstance(o, Update) and o.when is not None else o for o in operations]


REWRITES: dict[str, tuple[Rewrite, str]] = {
    "claims without CLAIM": (without_version, "one_winner_per_claim|legal_transitions|immutable|zombie"),
    "staging without AT": (without("stage commit", "session"), "legal_transitions|zombie|one_winner|immutable"),
    "folding without AT": (without("claim_step", "session"), "one_winner|rebought|legal|pairs|zombie|answer_fits"),
    "results without OWNER": (
        without("call_result", "m#"),
        "result_immutable|no_finished_tool_again|first_answer|pairs|StoreError",
    ),
    "call claims without MINE": (without("claim_call", "session"), "no_finished_tool_again|result|zombie|pairs"),
    "call claims without their row": (
        without("claim_call", "m#"),
        "no_finished_tool_again|result_immutable|first_answer",
    ),
    "answers without asked": (
        without("answer claim_with_confirmation", "m#"),
        "result_immutable|first_answer|no_finished",
    ),
    "closing over what it did not read": (without("claim_execute claim_with_message", "m#"), "result_immutable"),
    "pausing over an answer": (without("end_paused", "m#"), "no_answer_lost|never_stuck"),
    "results of a wide step beside its pause": (unmoved, "no_answer_lost|never_stuck"),
    "draws without remaining": (without("draw", "budget"), "budget_exact"),
    "claims that no sweep finds": (unlisted, "never_stuck"),
    "heartbeats without their claim": (
        without("heartbeat", "session m#"),
        "zombie_invisible|result_immutable|one_winner|no_finished",
    ),
    "returning twice": (without("return_draw", "draw"), "budget_exact"),
}


def reuse_lineage(patch: pytest.MonkeyPatch) -> None:

    def same(source: Any, count: int, lineage: int) -> Any:
        return fork(source, count, lineage).model_copy(update={"lineage": source.lineage, "start": 0, "chain": []})

    patch.setattr(claiming, "fork", same)


def fold_incomplete(patch: pytest.MonkeyPatch) -> None:
    whole = buy_step._finish_step

    async def half(run: Any, session: Any, rows: OpenRows, *rest: Any) -> Any:
        closed = dict(close(rows, 0))
        filled = [closed.get(i) or row for i, row in enumerate(rows.calls)]
        return await whole(run, session, OpenRows(rows.answer, filled), *rest)

    patch.setattr(buy_step, "_finish_step", half)


def dead_at_once(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(call_tool, "is_expired", lambda run, row: True)


def take_over_the_living(patch: pytest.MonkeyPatch) -> None:
    for module in (claims, executor):
        patch.setattr(module, "lapsed", lambda session, now: session.status == "running")

    def unbounded(*given: Any) -> list[Operation]:
        made = operations_of(*given)
        return [replace(o, when=replace(o.when, below={})) if o.when and o.when.below else o for o in made]

    patch.setattr(claims, "operations_of", unbounded)


def ignore_the_store(patch: pytest.MonkeyPatch) -> None:
    """Let a holder whose heartbeats fail continue, whatever its clock says."""

    async def renewed(engine: Any, claim: Any) -> bool:
        due = claim.deadline() - engine.settings.claim_s * 2 / 3 - engine.clock.now()
        await asyncio.sleep(max(1.0, min(due, engine.settings.claim_s / 3)))
        with contextlib.suppress(StoreError):
            return due > 0 or await claim.move(engine.clock.now() + engine.settings.claim_s)
        return True

    patch.setattr(liveness, "_renewed", renewed)


def start_tools_late(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(call_tool, "may_start", lambda run, row: True)


def ask_models_late(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RunContext, "may_ask", lambda run: True)


def without_margin(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Settings, "margin_s", 0.0)


def buy_beside_the_living(patch: pytest.MonkeyPatch) -> None:
    expired = buy_step._expired_attempt

    async def at_once(run: Any, session: Any, new: Any) -> Any:
        if session.claim is not None:
            session = session.model_copy(update={"claim": session.claim.model_copy(update={"deadline": 0.0})})
        return await expired(run, session, new)

    patch.setattr(buy_step, "_expired_attempt", at_once)


def ride_whatever_happens(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(stage, "claimed_with_answer", lambda run, first: True)


DECISIONS: dict[str, tuple[Callable[[pytest.MonkeyPatch], None], str]] = {
    "rewinding in the same lineage": (reuse_lineage, "immutable|checkpoint_forever|answer_fits_history"),
    "folding incomplete steps": (fold_incomplete, "pairs_whole"),
    "claims dead at once": (dead_at_once, "no_finished_tool_again"),
    "taking over a living worker": (take_over_the_living, "zombie_invisible"),
    "holders that ignore their clock": (ignore_the_store, "no_finished_tool_again|no_answer_rebought|zombie"),
    "tools that start late": (start_tools_late, "no_finished_tool_again"),
    "models that are asked late": (ask_models_late, "no_answer_rebought|zombie_invisible"),
    "no margin for clocks": (without_margin, "no_finished_tool_again|no_answer_rebought"),
    "buying beside a living worker": (buy_beside_the_living, "no_answer_rebought"),
    "claims with the answer for tools that must not start twice": (ride_whatever_happens, "unknown_has_begun"),
}


def caught(name: str, laws: str) -> None:
    first = FIRST.get(name, 0)
    for seed in range(first, first + WALKS):
        try:
            walk(seed, acts=ACTS)
        except Exception as error:
            text = f"{type(error).__name__} {error}"
            assert not laws or any(law in text for law in laws.split("|")), text
            return
    pytest.fail(f"{WALKS} walks and nothing was found")


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("name", list(REWRITES))
def test_a_lost_condition_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rewrite, laws = REWRITES[name]
    transact = GatedStore.transact

    async def rewritten(self: GatedStore, what: str, operations: Sequence[Operation]) -> None:
        await transact(self, what, rewrite(what, operations))

    monkeypatch.setattr(GatedStore, "transact", rewritten)
    caught(name, laws)


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("name", list(DECISIONS))
def test_a_wrong_decision_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mutate, laws = DECISIONS[name]
    mutate(monkeypatch)
    caught(name, laws)
