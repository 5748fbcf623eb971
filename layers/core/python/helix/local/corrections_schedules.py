"""Corrections to EventBridge Scheduler's schedules, which have a time zone. Part of `helix.local.corrections`.

Law: the time zone is appended to the stored expression, because MiniStack's own ticker passes on only the expression.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from functools import partial
from typing import Any
from zoneinfo import ZoneInfo

from ministack.services import eventbridge, scheduler
from ministack.services.cloudformation import provisioners

from helix.local.corrections_alarms import Corrections

CORRECTIONS = Corrections()
UTC = "UTC"
TIME = "<aws.scheduler.scheduled-time>"
TYPE = "AWS::Scheduler::Schedule"
_ZONE = "ScheduleExpressionTimezone"


class ZonedFields(tuple[Any, ...]):
    """The fields of a cron expression, in a time zone."""

    zone: ZoneInfo
    """The schedule's time zone."""


@CORRECTIONS.add
def schedules_have_a_time_zone() -> None:
    """Interpret a cron expression in the schedule's time zone, and insert the scheduled time into the input. MiniStack
    assumes UTC, drops the time zone of a schedule that CloudFormation creates, and leaves the input unchanged."""
    for verb in ("_create_schedule", "_update_schedule"):
        setattr(scheduler, verb, partial(_create_schedule, getattr(scheduler, verb)))
    handlers = provisioners._RESOURCE_HANDLERS[TYPE]
    provisioners._RESOURCE_HANDLERS[TYPE] = {
        **handlers,
        "create": partial(_provision_schedule, handlers["create"], 1),
        "update": partial(_provision_schedule, handlers["update"], 2),
    }
    eventbridge._parse_cron_fields = partial(parse_zoned, eventbridge._parse_cron_fields)
    eventbridge._cron_next_fire = partial(next_fire, eventbridge._cron_next_fire)
    eventbridge._invoke_target = partial(_insert_scheduled_time, eventbridge._invoke_target)


def _create_schedule(otherwise: Any, name: str, body: Mapping[str, Any]) -> Any:
    created = otherwise(name, body)
    _append_zone(body.get("GroupName", "default"), name, body.get(_ZONE, UTC))
    return created


def _provision_schedule(otherwise: Any, given: int, *words: Any) -> Any:
    """Provision a schedule. `given` is the index of the properties in `words`."""
    physical, attributes = otherwise(*words)
    _append_zone(words[given].get("GroupName", "default"), physical, words[given].get(_ZONE, UTC))
    return physical, attributes


def _append_zone(group: str, name: str, zone: str) -> None:
    schedule = scheduler._schedules.get(f"{group}/{name}")
    if schedule is None:
        return
    schedule[_ZONE] = zone
    expression = schedule["ScheduleExpression"].partition(")")[0] + ")"
    schedule["ScheduleExpression"] = expression if zone == UTC else f"{expression} {zone}"


def parse_zoned(otherwise: Any, expression: str) -> Any:
    plain, closed, zone = expression.partition(")")
    fields = otherwise(plain + closed)
    if fields is None or not zone.strip():
        return fields
    zoned = ZonedFields(fields)
    zoned.zone = ZoneInfo(zone.strip())
    return zoned


def next_fire(otherwise: Any, fields: Any, after: datetime.datetime) -> Any:
    if not isinstance(fields, ZonedFields):
        return otherwise(fields, after)
    found = otherwise(fields, after.astimezone(fields.zone))
    return None if found is None else found.astimezone(datetime.UTC)


def _insert_scheduled_time(
    otherwise: Any, target: Mapping[str, Any], event: Mapping[str, Any], *more: Any, **named: Any
) -> Any:
    if event.get("Source") == "aws.scheduler" and TIME in target.get("Input", ""):
        moment = datetime.datetime.fromtimestamp(float(event["Time"]), datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        target = {**target, "Input": target["Input"].replace(TIME, moment)}
    return otherwise(target, event, *more, **named)
