"""Verdicts of guards: what a guard returns, and how a row stores it.

Law: a verdict is stored with the row that it judged, in the same transaction, with the hash of what it judged.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from pydantic import Field

from helix.core.json import JsonObject, JsonValue, clean_text, dumps
from helix.core.stored import AsStored, Stored

MAX_REASON = 2_000
"""The maximum length of a verdict's reason, in characters."""
BLOCKED = "guard_blocked"
"""The error code of a run that a guard ended, and of a call or a result that a guard blocked."""
GUARD_EVENT = "guard_verdict"
"""The name of the `custom` chunk that shows a verdict."""
GUARDS = "guards"
"""The key of a message's metadata that has its verdicts."""
Place = Literal["input", "call", "result", "output"]
PLACES: tuple[Place, ...] = get_args(Place)
WITHHELD = "[A guard withheld this message.]"


@dataclass(frozen=True, slots=True)
class Allow:
    """Let the value pass unchanged."""


@dataclass(frozen=True, slots=True)
class Replace:
    """Let another value pass. The row keeps both."""

    value: Any
    """The new text, arguments, result or output, of the same kind as the value that was judged."""


@dataclass(frozen=True, slots=True)
class Block:
    """Refuse the value."""

    reason: str = ""
    """Why the value is refused. The reader of `to` sees it."""
    to: Literal["model", "user"] = "model"
    """`model`: the model is told, and the run continues. `user`: the run fails with the code `guard_blocked`."""


@dataclass(frozen=True, slots=True)
class Retry:
    """Refuse an output, and ask the model for another one."""

    reason: str = ""
    """What is wrong with the output. The model sees it."""


@dataclass(frozen=True, slots=True)
class Ask:
    """Let a person decide whether a call is executed."""

    reason: str = ""
    """Why a person must decide. It is shown with the approval request."""


AnyVerdict = Allow | Replace | Block | Retry | Ask
ALLOWED: dict[Place, tuple[type, ...]] = {
    "input": (Allow, Replace, Block),
    "call": (Allow, Replace, Block, Ask),
    "result": (Allow, Replace, Block),
    "output": (Allow, Replace, Block, Retry),
}
"""The verdicts that a guard may return at each place."""


class Verdict(Stored):
    """A stored verdict of a guard."""

    guard: str
    """The name of the guard."""
    on: AsStored[Place]
    """The kind of the judged value: an `input`, a `call`, a `result` or an `output`."""
    of: str = ""
    """The judged message's index in history, or the id of the judged call. Empty for an output of the model."""
    verdict: AsStored[Literal["allow", "replace", "block", "retry", "ask"]] = "allow"
    """The verdict."""
    reason: str = ""
    """The reason that the guard gave. Empty if it gave none."""
    to: AsStored[Literal["model", "user"]] = "model"
    """The recipient of the reason of a `block`."""
    hash: str = ""
    """The first 32 hexadecimal digits of the SHA-256 of the judged value as JSON."""
    value: JsonValue = None
    """The replacement of an input or of a call's arguments. None for other verdicts, whose row has the replacement."""
    before: JsonValue = None
    """The result or output that the row no longer has, because this verdict replaced or refused it."""

    @property
    def refuses(self) -> bool:
        return self.verdict in ("block", "retry")

    @property
    def ends_run(self) -> bool:
        return self.verdict == "block" and self.to == "user"

    @property
    def withholds(self) -> bool:
        """Whether it refused a message of the user or an output, and the run went on."""
        return self.refuses and not self.ends_run and self.on in ("input", "output")

    def shown(self) -> JsonObject:
        """Return the verdict as a message's metadata has it. It omits the value that readers must not see."""
        return self.model_dump(mode="json", exclude_defaults=True, exclude={"before", "hash"})


Verdicts = list[Verdict]
NO_VERDICTS = Field(default_factory=list[Verdict])


def hash_of(value: JsonValue) -> str:
    return hashlib.sha256(dumps(value).encode()).hexdigest()[:32]


def stored_verdict(guard: str, on: Place, of: str, judged: JsonValue, verdict: AnyVerdict) -> Verdict:
    """Return the stored form of a verdict about `judged`."""
    row = Verdict(guard=guard, on=on, of=of, hash=hash_of(judged))
    match verdict:
        case Replace(value):
            others = {"value": value} if on in ("input", "call") else {"before": judged}
            return row.model_copy(update={"verdict": "replace", **others})
        case Block(reason, to):
            others = {} if on in ("input", "call") else {"before": judged}
            return row.model_copy(update={"verdict": "block", "reason": short(reason), "to": to, **others})
        case Retry(reason):
            return row.model_copy(update={"verdict": "retry", "reason": short(reason), "before": judged})
        case Ask(reason):
            return row.model_copy(update={"verdict": "ask", "reason": short(reason)})
        case Allow():
            return row


def short(reason: object) -> str:
    return clean_text(str(reason)[:MAX_REASON])


def about(verdicts: Sequence[Verdict], on: Place, of: str = "") -> list[Verdict]:
    """Return the verdicts about one value, in the order of the guards."""
    return [verdict for verdict in verdicts if verdict.on == on and verdict.of == of]


def refusal(verdicts: Sequence[Verdict], on: Place, of: str = "") -> Verdict | None:
    """Return the verdict that refused this value. None: no guard refused it."""
    return next((verdict for verdict in about(verdicts, on, of) if verdict.refuses), None)


def replacement(verdicts: Sequence[Verdict], on: Place, of: str) -> Verdict | None:
    """Return the last verdict that replaced this input or these arguments, or None."""
    return next((v for v in reversed(about(verdicts, on, of)) if v.verdict == "replace"), None)


_NOUNS = {"input": "the message", "call": "the call", "result": "the result", "output": "the answer"}
_VERBS = {"replace": "replaced", "ask": "asks about"}


def describe_change(verdict: Verdict) -> str:
    """Return a sentence about a verdict other than `Allow`: for errors, for readers, and for the model."""
    verb = _VERBS.get(verdict.verdict, "blocked")
    text = f"guard {verdict.guard!r} {verb} {_NOUNS.get(verdict.on, verdict.on)}"
    return f"{text}: {verdict.reason}" if verdict.reason else text
