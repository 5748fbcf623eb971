"""Calls that end elsewhere: the token with which another system ends a call, and what its row stores about the token.

Law: the row stores only a hash of the token's secret. Each execution of a call makes a token of its own, and each of them
can end the call. The first result is final.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error
from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Literal, Self

from pydantic import ConfigDict

from helix.core.checks import is_number
from helix.core.errors import CallerError, InvalidInputError
from helix.core.json import JsonValue
from helix.core.messages import Record

MAX_TOKENS = 10
"""The number of a call's tokens that stay valid, the newest ones. A call has one for each execution."""
_TOKEN = re.compile(r"call\.([A-Za-z0-9_-]{1,500})\.([A-Za-z0-9_-]{16,128})")
_PLACE = re.compile(r"(\d{1,9})\.(\d{1,9})\.([A-Za-z0-9_.:@+=-]{1,256})")
OnMissing = Literal["deny", "fail"]


class InvalidCallTokenError(CallerError):
    """No call has this token: it is wrong or too old, or the session was deleted. The error does not say which."""

    code = "invalid_call_token"

    def __init__(self, message: str = "") -> None:
        super().__init__(message or "no call has this token: it is wrong or too old, or the session was deleted")


class CallEndedError(CallerError):
    """The call of this token has ended otherwise. Nothing has changed."""

    code = "call_ended"


class Elsewhere(Record):
    """What a call's row stores about its tokens and its wait."""

    model_config = ConfigDict(extra="ignore")

    hashes: list[str]
    """The SHA-256 hash of each token's secret, as hexadecimal digits, the newest last."""
    heartbeat_s: float | None = None
    """The longest time between two heartbeats, in seconds. None: no heartbeats are expected."""
    until: float | None = None
    """The time (Unix seconds) when the wait for the result ends. None: never."""
    on_timeout: OnMissing = "deny"
    """The policy at that time. `deny` fails the call, `fail` also the run."""

    def deadline(self, now: float) -> float | None:
        """Return when the wait ends if no heartbeat comes after `now`. None: never."""
        beat = inf if self.heartbeat_s is None else now + self.heartbeat_s
        deadline = min(beat, inf if self.until is None else self.until)
        return None if deadline == inf else deadline

    def knows(self, token: CallToken) -> bool:
        """Return whether the call has this token."""
        given = token.secret_hash
        return sum(hmac.compare_digest(given, known) for known in self.hashes) > 0


@dataclass(frozen=True, slots=True)
class CallToken:
    """The parts of a token: the place of the call's row, and a secret."""

    session_id: str
    """The session of the call."""
    lineage: int
    """The lineage of the call's row."""
    index: int
    """The index of the call's row in the lineage."""
    secret: str
    """The secret, of which the row stores a hash."""

    @classmethod
    def parse(cls, text: object) -> Self:
        """Parse a token. Raises `InvalidCallTokenError`."""
        found = _TOKEN.fullmatch(text) if isinstance(text, str) else None
        if found is None:
            raise InvalidCallTokenError
        packed, secret = found.groups()
        try:
            place = _PLACE.fullmatch(urlsafe_b64decode(packed + "=" * (-len(packed) % 4)).decode())
        except (Error, ValueError):
            place = None
        if place is None:
            raise InvalidCallTokenError
        lineage, index, session_id = place.groups()
        return cls(session_id, int(lineage), int(index), secret)

    def __str__(self) -> str:
        place = f"{self.lineage}.{self.index}.{self.session_id}".encode()
        return f"call.{urlsafe_b64encode(place).decode().rstrip('=')}.{self.secret}"

    def __repr__(self) -> str:
        return f"CallToken({self.session_id!r}, {self.lineage}, {self.index}, ...)"

    @property
    def secret_hash(self) -> str:
        return hashlib.sha256(self.secret.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class CallEnding:
    """The result of a call, as another system reports it."""

    value: JsonValue = None
    """The result. It must fit the tool's output schema, if it has one."""
    error: str | None = None
    """The error message for the model. None: the call succeeded."""


@dataclass(frozen=True, slots=True)
class Wait:
    """The arguments of `ctx.later`."""

    heartbeat_s: float | None = None
    """See `ToolContext.later`."""
    timeout_s: float | None = None
    """See `ToolContext.later`."""
    on_timeout: OnMissing = "deny"
    """See `ToolContext.later`."""

    def __post_init__(self) -> None:
        for name in ("heartbeat_s", "timeout_s"):
            seconds = getattr(self, name)
            if seconds is not None and not (is_number(seconds) and 0 < seconds < inf):
                raise InvalidInputError(f"ctx.later: {name} must be a number of seconds, more than 0, or None")
        if self.on_timeout not in ("deny", "fail"):
            raise InvalidInputError("ctx.later: on_timeout must be 'deny' or 'fail'")


def make_secret(new_id: Callable[[str], str]) -> str:
    """Return a secret of two random ids. Each of them has 80 random bits."""
    return "".join(new_id("").strip("_") for _ in range(2))
