"""The faults of `make mutants` are still of this code: each old line is in its file, once, and its tests are there."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from tests.mutants.faults import FAULTS, Fault, MovedError, path_of, planted

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_changes_one_line_of_its_file(fault: Fault) -> None:
    sound = path_of(ROOT, fault).read_text()
    before, after = sound.splitlines(), planted(sound, fault).splitlines()
    assert len(before) == len(after)
    changed = [(one, other) for one, other in zip(before, after, strict=True) if one != other]
    assert [(one.strip(), other.strip()) for one, other in changed] == [(fault.old, fault.new)]
    if path_of(ROOT, fault).suffix == ".py":
        compile("\n".join(after), fault.file, "exec")
    assert fault.tests and all((ROOT / test).is_file() for test in fault.tests)


def test_a_fault_whose_line_moved_is_named() -> None:
    (fault,) = FAULTS[:1]
    with pytest.raises(MovedError, match=r"'core: .* 0 times"):
        planted("nothing\n", fault)
    with pytest.raises(MovedError, match="2 times"):
        planted(f"{fault.old}\n  {fault.old}\n", fault)


def test_faults_are_told_apart_by_name() -> None:
    assert max(Counter(fault.name for fault in FAULTS).values()) == 1 and len(FAULTS) == 40
