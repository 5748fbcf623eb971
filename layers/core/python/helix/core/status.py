"""Statuses, claim modes and result sources, and the table of allowed status transitions (docs/protocol.md#status)."""

from __future__ import annotations

from typing import Final, Literal

from helix.core.errors import DamagedRowError, IllegalTransitionError

AgentStatus = Literal["running", "completed", "failed", "interrupted", "paused"]
RunStatus = Literal["running", "completed", "failed", "interrupted", "paused", "superseded"]
EndStatus = Literal["completed", "failed", "interrupted", "paused"]
SessionStatus = Literal[AgentStatus, "deleting"]
"""The status as stored. A session whose rows are being deleted is `deleting`, and no longer exists for its users."""
SubSessionStatus = Literal[SessionStatus, "deleted", "not_started"]
"""The status of a sub-agent's session as its parent sees it. `deleted`: its rows were deleted. `not_started`: the call
has not started it yet."""
ClaimMode = Literal[
    "execute",
    "continue",
    "with_message",
    "with_confirmation",
    "from_checkpoint",
    "retry",
    "from_start",
    "takeover",
    "abort",
]
ResultSource = Literal["tool", "answer", "plan", "policy", "close", "child", "merge"]
"""The source of a call's result; `core.entries.CallRow` explains each."""

# The statuses in which a session may be claimed. An aborted session accepts a new message, but never a retry.
CLAIMS: Final[dict[ClaimMode, frozenset[SessionStatus]]] = {
    "execute": frozenset({"completed", "failed", "interrupted", "paused"}),
    "continue": frozenset({"interrupted", "paused"}),
    "with_message": frozenset({"interrupted", "paused"}),
    "with_confirmation": frozenset({"paused"}),
    "from_checkpoint": frozenset({"completed", "failed", "interrupted", "paused"}),
    "retry": frozenset({"failed"}),
    "from_start": frozenset({"failed"}),
    "takeover": frozenset({"running"}),
    "abort": frozenset({"interrupted", "paused"}),
}
# An abort of a session with one of these statuses claims it and ends it in one transaction.
AT_REST: Final = CLAIMS["abort"]
# The ends of a running session. A takeover fails the old run and claims in the same transaction.
ENDS: Final[frozenset[SessionStatus]] = frozenset({"completed", "failed", "interrupted", "paused"})
OVER: Final[frozenset[RunStatus]] = frozenset({"completed", "failed"})
"""The final run statuses. Such a run never changes and waits for nothing."""
FINAL_RUNS: Final[frozenset[RunStatus]] = frozenset({"completed", "failed", "superseded"})


def may_claim(mode: ClaimMode, status: SessionStatus) -> bool:
    return status in CLAIMS[mode]


def check_move(old: SessionStatus | None, new: SessionStatus) -> None:
    """Raise `IllegalTransitionError`, which names both statuses, unless the table allows the transition."""
    if new == "running":
        legal = old is None or any(old in sources for sources in CLAIMS.values())
    else:
        legal = old == "running" and new in ENDS
    if not legal:
        raise IllegalTransitionError(f"a session cannot move from {old!r} to {new!r}")


def end_status(status: RunStatus, completion_reason: str | None) -> EndStatus:
    """Return the end status of a run as its caller sees it. A superseded run had been paused, which has a
    `completion_reason`, or interrupted, which has none. Raises `IllegalTransitionError` if the run is still running."""
    match status:
        case "superseded":
            return "interrupted" if completion_reason is None else "paused"
        case "running":
            raise IllegalTransitionError("a run that still runs has no end status")
        case "completed" | "failed" | "interrupted" | "paused":
            return status
        case _:  # written by another version, or damaged
            raise DamagedRowError(f"{status!r} is not a status of a run")
