"""Log lines of a stage's functions, in the form in which people read them.

Law: a line is a JSON object of the functions' logger, metrics in CloudWatch's embedded format, or any other text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from helix.core.json import load_object

UNCAUGHT = "[ERROR] "
"""The prefix of the line that Lambda logs for an uncaught exception."""
_HIDDEN = frozenset(
    {"level", "message", "timestamp", "service", "location", "xray_trace_id", "sampling_rate", "request_id", "stage"}
    | {"session_id", "run_id", "exception", "exception_name", "stack_trace", "_aws"}
)
_UNITS = {"Milliseconds": "ms", "Seconds": "s", "Percent": "%"}


class LineParts(NamedTuple):
    """The parts of a log line that people read."""

    level: str
    """The level in capital letters. `INFO` if the line does not have one."""
    message: str
    """The message with the line's other fields, and the last line of an exception. Metrics that are 0 are left out."""
    fields: Mapping[str, Any]
    """The fields of the line. Empty if it is not a JSON object."""


def parse_line(text: str) -> LineParts:
    fields = load_object(text) or {}
    if (units := _units(fields)) is not None:
        message = _format_metrics(fields, units)
    elif "message" in fields:
        more = [f"{name}={value}" for name, value in fields.items() if name not in _HIDDEN]
        problem = str(fields.get("exception", "")).strip().splitlines()[-1:]
        message = " ".join([str(fields["message"]), *more, *(f"({line})" for line in problem)])
    else:
        return LineParts("ERROR" if text.startswith(UNCAUGHT) else "INFO", text.removeprefix(UNCAUGHT), {})
    return LineParts(str(fields.get("level", "INFO")).upper(), message, fields)


def names_run(text: str, run_id: str) -> bool:
    """Return whether the line names this run, or an execution of it. The id of another run may begin with this one's."""
    return re.search(rf"(?<![A-Za-z0-9_]){re.escape(run_id)}(?![A-Za-z0-9]|_(?!_part-))", text) is not None


def _units(fields: Mapping[str, Any]) -> dict[str, str] | None:
    """Return the metrics' units by name if the line is in CloudWatch's embedded metric format, otherwise None."""
    try:
        metrics = [metric for directive in fields["_aws"]["CloudWatchMetrics"] for metric in directive["Metrics"]]
        return {metric["Name"]: _UNITS.get(metric.get("Unit"), "") for metric in metrics}
    except (KeyError, TypeError, AttributeError):
        return None


def _format_metrics(fields: Mapping[str, Any], units: Mapping[str, str]) -> str:
    """Format the dimensions of the metrics, and each metric that is not 0."""
    about = [f"{name}={value}" for name, value in fields.items() if name not in _HIDDEN | units.keys()]
    values = {name: value for name in units if (value := _number(fields.get(name)))}
    return " ".join([*about, *(f"{name}={_format_value(value, units[name])}" for name, value in values.items())])


def _format_value(value: float, unit: str) -> str:
    return f"{value:.1f}{unit}" if unit else f"{value:.10g}"


def _number(value: Any) -> float:
    """Return the value of a metric, which Powertools writes as a list."""
    first = value[0] if isinstance(value, list) and value else value
    return round(first, 6) if isinstance(first, int | float) else 0
