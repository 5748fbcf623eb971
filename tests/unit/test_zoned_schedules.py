"""Offline, a schedule with a time zone runs at that hour in the zone, in summer and in winter."""

from __future__ import annotations

import datetime

import pytest
from ministack.services.eventbridge import _cron_next_fire, _parse_cron_fields

from helix.local.corrections_schedules import next_fire, parse_zoned


@pytest.mark.parametrize(
    ("expression", "after", "due"),
    [
        ("cron(0 8 * * ? *) Europe/Berlin", "2026-11-23T00:00", "2026-11-23T07:00"),
        ("cron(0 8 * * ? *) Europe/Berlin", "2026-07-23T00:00", "2026-07-23T06:00"),
        ("cron(0 8 * * ? *) Asia/Tokyo", "2026-11-23T00:00", "2026-11-23T23:00"),
        ("cron(0 8 ? * MON *) Asia/Tokyo", "2026-11-23T00:00", "2026-11-29T23:00"),
        ("cron(0 8 * * ? *)", "2026-11-23T00:00", "2026-11-23T08:00"),
    ],
)
def test_it_is_due_at_its_hour_there(expression: str, after: str, due: str) -> None:
    fields = parse_zoned(_parse_cron_fields, expression)
    moment = datetime.datetime.fromisoformat(after).replace(tzinfo=datetime.UTC)
    found = next_fire(_cron_next_fire, fields, moment)
    assert found == datetime.datetime.fromisoformat(due).replace(tzinfo=datetime.UTC)
    assert parse_zoned(_parse_cron_fields, "rate(1 minute)") is None
