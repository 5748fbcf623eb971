"""Warnings and failures of a deployed stage, with one metric and one alarm for each. The log names the individual
problems.

Law: nothing is recorded while there is nothing to report, so an idle stage pays for no metrics. A threshold may stay
exceeded for days, during which its alarm sends no further messages, so failures are counted separately from thresholds.
"""

from __future__ import annotations

from collections.abc import Mapping

from helix._log import get_logger
from helix.core.measures import Measures
from helix.ports.metrics import Metrics

WARNINGS = "Warnings"
FAILURES = "Failures"

logger = get_logger("helix")


def warn(metrics: Metrics, found: Mapping[str, str]) -> None:
    """Count exceeded thresholds and unhealthy checks, and log each. `found` maps their names to a description."""
    _report(metrics, WARNINGS, "warning", found)


def report_failures(metrics: Metrics, found: Mapping[str, str]) -> None:
    """Count failures, and log each. `found` maps their names to a description."""
    _report(metrics, FAILURES, "failure", found)


def _report(metrics: Metrics, measure: str, kind: str, found: Mapping[str, str]) -> None:
    for name, how in found.items():
        logger.warning("%s: %s: %s", kind, name, how)
    if found:
        metrics.record(Measures({measure: len(found)}, details={f"{kind}s": ", ".join(found)}))
