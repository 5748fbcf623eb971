"""A stage with sessions in every state is upgraded from an earlier Helix, and each session continues.

The earlier Helix comes from the repository's history. Its template is deployed, and its functions do the work before the
upgrade.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.living_stage import USER, Living
from tests.support.offline_cloud import STREAMING
from tests.support.old_release import OldStage, old_stage

from helix.local.cloud import ALIAS

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.skipif(STREAMING != "kinesis", reason="the earlier stages stream over Kinesis"),
]

RELEASES = {
    "before short and packed rows": "6934f783c07716e051ecc274f1bd53bd2d6d1909",
    "before projects": "fb9ceceb2a6a9787bd18a46ce7b989af92668d14",
}
"""Commits of earlier releases. A release is added when the stored format changes after it."""
UNKEYED = {"before short and packed rows"}
"""Releases whose request keys the current code does not recognise. A repeated request finds the session at work."""


def codes(stage: OldStage) -> dict[str, Any]:
    """Return the live layers of each function. A function's own code is one line, which may be unchanged."""
    names, ask = stage.cloud.functions(), stage.aws("lambda").get_function_configuration
    return {name: sorted(str(layer) for layer in ask(FunctionName=name, Qualifier=ALIAS)["Layers"]) for name in names}


@pytest.mark.parametrize("release", RELEASES)
async def test_sessions_go_on_through_an_upgrade(release: str, tmp_path: Path) -> None:
    with old_stage(RELEASES[release], tmp_path) as stage:
        (tmp_path / "gates").mkdir()
        living = Living(stage, tmp_path / "gates", keyed=release not in UNKEYED)
        async with stage.user(USER) as client:
            await living.leave(client)
            before = codes(stage)
            await asyncio.to_thread(stage.upgrade)
            assert all(codes(stage)[name] != code for name, code in before.items()), "a function has its old code"
            await living.go_on(client)
            await living.sound(client)
            await living.delete_all(client)
