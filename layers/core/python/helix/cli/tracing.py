"""Traces in the terminal: where the functions of the offline cloud send their spans, and how a finished run is shown.

Law: whoever names an endpoint of his own gets the traces there, and none here.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from helix.runtime.tracing import ENDPOINT, TRACES_ENDPOINT

if TYPE_CHECKING:
    from helix.cli.dev import DevOptions
    from helix.local.trace_tree import Received

Show = Callable[["list[Received]"], None]


@contextlib.contextmanager
def tracing(show: Show, environment: Mapping[str, str] = os.environ) -> Iterator[tuple[dict[str, str], str | None]]:
    """While the block runs: the variables that functions need, and where their traces are served. Nothing where they go
    elsewhere, or OpenTelemetry is not installed."""
    elsewhere = environment.get(ENDPOINT) or environment.get(TRACES_ENDPOINT)
    if elsewhere or not _installed():
        yield {}, elsewhere or None
        return
    from helix.local.traces import TraceReceiver

    with TraceReceiver(show) as receiver:
        yield {ENDPOINT: receiver.url}, receiver.url


def show_traces(options: DevOptions) -> Show:
    """Prints each finished run, in the format of the logs."""
    from helix.local.trace_tree import render

    def show(spans: list[Received]) -> None:
        if options.logs == "json":
            told = [
                {"span": s.span_id, "parent": s.parent_id, "name": s.name, "seconds": s.seconds, "told": s.attributes}
                for s in spans
            ]
            text = json.dumps({"trace": spans[0].trace_id, "spans": told}, ensure_ascii=False)
        else:
            text = "\n".join(["", *(f"    {line}" for line in render(spans)), ""])
        sys.stdout.write(text + "\n")
        sys.stdout.flush()

    return show


def _installed() -> bool:
    names = ("opentelemetry", "opentelemetry.sdk", "opentelemetry.proto")  # the first, or looking for the others raises
    return all(importlib.util.find_spec(name) is not None for name in names)
