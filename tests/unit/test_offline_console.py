"""`helix dev` turns the lines that functions log into text for people and metrics for CloudWatch."""

from __future__ import annotations

import io
import json
import re
from typing import Any

from helix.local.console import Console
from helix.local.metrics import data_of, embedded


def line(text: object, **about: Any) -> dict[str, Any]:
    said = text if isinstance(text, str) else json.dumps(text)
    where = {"function": "helix-dev-call_tool", "version": "3", "request_id": "q"}
    return {**where, "about": about, "time": 1795277678.5, "line": said}


def metrics(**values: Any) -> dict[str, Any]:
    named = [{"Name": name, "Unit": "Count"} for name, value in values.items() if isinstance(value, list)]
    directive = {"Namespace": "Helix", "Dimensions": [["service"]], "Metrics": named}
    return {"_aws": {"Timestamp": 1795277678500, "CloudWatchMetrics": [directive]}, "service": "call_tool", **values}


def done(took_ms: float) -> dict[str, Any]:
    return {"level": "INFO", "message": "done", "service": "call_tool", "took_ms": took_ms}


def shown(said: dict[str, Any], *, colour: bool = False) -> str:
    """Return the text without its time, which depends on this machine."""
    out = io.StringIO()
    Console(out, prefix="helix-dev-", colour=colour).print_line(said)
    return out.getvalue()[13:]


def test_what_a_function_says_is_shown_with_its_fields() -> None:
    said = {"level": "WARNING", "message": "late", "service": "call_tool", "location": "x:1", "session_id": "s"}
    assert shown(line(said)) == "WARNING call_tool      late session_id=s\n"
    assert shown(line("plain words\n")) == "INFO    call_tool      plain words\n"
    assert shown(line("")) == ""
    assert shown(line('{"no": "log line"}')) == 'INFO    call_tool      {"no": "log line"}\n'


def test_what_fails_stands_out() -> None:
    assert shown(line("[ERROR] KeyError: 'x'")) == "ERROR   call_tool      KeyError: 'x'\n"
    said = {"level": "ERROR", "message": "KeyError", "exception": "Traceback:\n  one"}
    assert shown(line(said)) == "ERROR   call_tool      KeyError\n    Traceback:\n      one\n"
    assert "\x1b[31;1m" in shown(line(said), colour=True)


def test_a_step_is_shown_with_its_time_and_metrics_are_not() -> None:
    step = {"session_id": "s", "step": 2}
    assert shown(line(done(1234.4), **step)) == "INFO    call_tool      step 2 in 1,234 ms session=s\n"
    call = {"session_id": "s", "call": {"step": 1, "id": "c"}}
    assert shown(line(done(12.0), **call)) == "INFO    call_tool      step 1 in 12 ms session=s\n"
    assert shown(line(done(3.0), session_id="s")) == "INFO    call_tool      done in 3 ms session=s\n"
    assert shown(line(done(3.0))) == "", "of no run"
    assert shown(line({"level": "INFO", "message": "done"}, **step)) == "INFO    call_tool      done\n", "a tool's own"


def test_as_json_nothing_is_left_out() -> None:
    out = io.StringIO()
    console = Console(out, prefix="helix-dev-", colour=False, as_json=True)
    for said in (line("words"), line(metrics(Duration=[3.0]))):
        console.print_line(said)
    words, numbers = map(json.loads, out.getvalue().splitlines())
    assert words["said"] == "words" and numbers["said"]["Duration"] == [3.0] and words["function"].endswith("call_tool")


def test_metrics_are_those_of_the_embedded_format() -> None:
    document = embedded(json.dumps(metrics(Duration=[1.0, 2.0], Name="no number")))
    assert document is not None
    ((namespace, datum),) = data_of(document)
    assert namespace == "Helix" and datum["Values"] == [1.0, 2.0] and datum["Timestamp"] == 1795277678.5
    assert datum["Dimensions"] == [{"Name": "service", "Value": "call_tool"}]
    for text in ("words", '{"_aws"', '{"_aws": {}}', '["_aws"]'):
        assert embedded(text) is None


def test_control_characters_are_shown_and_not_written() -> None:
    attack = "\x1b]0;owned\x07\x1b[2J\x9b1m\x00\u202eabc\r"
    said = {"level": "ERROR", "message": attack, "tool": attack, "exception": f"Traceback\n{attack}"}
    for text in (shown(line(said)), shown(line(attack))):
        assert "␛]0;owned␇␛[2J" in text
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", text)
    out = io.StringIO()
    Console(out, prefix="", colour=False, as_json=True).print_line(line(said))
    assert json.loads(out.getvalue())["said"] == said and "\x9b" not in out.getvalue()
