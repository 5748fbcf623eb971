"""The commands of docs/guide/sam-local.md, typed as they are: each works and prints what the guide shows."""

from __future__ import annotations

from tests.docs.documents import same
from tests.sam.sam_local import INVOKE_S, STAGE, SYNTH, Shell, Stage, commands


def test_the_guide_s_commands_do_what_it_shows(shell: Shell, stage: Stage) -> None:
    typed = list(commands())
    assert [c.text for c in typed[:2]] == [c.text for c in typed if c.text.startswith((SYNTH, STAGE))]
    for command in typed[1:]:  # the template exists already
        printed = stage.printed if command.text == STAGE else shell.run(command.text, INVOKE_S)
        same(f"{command.where}: $ {command.text}", printed, command.output)
