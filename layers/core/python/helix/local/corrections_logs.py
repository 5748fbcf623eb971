"""Corrections to CloudWatch Logs. Part of `helix.local.corrections`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ministack.core.responses import json_response
from ministack.services import cloudwatch_logs

from helix.local.corrections_alarms import Corrections

CORRECTIONS = Corrections()
MOST_EVENTS = 10_000


@CORRECTIONS.replaces(cloudwatch_logs, "_filter_log_events")
def log_searches_have_pages(search: Any, data: Mapping[str, Any]) -> Any:
    """Return a token for the next page with a page that has `limit` events. MiniStack returns the first page only. Here a
    search finds at most 10,000 events."""
    token, limit = data.get("nextToken", "0"), min(data.get("limit", MOST_EVENTS), MOST_EVENTS)
    if not token.isdecimal():
        return cloudwatch_logs.error_response_json("InvalidParameterException", "The nextToken is invalid.", 400)
    start, end = int(token), int(token) + limit
    status, headers, body = search({**data, "limit": MOST_EVENTS})
    if status != 200:
        return status, headers, body
    found = json.loads(body)
    more = {"nextToken": str(end)} if end < len(found["events"]) else {}
    return json_response({**found, "events": found["events"][start:end], **more})
