"""Statuses and their legal moves: one table (PROTOCOL 3)."""

from __future__ import annotations

from typing import Final, Literal

from helix.core.errors import IllegalTransitionError

AgentStatus = Literal["running", "completed", "failed", "interrupted", "paused"]
RunStatus = Literal["running", "completed", "failed", "interrupted", "paused", "superseded"]
ClaimMode = Literal[
    "execute", "continue", "with_message", "with_confirmation", "from_checkpoint", "retry", "from_start", "takeover"
]

# Who may claim a session of which status. An aborted session takes a new message, never a retry.
CLAIMS: Final[dict[str, frozenset[str]]] = {
    "execute": frozenset({"completed", "failed", "interrupted", "paused"}),
    "continue": frozenset({"interrupted", "paused"}),
    "with_message": frozenset({"interrupted", "paused"}),
    "with_confirmation": frozenset({"paused"}),
    "from_checkpoint": frozenset({"completed", "failed", "interrupted", "paused"}),
    "retry": frozenset({"failed"}),
    "from_start": frozenset({"failed"}),
    "takeover": frozenset({"running"}),
}
# How a running session ends. A takeover ends the old run failed and claims in the same transaction.
ENDS: Final[frozenset[str]] = frozenset({"completed", "failed", "interrupted", "paused"})
FINAL_RUNS: Final[frozenset[str]] = frozenset({"completed", "failed", "superseded"})


def may_claim(mode: str, status: str) -> bool:
    return status in CLAIMS[mode]


def check_move(old: str | None, new: str) -> None:
    """Raise `IllegalTransitionError`, naming both ends, unless the table has the move."""
    if new == "running":
        legal = old is None or any(old in sources for sources in CLAIMS.values())
    else:
        legal = old == "running" and new in ENDS
    if not legal:
        raise IllegalTransitionError(f"a session cannot move from {old!r} to {new!r}")


def run_status_after(status: str, successor: bool) -> str:
    """A run's status when a successor is claimed: what was interrupted or paused is superseded, the rest stays."""
    return "superseded" if successor and status in ("interrupted", "paused") else status
