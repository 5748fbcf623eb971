"""docs/guide/sam-local.md, typed in as it stands: each command works, and prints what the guide shows."""

from __future__ import annotations

import re

from tests.docs.documents import ROOT, same
from tests.sam.sam_local import GUIDE, INVOKE_S, STAGE, SYNTH, Sam, Shell, Stage, commands


def test_the_guide_s_commands_do_what_it_shows(shell: Shell, stage: Stage) -> None:
    typed = list(commands())
    assert [c.text for c in typed[:2]] == [c.text for c in typed if c.text.startswith((SYNTH, STAGE))]
    for command in typed[1:]:  # the template is there
        printed = stage.printed if command.text == STAGE else shell.run(command.text, INVOKE_S)
        same(f"{command.where}: $ {command.text}", printed, command.output)


def test_the_guide_names_every_function_and_every_event(sam: Sam) -> None:
    table = "\n".join(
        line for line in GUIDE.read_text(encoding="utf-8").splitlines() if line.startswith("| `helix-dev")
    )
    shared = {name for name in sam.functions if "roomy" not in name}
    assert set(re.findall(r"`(helix-dev-\w+)`", table)) == shared
    events = {file.stem for file in (ROOT / "events").glob("*.json")}
    assert set(re.findall(r"`(\w+)`", table)) - shared == events
