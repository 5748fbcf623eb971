"""A function logs one JSON object per line, whatever text it quotes."""

import io
import json
import logging
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import BaseModel

from helix.runtime import lambdas


class Event(BaseModel):
    session_id: str


class App:
    """The part of an application that a handler needs."""

    settings = SimpleNamespace(stage="dev")
    clock = SimpleNamespace(now=lambda: 0.0)
    ids = SimpleNamespace(new=lambda kind: kind)

    def run(self, work: Any) -> Any:
        try:
            work.send(None)
        except StopIteration as done:
            return done.value

    def flush(self, timeout_s: float) -> None:
        return


def test_half_a_character_loses_no_line(monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(out, encoding="utf-8", write_through=True))
    monkeypatch.setattr(lambdas, "application", App)

    async def verb(app: Any, event: Event, delivery: Any) -> str:
        logging.getLogger("helix.engine").warning("a tool said %s to Zoë", "half \ud83d")
        return "done"

    handler = lambdas.serve("test_lambda_log", Event, verb)
    context = SimpleNamespace(aws_request_id="r", get_remaining_time_in_millis=lambda: 1000)
    assert handler({"session_id": "s"}, context) == "done"
    told, done = [json.loads(line) for line in out.getvalue().decode().splitlines()]
    assert done["message"] == "done" and done["took_ms"] >= 0
    assert told["message"] == "a tool said half \ud83d to Zoë"
    assert (told["session_id"], told["request_id"], told["level"]) == ("s", "r", "WARNING")
