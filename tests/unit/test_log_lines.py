"""`helix logs --stage` prints one line per event."""

from __future__ import annotations

import json
from typing import Any

import pytest

from helix.cli.sessions.logs import event_line

AT = 1795629249.407
HEAD = "2026-11-25 17:54:09.407 "
ABOUT = {"session_id": "dev:l1", "run_id": "run_1"}
EMF = {
    "_aws": {
        "Timestamp": 1795629249407,
        "CloudWatchMetrics": [
            {
                "Namespace": "Helix",
                "Dimensions": [["stage"], ["stage", "agent"]],
                "Metrics": [
                    {"Name": "ModelCalls", "Unit": "Count"},
                    {"Name": "ModelErrors", "Unit": "Count"},
                    {"Name": "CostUsd", "Unit": "None"},
                    {"Name": "Duration", "Unit": "Milliseconds"},
                ],
            }
        ],
    },
    "step": 1,
    "model": "demonstration",
    "stage": "dev",
    "agent": "desk",
    "ModelCalls": 1,
    "ModelErrors": 0,
    "CostUsd": 0.000565,
    "Duration": [3003.200054168701],
}
SAID = {
    "level": "ERROR",
    "location": "f:1",
    "message": "it\nbroke",
    "timestamp": "t",
    "service": "call_tool",
    "tool": "x",
}


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            json.dumps(EMF | ABOUT),
            "INFO    call_model     step=1 model=demonstration agent=desk ModelCalls=1 CostUsd=0.000565 "
            "Duration=3003.2ms session=dev:l1 run=run_1",
        ),
        (
            json.dumps(SAID | ABOUT | {"exception": "Traceback\n  File\nKeyError: 'x'", "stack_trace": {}}),
            "ERROR   call_model     it broke tool=x (KeyError: 'x') session=dev:l1 run=run_1",
        ),
        ("[ERROR] KeyError: dev:l1\nTraceback", "ERROR   call_model     KeyError: dev:l1 Traceback"),
        ("a print \x1b[2J of dev:l1", "INFO    call_model     a print ␛[2J of dev:l1"),
        ('["dev:l1"]', 'INFO    call_model     ["dev:l1"]'),
        ('{"_aws": 5, "session_id": "dev:l1"}', 'INFO    call_model     {"_aws": 5, "session_id": "dev:l1"}'),
    ],
)
def test_an_event_is_one_line(text: str, line: str) -> None:
    shown = event_line(AT, "call_model", text)
    assert shown == HEAD + line and "\n" not in shown


@pytest.mark.parametrize(
    "strange", [{"_aws": {"CloudWatchMetrics": 1}}, {"_aws": {"CloudWatchMetrics": [{"Metrics": [1]}]}}]
)
def test_what_only_looks_like_metrics_is_shown_as_it_is(strange: Any) -> None:
    text = json.dumps({"_aws": {"CloudWatchMetrics": strange}})
    assert text in event_line(AT, "f", text)
