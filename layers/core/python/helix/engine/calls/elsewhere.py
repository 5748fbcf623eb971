"""The tokens that a tool takes with `ctx.later`, and the results that come while the tool still runs.

Law: the call's row names a token before the tool has it. So a result that comes with the token is never lost, whether the
tool returns, fails or dies after that.
"""

from __future__ import annotations

from helix.core.elsewhere import MAX_TOKENS, CallToken, Elsewhere, Wait, make_secret
from helix.core.entries import CallRow
from helix.core.errors import InvalidInputError
from helix.core.row_keys import message_sort
from helix.core.tools import AnyTool
from helix.engine.claims.liveness import LostClaimError
from helix.engine.context import RunContext
from helix.engine.step_view import StepView
from helix.engine.writing import as_read, commit
from helix.ports.state_store import Key, Update, When


class Leaving:
    """`ctx.later` of one claim of a call. All attempts of the tool under this claim get the same token."""

    def __init__(self, run: RunContext, view: StepView, tool: AnyTool, row: CallRow) -> None:
        session = view.session
        assert session.open is not None
        index = session.open.base + 1 + view.place(row.call_id)
        secret = make_secret(run.engine.ids.new)
        self._run, self._tool, self._row = run, tool, row
        self._token = CallToken(session.session_id, session.lineage, index, secret)
        self.stored = row.later
        """What the call's row stores now."""
        self.leaves = False
        """Whether this attempt of the tool called `ctx.later`."""

    async def later(self, wait: Wait) -> str:
        """Store the token and its wait, then return the token. Raises `LostClaimError` if another worker has the call."""
        if not self._tool.later:
            raise InvalidInputError(f"tool {self._tool.name!r} calls ctx.later: declare it with @tool(later=True)")
        engine, now = self._run.engine, self._run.now()
        earlier = [] if self.stored is None else [h for h in self.stored.hashes if h != self._token.secret_hash]
        stored = Elsewhere(
            hashes=[*earlier[1 - MAX_TOKENS :], self._token.secret_hash],
            heartbeat_s=wait.heartbeat_s,
            until=None if wait.timeout_s is None else now + wait.timeout_s,
            on_timeout=wait.on_timeout,
        )
        place = self._token
        key = Key("sessions", place.session_id, message_sort(place.lineage, place.index))

        async def is_stored() -> bool:
            (value,) = await engine.store.get([key])
            return value is not None and CallRow.read(key.partition, key.sort, value).later == stored

        changes = {"later": stored.model_dump(mode="json", exclude_defaults=True)}
        if not await commit(engine, "call_later", [Update(key, set=changes, when=as_read(self._row))], is_stored):
            raise LostClaimError(f"call {self._row.call_id!r} of session {place.session_id!r}")
        self.stored, self.leaves = stored, True
        return str(place)


def unended(row: CallRow) -> When:
    """Return the condition that a claimed call is unchanged since it was read, and that no system has ended it."""
    return When(equal={**as_read(row).equal, "content": None})


def ended_early(row: CallRow, now: float) -> CallRow | None:
    """Return the row of a call, which has not ended, with the result that came while its tool ran. None: none came, or
    guards must judge it first."""
    if row.content is None or row.is_unjudged:
        return None
    done = row.ended(row.content, bool(row.success), "answer", row.ended_at or now)
    return done.model_copy(update={"ask": None, "deadline": None, "confirmation": None})


def to_judge(row: CallRow) -> CallRow:
    """Return the row of a call with a result from outside, ready for the worker whose guards judge it. The deaths of
    workers that executed the tool do not count for the guards, or the result could be lost."""
    changes = {"state": "approved", "by": None, "ended_at": None, "owner": None, "ask": None, "deadline": None}
    return row.model_copy(update={**changes, "deaths": 0})
