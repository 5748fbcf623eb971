"""The input of `sam local`: the keys of its events are known, and its guide is complete."""

from __future__ import annotations

import json
import re

from tests.docs.documents import ROOT

from helix.adapters.memory import MemoryStateStore
from helix.adapters.system import SystemClock
from helix.gateway.authoriser import ApiKeys, token_of
from helix.infra.samples import USER, write_key
from helix.infra.verbs import CONSOLE_SIZES, SIZES, TRIGGER_SIZES

EVENTS = ROOT / "events"
GUIDE = ROOT / "docs" / "guide" / "sam-local.md"


async def test_the_key_in_the_events_of_the_authoriser_is_known() -> None:
    store = MemoryStateStore()
    await write_key(store, EVENTS)
    for name in ("ws_authorize", "ws_authorize_browser"):
        token = token_of(json.loads((EVENTS / f"{name}.json").read_text(encoding="utf-8"))["headers"])
        known = await ApiKeys(store, SystemClock()).verify(token or "")
        assert known is not None and known.principal.user_id == USER


def test_the_guide_names_every_function_and_every_event() -> None:
    lines = GUIDE.read_text(encoding="utf-8").splitlines()
    table = "\n".join(line for line in lines if line.startswith("| `helix-dev"))
    assert set(re.findall(r"`helix-dev-(\w+)`", table)) == set(SIZES)
    events = {file.stem for file in EVENTS.glob("*.json")}
    # The stage of `sam local` declares no triggers, and has no console.
    assert set(re.findall(r"`(\w+)`", table)) == events - {*TRIGGER_SIZES, *CONSOLE_SIZES}
