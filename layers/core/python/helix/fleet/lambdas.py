"""The function `govern`, triggered by alarms and by the schedule. It changes the limits of the deployed app.

Law: the trigger names the agents to evaluate. Messages are ignored unless they report an alarm of this stage that changes
to `ALARM`. Only the schedule does the per-minute work (the sweep, gauges, unpublished budget alerts), so many alarms cost
little. On an idle stage, the schedule reads two rows.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection
from functools import lru_cache, partial
from typing import Any

from pydantic import AliasPath, BaseModel, ConfigDict, Field, ValidationError

from helix.core.agents import AnyAgent
from helix.core.delivery import Delivery
from helix.core.errors import AgentNotFoundError, HelixError, StoreError
from helix.core.measures import AGENT, STAGE
from helix.core.resources import ResourceConfig
from helix.core.thresholds import Thresholds
from helix.engine.engine import logger
from helix.engine.runs.admission import gauges
from helix.fleet.alerts import publish_alerts
from helix.fleet.governing import FAILED, WINDOW_S, Governor, Registered, Trigger, governor_of
from helix.fleet.health import HealthChecker
from helix.fleet.llm_health import CachedCalls, Counts, evaluate_calls, find_recently_active, record_checks
from helix.fleet.rows import read_entry
from helix.fleet.spending import record_gauges
from helix.fleet.warnings import HOUR_S, find_exceeded, warn_of_failing_checks, warn_of_late_sweep
from helix.ports.state_store import Key, Put
from helix.runtime.cloud import Application
from helix.services.activity import read_beats
from helix.services.usage_counters import agent_scope, read_scopes
from helix.services.warnings import report_failures, warn

OF_AGENT = agent_scope("")
SOUNDS = "ALARM"


class _Part(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True, defer_build=True)


class SnsRecord(_Part):
    id: str = Field(default="", validation_alias=AliasPath("Sns", "MessageId"))
    """The message's id. It stays the same when SNS redelivers the message."""
    text: str = Field(default="", validation_alias=AliasPath("Sns", "Message"))
    """The message's text. For an alarm it is the JSON of `Alarm`."""


class GovernEvent(_Part):
    """The function's event, which contains messages from the alarm topic or comes from the schedule."""

    records: list[SnsRecord] = Field(default_factory=list, alias="Records")
    """The messages. Empty: the schedule sent the event."""


class Alarm(_Part):
    """CloudWatch's notification of an alarm state change. Its other fields describe the data behind the change."""

    name: str = Field(alias="AlarmName")
    """The alarm's name, `helix-<stage>-<what it watches>`."""
    state: str = Field(default=SOUNDS, alias="NewStateValue")
    """The new state. In `ALARM` the threshold is breached."""
    trigger: dict[str, Any] = Field(default_factory=dict, alias="Trigger")
    """The alarm's metric or expression, with its dimensions."""

    @property
    def dimensions(self) -> dict[str, set[str]]:
        """The dimensions of the alarm's metric, or of all metrics in its expression."""
        metrics = [self.trigger, *(_metric(part) for part in self.trigger.get("Metrics") or [])]
        found: dict[str, set[str]] = {}
        for metric in metrics:
            for pair in metric.get("Dimensions") or []:
                name, value = (pair.get(key, pair.get(key.capitalize(), "")) for key in ("name", "value"))
                found.setdefault(str(name), set()).add(str(value))
        return found


def _metric(part: dict[str, Any]) -> dict[str, Any]:
    metric: dict[str, Any] = (part.get("MetricStat") or {}).get("Metric") or {}
    return metric


def triggers(event: GovernEvent, stage: str) -> list[Trigger]:
    """Return the triggers of an event: the agents to evaluate, and the cause."""
    if not event.records:
        return [Trigger()]
    found = []
    for record in event.records:
        alarm = _parse_alarm(record.text)
        if alarm is None or not alarm.dimensions.get(STAGE, {stage}) & {stage}:
            continue
        agents = alarm.dimensions.get(AGENT)
        name = alarm.name.removeprefix(f"helix-{stage}-")
        found.append(Trigger(name, frozenset(agents) if agents else None, record.id))
    return found


def _parse_alarm(text: str) -> Alarm | None:
    """Return the alarm if it changes to `ALARM`. None for any other state, and for a message from another sender."""
    try:
        alarm = Alarm.model_validate(json.loads(text))
    except (ValueError, ValidationError):
        return None
    return alarm if alarm.state == SOUNDS else None


async def govern(app: Application, event: GovernEvent, delivery: Delivery) -> dict[str, int]:
    """Evaluate the event's agents, and return how often each result occurred. Raises `StoreError` if an agent could not be
    evaluated. An alarm's message is then redelivered, and a persistent error raises an alarm."""
    done, now = Counter[str](), app.clock.now()
    if not event.records:
        if now < (await read_beats(app.store)).due_at(now):
            logger.info("governed: the stage is at rest")
            return {}
        done[FAILED] += await _start_sweep(app)  # first, so that an error below does not prevent the sweep
    asked = CachedCalls(app.cloudwatch, app.clock) if event.records else _cached_calls(app)
    governor = _governor(app, asked)
    await note_alarms(app, event)
    for trigger in triggers(event, app.settings.stage):
        done += await governor.govern(trigger, delivery)
    if not event.records:
        done += await _each_minute(app, governor, asked, delivery)
    elif done["down"]:  # a budget may have stopped an agent, so its alert is published immediately
        done["alerts published"] += await _publish(app)
    done = +done
    logger.info("governed: %s", dict(done) or "nothing to do")
    if done[FAILED]:
        raise StoreError(f"{done[FAILED]} evaluations failed; the log says why")
    return dict(done)


async def note_alarms(app: Application, event: GovernEvent) -> None:
    """Record the newest message of each alarm. `helix check --stage` sets an alarm and waits for its message here."""
    heard = ((alarm.name, record.id) for record in event.records if (alarm := _parse_alarm(record.text)) is not None)
    if rows := [Put(alarm_key(name), {"message": message}) for name, message in dict(heard).items()]:
        await app.store.transact("note_alarms", rows)


def alarm_key(alarm: str) -> Key:
    return Key("control", "alarms", alarm)


@lru_cache(maxsize=1)
def _cached_calls(app: Application) -> CachedCalls:
    """Return the cached metrics source for scheduled evaluations. An alarm needs current metrics, so it does not use the
    cache."""
    return CachedCalls(app.cloudwatch, app.clock)


def _governor(app: Application, asked: CachedCalls) -> Governor:
    """Return the governor of the deployed app. It uses metrics from CloudWatch, limits in the control table, and
    provisioned concurrency if the stage has any."""
    return governor_of(app.engine, partial(_registered, app), asked, lambda slots: app.capacity)


async def _registered(app: Application, agent: str) -> Registered | None:
    """Return the resources from the deployed definition, and whether an operator stopped the agent according to its
    entry."""
    defined = _find_agent(app, agent)
    if defined is None:
        return None
    asked, entry = defined.resources, await read_entry(app.store, agent)
    resources = ResourceConfig.of(asked, f"agent {agent!r}", "resources") if asked else None
    return Registered(resources, stopped=entry is not None and entry.stopped)


async def _each_minute(app: Application, governor: Governor, asked: CachedCalls, delivery: Delivery) -> Counter[str]:
    """Do the work that does not depend on alarms: gauges, unpublished alerts, and the health of each agent's model
    calls."""
    counts, money, now = await gauges(app.engine), governor.money, app.clock.now()
    governed = {agent for agent in counts if agent is not None} | await money.agents()
    agents = governed | {scope.removeprefix(OF_AGENT) for scope in await read_scopes(app.store, OF_AGENT)}
    read, metrics = await money.read(agents), app.engine.metrics
    worked = await find_recently_active(app.store, agents, counts, now)
    if worked or any(counts[None].get(name) for name in ("QueueDepth", "RunsActive")):  # an idle stage records none
        shown = {agent: used for agent, used in read.items() if agent is None or agent in governed}
        record_gauges(metrics, counts, shown)
    unhealthy = await record_checks(app.store, metrics, now, lambda target: _find_agent(app, target) is not None)
    published = await _publish(app)
    health = HealthChecker(app.store, clock=app.clock)
    failed = await evaluate_calls(health, asked, counts, read, delivery, app.clock, ask=worked)
    beats = await read_beats(app.store)
    found = warn_of_failing_checks(unhealthy)
    try:
        found |= await _find_warnings(app, asked, worked, counts)
    except HelixError as error:
        failed = failed or 1
        logger.warning("the thresholds could not be checked: %s", error)
    warn(metrics, found)
    report_failures(metrics, warn_of_late_sweep(beats, now))
    return Counter({"alerts published": published, FAILED: failed})


async def _start_sweep(app: Application) -> int:
    try:
        await app.start_sweep()
    except StoreError as error:
        logger.warning("%s", error)
        return 1
    return 0


async def _publish(app: Application) -> int:
    return await publish_alerts(app.store, app.notifier.publish, app.settings.stage)


async def _find_warnings(
    app: Application, asked: CachedCalls, worked: Collection[str], counts: Counts
) -> dict[str, str]:
    """Return the warnings for the stage's exceeded thresholds. `worked`: the agents that may have made calls."""
    if not worked:
        return {}
    thresholds = Thresholds.model_validate_json(app.settings.thresholds or "{}")
    calls = {agent: await asked.read(agent, WINDOW_S) for agent in sorted(worked)}
    return find_exceeded(thresholds, calls, counts, await asked.spent(HOUR_S))


def _find_agent(app: Application, name: str) -> AnyAgent | None:
    try:
        return app.agents.named(name)
    except AgentNotFoundError:
        return None
