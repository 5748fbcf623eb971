"""Metrics written as log lines in CloudWatch's embedded metric format. Writing them requires no API call, no wait and
no permission.

Law: one line per `Measures`. Each metric is recorded for its stage, and for its agent in that stage. High-cardinality
fields (ids) are properties of the line, which cost nothing and can be searched in the log.
https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/CloudWatch_Embedded_Metric_Format_Specification.html

Powertools' provider keeps one set of values per process until it is flushed, and adds its own dimension `service`. It
would mix the metrics of concurrent tasks, so the line is written here.
"""

from __future__ import annotations

import json
import sys
from typing import TextIO

from helix._log import get_logger
from helix.core.measures import AGENT, NAMESPACE, STAGE, UNITS, Measures
from helix.ports.clock import Clock

logger = get_logger("helix")


class EmfMetrics:
    """A writer of metrics. `out` receives the lines; the default is the process's standard output. An unnamed stage is
    `dev`."""

    def __init__(self, stage: str, clock: Clock, *, out: TextIO | None = None) -> None:
        self._stage, self._clock, self._out = stage or "dev", clock, out

    def record(self, measures: Measures) -> None:
        if not measures.values:
            return
        out = self._out if self._out is not None else sys.stdout
        try:
            out.write(self._line(measures) + "\n")  # one write, so lines from two threads do not mix
            out.flush()
        except (OSError, ValueError) as error:  # the output is closed, or a value is not a number
            logger.debug("a line of metrics was not written: %s", error)

    def _line(self, measures: Measures) -> str:
        sets = [[STAGE], [STAGE, AGENT]] if measures.agent else [[STAGE]]
        directive = {
            "Namespace": NAMESPACE,
            "Dimensions": sets,
            "Metrics": [{"Name": name, "Unit": UNITS[name]} for name in measures.values],
        }
        metadata = {"Timestamp": int(self._clock.now() * 1000), "CloudWatchMetrics": [directive]}
        line: dict[str, object] = dict(measures.details)
        line |= {STAGE: self._stage} | ({AGENT: measures.agent} if measures.agent else {})
        line |= measures.values
        return json.dumps({"_aws": metadata, **line}, separators=(",", ":"), allow_nan=False)
