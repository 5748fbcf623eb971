"""The limits of models as rows that all workers share (docs/adr/0093-turns-at-a-model-are-times.md).

    limit#<model>   cell                     the times at which the granted turns are worked off, and what was learned
    limit#<model>   turn#<run>#<step>#<n>    the turn of a call that waits outside of a function

Law: a turn is one conditional update of the cell. It has a time of its own, and no lock: a worker that dies after it
took a turn costs the model that turn. A model whose limit is neither declared nor learned costs no write. A limit is
learned once a provider has refused a request, or has reported that less than half of the limit is left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Literal

from helix._log import get_logger
from helix.core.errors import StoreError
from helix.core.model_limits import DIMENSIONS, MICROS_A_SECOND, Limit, ReportedLimit, next_turn
from helix.ports.clock import Clock
from helix.ports.state_store import ABSENT, Key, Put, StateStore, Update, Value, When
from helix.services.committing import Again, refused, repeat_attempt

logger = get_logger(__name__)
LEARNED_S = 600
"""The number of seconds for which a learned limit applies after a provider last reported it as nearly used up."""
RENEWED_S = 300
"""The age, in seconds, at which a process writes a learned limit again."""
QUIET_S = 30
"""The number of seconds for which a process trusts that a model has no learned limit and is not avoided."""
AVOIDED_S = 60
"""The number of seconds for which a model is tried last after a fallback has answered in its place."""
VALID_S = 60
"""The number of seconds after its time during which a stored turn can be used."""
EXPIRES_S = 86_400
"""The number of seconds after its last change when a cell expires."""
MOST_PAUSE_S = 300
"""The longest pause of a model after a refusal, in seconds, whatever its Retry-After says."""


def cell_key(model: str) -> Key:
    return Key("control", f"limit#{model}", "cell")


def turn_key(model: str, call: str) -> Key:
    return Key("control", f"limit#{model}", f"turn#{call}")


@dataclass(frozen=True, slots=True)
class Taken:
    """A turn that a call has taken. Times are in microseconds."""

    at: int
    """The time of the turn."""
    shift: int | None = None
    """The sum of the model's pauses when the turn was taken. None: pauses do not move it."""

    def after(self, shift: int) -> Taken:
        """Return the turn after pauses whose sum is now `shift`."""
        if self.shift is None or shift <= self.shift:
            return self
        return Taken(self.at + shift - self.shift, shift)


class ModelLimits:
    """The limits of the models that one engine calls. `declared` are the project's limits, by model; they override what
    providers report."""

    def __init__(self, store: StateStore, clock: Clock, declared: Mapping[str, Limit] | None = None) -> None:
        self._store, self.clock, self._declared = store, clock, dict(declared or {})
        self._quiet: dict[str, float] = {}
        self._learned: dict[str, tuple[Limit, float]] = {}

    def is_declared(self, model: str) -> bool:
        return model in self._declared

    async def order(self, models: Sequence[str]) -> list[str]:
        """Return the models in the order in which to try them: those that failed a short time ago come last."""
        if len(models) < 2:
            return list(models)
        asked = [model for model in models if not self._is_quiet(model)]
        try:
            found = await self._store.get([cell_key(model) for model in asked]) if asked else []
        except StoreError:
            logger.warning("it is not known which of %r failed: the store failed", list(models), exc_info=True)
            return list(models)
        cells = dict(zip(asked, found, strict=True))
        now = self._now()
        for model, cell in cells.items():
            self._note(model, cell or {}, now)
        return sorted(models, key=lambda model: ((cells.get(model) or {}).get("avoided_until") or 0) > now)

    async def take(
        self, model: str, tokens: Callable[[], int], *, most_s: float = inf, call: str = "", put_off: bool = False
    ) -> Taken:
        """Take a turn for a request of about `tokens()` tokens. Its time is now if the model has no limit. A turn more than
        `most_s` seconds ahead is returned but not taken. `call`: the call whose stored turn is used, if there is a valid
        one. `put_off`: whether the call may have one although this process knows of no limit. Raises `ContentionError`,
        `StoreError`."""
        if self._is_quiet(model) and not self.is_declared(model) and not put_off:
            return Taken(self._now())
        most = inf if most_s == inf else most_s * MICROS_A_SECOND
        return await repeat_attempt(f"{call}{self.clock.now()}", partial(self._try_take, model, tokens, most, call))

    async def _try_take(
        self, model: str, tokens: Callable[[], int], most: float, call: str
    ) -> Taken | Literal[Again.AGAIN]:
        cell, *stored = await self._store.get([cell_key(model), *([turn_key(model, call)] if call else [])])
        now, known = self._now(), cell or {}
        shift: int = known.get("shift") or 0
        if stored and stored[0] is not None:
            stored_turn = Taken(stored[0]["at"], stored[0]["shift"]).after(shift)
            if stored_turn.at + VALID_S * MICROS_A_SECOND >= now:
                return stored_turn
        limit = self._limit(model, known, now)
        turn = next_turn(known, limit, tokens() if limit.tokens is not None else 0, now)
        if not limit or turn.at - now > most:
            self._note(model, known, now)
            return Taken(turn.at, shift)
        fields = {**turn.set, "ttl": now // MICROS_A_SECOND + EXPIRES_S}
        when = When(equal=turn.equal, at_least=turn.at_least, below=turn.below)
        if cell is None:
            write: Put | Update = Put(cell_key(model), {"shift": 0, **fields}, ABSENT)
        else:
            write = Update(cell_key(model), set=fields, add=turn.add, when=when)
        return Taken(turn.at, shift) if await refused(self._store, "take_turn", [write]) is None else Again.AGAIN

    async def keep(self, model: str, call: str, turn: Taken) -> None:
        """Store the turn, so that another delivery of the call finds it."""
        value = {"at": turn.at, "shift": turn.shift, "ttl": turn.at // MICROS_A_SECOND + EXPIRES_S}
        await self._store.transact("keep_turn", [Put(turn_key(model, call), value)])

    async def stored(self, models: Sequence[str], call: str) -> str | None:
        """Return the model at which the call has a stored turn that can still be used. None without one."""
        rows = await self._store.get([turn_key(model, call) for model in models])
        oldest = self._now() - VALID_S * MICROS_A_SECOND
        return next((model for model, row in zip(models, rows, strict=True) if row and row["at"] >= oldest), None)

    async def moved(self, model: str, turn: Taken) -> Taken:
        """Return the turn after all pauses of the model since it was taken."""
        (cell,) = await self._store.get([cell_key(model)])
        return turn.after((cell or {}).get("shift") or 0)

    async def correct(self, model: str, estimate: Callable[[], int], used: int) -> None:
        """Correct the cell by the difference between the tokens that a request was expected to use and those that it
        used. Small differences are ignored."""
        learned, until = self._learned.get(model, (Limit(), 0.0))
        limit = self._declared.get(model) or (learned if until > self.clock.now() else Limit())
        if limit.tokens is None:
            return
        estimated = estimate()
        cost = limit.share("tokens", used - estimated)
        if cost is not None and 10 * abs(used - estimated) > estimated:
            change = Update(cell_key(model), add={"tokens_at": cost}, when=When(at_least={"tokens_at": 0}))
            await refused(self._store, "correct_turn", [change])

    async def learn(self, model: str, reported: ReportedLimit | None, *, refused: bool = False) -> None:
        """Store the limit that a provider reported, if it is needed: a request was `refused`, or little is left."""
        if reported is None or not (reported.low or refused) or self.is_declared(model):
            return
        now = self.clock.now()
        limit, until = self._learned.get(model, (Limit(), 0.0))
        if limit == reported.limit and until - now > LEARNED_S - RENEWED_S:
            return
        fields = {name: getattr(reported.limit, name) for name in DIMENSIONS}
        await self._set(model, {**fields, "learned_until": int((now + LEARNED_S) * MICROS_A_SECOND)})
        self._learned[model] = (reported.limit, now + LEARNED_S)

    async def pause(self, model: str, seconds: float) -> None:
        """Grant no turn of the model for `seconds`, because its provider refused a request. Turns that were granted
        before move by the same time. Pauses of several callers at once count only once."""
        pause_us = int(min(seconds, MOST_PAUSE_S) * MICROS_A_SECOND)
        await repeat_attempt(f"{model}#{self.clock.now()}", partial(self._try_pause, model, pause_us))
        self._quiet.pop(model, None)

    async def _try_pause(self, model: str, pause_us: int) -> Literal[Again.AGAIN] | None:
        (cell,) = await self._store.get([cell_key(model)])
        now = self._now()
        before = (cell or {}).get("free_at")
        added = now + pause_us - max(before or 0, now)
        if added <= 0:
            return None
        fields = {"free_at": now + pause_us, "ttl": now // MICROS_A_SECOND + EXPIRES_S}
        if cell is None:
            write: Put | Update = Put(cell_key(model), {"shift": added, **fields}, ABSENT)
        else:
            moved = {f"{name}_at": added for name in DIMENSIONS if cell.get(f"{name}_at") is not None}
            add = {"shift": added, **moved}
            write = Update(cell_key(model), set=fields, add=add, when=When(equal={"free_at": before}))
        return None if await refused(self._store, "pause_model", [write]) is None else Again.AGAIN

    async def avoid(self, models: Iterable[str]) -> None:
        """Try these models last for `AVOIDED_S` seconds, in all processes, because a fallback answered in their
        place."""
        for model in models:
            await self._set(model, {"avoided_until": self._now() + AVOIDED_S * MICROS_A_SECOND})

    async def _set(self, model: str, fields: Mapping[str, int | None]) -> None:
        """Set fields of the model's cell, which is created if it does not exist."""
        values = {**fields, "ttl": int(self.clock.now()) + EXPIRES_S}
        while await refused(self._store, "learn_limit", [Update(cell_key(model), set=values)]) is not None:
            if (
                await refused(self._store, "learn_limit", [Put(cell_key(model), {"shift": 0, **values}, ABSENT)])
                is None
            ):
                break
        self._quiet.pop(model, None)

    # --- inside -------------------------------------------------------------------------------------------------------

    def _now(self) -> int:
        return int(self.clock.now() * MICROS_A_SECOND)

    def _limit(self, model: str, cell: Value, now: int) -> Limit:
        if (declared := self._declared.get(model)) is not None:
            return declared
        until = cell.get("learned_until") or 0
        if until <= now:
            return Limit()
        learned = Limit(cell.get("requests"), cell.get("tokens"))
        self._learned[model] = (learned, until / MICROS_A_SECOND)
        return learned

    def _is_quiet(self, model: str) -> bool:
        """Return whether the model has no learned limit and is not avoided, as far as this process knows."""
        return self._quiet.get(model, 0.0) > self.clock.now()

    def _note(self, model: str, cell: Value, now: int) -> None:
        """Trust for a while that nothing applies to the model, if its cell says so."""
        if max(cell.get(name) or 0 for name in ("learned_until", "free_at", "avoided_until")) <= now:
            self._quiet[model] = self.clock.now() + QUIET_S


class CallLimits:
    """The turns of one model call, over all its attempts. Implements `helix.ports.model.Limits`.

    `tokens`: the estimated tokens of an attempt. `learns`: whether limits are learned from the adapter's responses;
    without it only declared limits apply. `call` names the call for its stored turn, and `put_off` tells that it may have
    one. Empty: the call waits where it is made.
    """

    def __init__(
        self, limits: ModelLimits, *, tokens: Callable[[], int], learns: bool, call: str = "", put_off: bool = False
    ) -> None:
        self._limits, self._tokens, self._learns, self._call, self._put_off = limits, tokens, learns, call, put_off
        self._turns: dict[str, Taken] = {}
        self._used = set[str]()
        self._waited = False

    async def turn(self, model: str, most_s: float = inf) -> float:
        """See `helix.ports.model.Limits.turn`."""
        limits, turn = self._limits, self._turns.get(model)
        may_be_stored = self._put_off and model not in self._used
        if not may_be_stored and not self._applies(model):
            return 0.0
        now = int(limits.clock.now() * MICROS_A_SECOND)
        try:
            if turn is None:
                call = self._call if model not in self._used else ""
                turn = await limits.take(model, self._tokens, most_s=most_s, call=call, put_off=may_be_stored)
                if turn.at - now > most_s * MICROS_A_SECOND:
                    return (turn.at - now) / MICROS_A_SECOND
                self._used.add(model)  # a stored turn serves one attempt
            elif now >= turn.at and self._waited:
                turn = await limits.moved(model, turn)
        except StoreError:
            logger.warning("the limit of model %r is not known: the store failed", model, exc_info=True)
            turn = Taken(now)
        self._turns[model], self._waited = turn, turn.at > now
        return max(0, turn.at - now) / MICROS_A_SECOND

    async def stored(self, models: Sequence[str]) -> str | None:
        """Return the model at which an earlier delivery of the call took a turn, so that it is not taken anew at another
        model. None without one."""
        if not self._call or not (self._put_off or any(map(self._applies, models))):
            return None
        try:
            return await self._limits.stored(models, self._call)
        except StoreError:
            logger.warning("the turns of %r are not known: the store failed", list(models), exc_info=True)
            return None

    async def keep(self, model: str, call: str, seconds: float) -> float:
        """Store a turn of the call, at least `seconds` from now, and return its time in Unix seconds. Raises
        `StoreError`."""
        if model not in self._turns and self._applies(model):
            await self.turn(model)
        earliest = int((self._limits.clock.now() + seconds) * MICROS_A_SECOND)
        turn = self._turns.pop(model, Taken(earliest))
        turn = Taken(max(turn.at, earliest), turn.shift)
        await self._limits.keep(model, call, turn)
        return turn.at / MICROS_A_SECOND

    async def tried(
        self,
        model: str,
        *,
        used: int | None = None,
        reported: ReportedLimit | None = None,
        refused_s: float | None = None,
    ) -> None:
        """See `helix.ports.model.Limits.tried`."""
        self._turns.pop(model, None)
        if not self._applies(model):
            return
        try:
            if self._learns:
                await self._limits.learn(model, reported, refused=refused_s is not None)
            if refused_s is not None:
                await self._limits.pause(model, refused_s)
            elif used:
                await self._limits.correct(model, self._tokens, used)
        except StoreError:
            logger.warning("the limit of model %r was not updated: the store failed", model, exc_info=True)

    async def failed_over(self, models: Sequence[str]) -> None:
        """See `helix.ports.model.Limits.failed_over`."""
        try:
            await self._limits.avoid(models)
        except StoreError:
            logger.warning("models %r are tried again at once: the store failed", list(models), exc_info=True)

    def _applies(self, model: str) -> bool:
        return self._learns or self._limits.is_declared(model)
