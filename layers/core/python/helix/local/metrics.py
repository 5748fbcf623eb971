"""Embedded metrics. As on AWS, function log lines in the CloudWatch embedded metric format become metrics, so that alarms
work.

Law: a line that is not in the format is ignored. If a metric cannot be sent, the function that logged it is not affected.
https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/CloudWatch_Embedded_Metric_Format_Specification.html
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Iterator
from typing import Any

from helix.core.json import load_object

EVERY_S = 1.0
AT_MOST = 500
"""The maximum number of metrics in one PutMetricData request."""

logger = logging.getLogger("helix.local")


class MetricForwarder:
    """Forwards metrics to CloudWatch. `client` is called to create a CloudWatch client when the first metric is sent."""

    def __init__(self, client: Callable[[], Any]) -> None:
        self._client = client
        self._lines: queue.Queue[dict[str, Any]] = queue.Queue()
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    def forward_line(self, line: dict[str, Any]) -> None:
        """Forward a line's metrics. This method is a listener for the emulator."""
        document = embedded(line["line"])
        if document is None or self._closed.is_set():
            return
        self._lines.put(document)
        if self._thread is None:
            thread = threading.Thread(target=self._forward, daemon=True)
            thread.start()
            self._thread = thread

    def close(self) -> None:
        self._closed.set()
        if self._thread is not None:
            self._thread.join(EVERY_S + 5)

    def _forward(self) -> None:
        while not self._closed.wait(EVERY_S):
            by_namespace: dict[str, list[dict[str, Any]]] = {}
            while not self._lines.empty():
                for namespace, datum in data_of(self._lines.get()):
                    by_namespace.setdefault(namespace, []).append(datum)
            for namespace, data in by_namespace.items():
                self._put(namespace, data)

    def _put(self, namespace: str, data: list[dict[str, Any]]) -> None:
        try:
            for start in range(0, len(data), AT_MOST):
                self._client().put_metric_data(Namespace=namespace, MetricData=data[start : start + AT_MOST])
        except Exception as error:  # functions continue
            logger.warning("%d metrics of %s were not forwarded: %s", len(data), namespace, error)


def embedded(text: str) -> dict[str, Any] | None:
    """Return the embedded metric document of a line, or None."""
    document = load_object(text) if '"_aws"' in text else None
    directives = None if document is None else document.get("_aws", {}).get("CloudWatchMetrics")
    return document if isinstance(directives, list) else None


def data_of(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (namespace, MetricDatum) for each metric and each set of dimensions."""
    moment = document["_aws"].get("Timestamp", 0) / 1000
    for directive in document["_aws"]["CloudWatchMetrics"]:
        for names in directive.get("Dimensions") or [[]]:
            dimensions = [{"Name": name, "Value": str(document[name])} for name in names if name in document]
            for metric in directive.get("Metrics", []):
                value = document.get(metric["Name"])
                values = value if isinstance(value, list) else [value]
                numbers = [float(v) for v in values if isinstance(v, int | float)]
                if numbers:
                    datum = {"MetricName": metric["Name"], "Dimensions": dimensions, "Timestamp": moment}
                    datum |= {"Values": numbers, "Unit": metric.get("Unit", "None")}
                    yield directive["Namespace"], datum
