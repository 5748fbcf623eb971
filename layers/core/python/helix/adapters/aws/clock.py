"""A clock that follows DynamoDB's time, so that workers whose clocks differ agree on which claims have expired."""

from __future__ import annotations

from email.utils import mktime_tz, parsedate_tz
from typing import Any

from botocore.session import Session

from helix.adapters.system import SystemClock
from helix.ports.clock import Clock

TOLERANCE_S = 1.0
"""The tolerated difference from the server's clock. Some servers reuse the same `Date` for a second."""
_SENT = "helix_sent"


class TableClock(SystemClock):
    """The machine's clock, corrected by the `Date` of DynamoDB's responses.

    The server writes `Date`, in whole seconds, between the moment when the request is sent and the moment when its
    response is received. The clock is corrected only as far as these two moments require. So an accurate clock is never
    moved, even if the process is suspended during a call. The remaining error is about 2 s, which is within
    `Settings.margin_s`.
    """

    def __init__(self, machine: Clock | None = None) -> None:
        self._machine = machine or SystemClock()
        self._ahead_s = 0.0

    def now(self) -> float:
        return round(self._machine.now() + self._ahead_s, 4)

    def follow(self, session: Session) -> None:
        """Read the responses of all DynamoDB clients that this session creates from now on."""
        session.register("request-created.dynamodb", self._send)
        session.register("response-received.dynamodb", self._receive)

    def _send(self, request: Any, **_: Any) -> None:
        request.context[_SENT] = self._machine.now()

    def _receive(self, context: dict[str, Any], response_dict: dict[str, Any] | None, **_: Any) -> None:
        date = parsedate_tz(response_dict["headers"].get("date", "")) if response_dict else None
        if date is None:
            return
        server, received = mktime_tz(date), self._machine.now()
        least, most = server - TOLERANCE_S - received, server + 1 + TOLERANCE_S - context[_SENT]
        self._ahead_s = min(max(self._ahead_s, least), most)
