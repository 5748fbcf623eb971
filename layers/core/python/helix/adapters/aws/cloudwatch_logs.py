"""The logs of a stage's functions, read from CloudWatch Logs.

Law: `read` uses only `logs:FilterLogEvents`, and is bounded in time. CloudWatch searches a part of a log per request, so a
page may be empty although later pages have lines.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

from helix.adapters.aws.calls import call
from helix.core.aws_links import log_group_prefix
from helix.core.errors import InvalidInputError
from helix.ports.clock import Clock
from helix.ports.function_logs import LogEvent, LogPage

SEARCH_S: Final = 8.0
"""The time after which a page ends, in seconds. API Gateway waits 29 s for a response."""
MISSING: Final = "ResourceNotFoundException"
INVALID: Final = "InvalidParameterException"
"""The code for a page token that CloudWatch does not know or that is older than 24 hours."""


class CloudWatchLogs:
    """A `Logs` on CloudWatch Logs. `client`: a botocore `logs` client."""

    def __init__(self, client: Any, stage: str, clock: Clock) -> None:
        self._client, self._prefix, self._clock = client, log_group_prefix(stage), clock

    async def functions(self) -> list[str]:
        """Return the names of all functions that have a log. This needs the right `logs:DescribeLogGroups`, which
        deployed functions do not have."""
        found: list[str] = []
        request: dict[str, Any] = {"logGroupNamePrefix": self._prefix}
        while True:
            page = await call(self._client, "describe_log_groups", "listing the log groups", **request)
            found += [group["logGroupName"].removeprefix(self._prefix) for group in page["logGroups"]]
            if not (token := page.get("nextToken")):
                return sorted(found)
            request["nextToken"] = token

    async def read(
        self,
        functions: Sequence[str],
        word: str,
        *,
        since: float,
        until: float | None = None,
        after: str | None = None,
        limit: int,
    ) -> LogPage:
        left, token = _find_place(functions, after)
        asked: dict[str, Any] = {"startTime": int(since * 1000), "filterPattern": json.dumps(word)}
        if until is not None:
            asked["endTime"] = int(until * 1000)
        ends = self._clock.now() + SEARCH_S
        events: list[LogEvent] = []
        while left:
            more = {"limit": limit - len(events), **({"nextToken": token} if token else {})}
            page = await self._search(left[0], **asked, **more)
            if page is None and token:
                raise InvalidInputError("the page token has expired: leave `after` out to read from the beginning")
            found = [] if page is None else page["events"]
            lines = (LogEvent(one["timestamp"] / 1000, left[0], one["message"].rstrip()) for one in found)
            events += [line for line in lines if word in line.text]
            token = "" if page is None else page.get("nextToken", "")
            if not token:
                left = left[1:]
            if left and (len(events) >= limit or self._clock.now() >= ends):
                return LogPage(sorted(events), f"{left[0]} {token}")
        return LogPage(sorted(events), None)

    async def _search(self, function: str, **request: Any) -> Any:
        """Return CloudWatch's response. None: the function has no log, or the request's page token is not valid."""
        harmless = {MISSING, INVALID} if "nextToken" in request else {MISSING}
        group = f"{self._prefix}{function}"
        what = f"reading the log of {function}"
        return await call(self._client, "filter_log_events", what, harmless, logGroupName=group, **request)


def _find_place(functions: Sequence[str], after: str | None) -> tuple[Sequence[str], str]:
    """Return the functions that are still to be read, and CloudWatch's page token for the first of them, or ""."""
    if after is None:
        return functions, ""
    name, _, token = after.partition(" ")
    if name not in functions:
        raise InvalidInputError("`after` is not a page token of this log: leave it out to read from the beginning")
    return functions[functions.index(name) :], token
