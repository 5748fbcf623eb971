"""What a deployed stage warns of: one metric, `Warnings`, so that one alarm stands for all; the log names them.

Law: nothing is recorded where there is nothing to warn of, so a stage at rest pays for no metric.
"""

from __future__ import annotations

from collections.abc import Mapping

from helix._log import get_logger
from helix.core.measures import Measures
from helix.ports.metrics import Metrics

WARNINGS = "Warnings"

logger = get_logger("helix")


def warn(metrics: Metrics, found: Mapping[str, str]) -> None:
    """Count the warnings, and log each. `found`: name -> how it is."""
    for name, how in found.items():
        logger.warning("warning: %s: %s", name, how)
    if found:
        metrics.record(Measures({WARNINGS: len(found)}, details={"warnings": ", ".join(found)}))
