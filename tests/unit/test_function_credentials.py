"""Two concurrent invocations of a function get the same credentials."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from ministack import app
from ministack.services import sts

from helix.local import corrections


def test_invocations_at_once_get_the_same_session(monkeypatch: pytest.MonkeyPatch) -> None:
    sessions: dict[str, Any] = {}
    monkeypatch.setattr(app, "AUTH", True)
    monkeypatch.setattr(sts, "_sessions", sessions)
    monkeypatch.setattr(corrections, "_given_out", {})
    names = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")

    def of_names(config: Any) -> dict[str, str]:
        sts.register_session("ASIAKNOWN", {"Arn": config["Role"]})
        time.sleep(0.01)  # meanwhile the other invocation registers the same key
        return dict.fromkeys(names, "ASIAKNOWN")

    def invoke(_: int) -> dict[str, str]:
        config = {"FunctionArn": "arn:aws:lambda:us-east-1:000000000000:function:f", "Role": "role"}
        return corrections.workers_have_random_credentials(of_names, config)

    with ThreadPoolExecutor(4) as pool:
        given = list(pool.map(invoke, range(8)))
    assert all(one == given[0] for one in given)
    assert list(sessions) == [given[0]["AWS_ACCESS_KEY_ID"]], "the emulator's well-known key is not valid"
