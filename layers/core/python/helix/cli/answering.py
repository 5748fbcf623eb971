"""The answers that `helix resume` was given on its command line."""

from __future__ import annotations

from collections.abc import Sequence

from helix.cli.chat import parse_data
from helix.cli.refusal import RefusedError
from helix.engine.answers import Confirmation


def confirmations(
    approve: Sequence[str] | None, deny: Sequence[str] | None, data: str | None, reason: str | None, *, other: bool
) -> list[Confirmation]:
    """Approvals first. `other`: another way to resume was asked for too, which does not go together."""
    approved, denied = list(approve or ()), list(deny or ())
    if not approved and not denied:
        if data is not None or reason is not None:
            raise RefusedError("--data and --reason go with --approve or --deny")
        return []
    if other:
        raise RefusedError("--approve and --deny answer a call; --message and --checkpoint go on without one: choose")
    if both := set(approved) & set(denied):
        raise RefusedError(f"call {sorted(both)[0]!r} is both approved and denied")
    value = None if data is None else parse_data(data)
    return [
        *(Confirmation(call, approved=True, data=value) for call in approved),
        *(Confirmation(call, approved=False, data=value, reason=reason) for call in denied),
    ]
