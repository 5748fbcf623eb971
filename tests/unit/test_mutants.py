"""The faults of `make mutants` still match the code: each old line occurs once in its file, and its tests exist."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from tests.mutants.__main__ import BEFORE, Outcome, read_results, table_of
from tests.mutants.fault import Fault, MovedError, path_of, planted
from tests.mutants.faults import FAULTS

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
    assert max(Counter(fault.name for fault in FAULTS).values()) == 1 and len(FAULTS) == 46


def test_the_table_counts_what_was_caught_before_and_now() -> None:
    results = {FAULTS[0].name: Outcome("room", "tests/unit/test_a.py::b", 1.0), FAULTS[1].name: Outcome("none")}
    text = table_of(results, {fault.name: Outcome("open") for fault in FAULTS}, "abc")
    assert "**Before: 0 of 2 caught**, with the code and the tests of abc.\n- **Now: 1 of 2 caught.**" in text
    assert f"| {FAULTS[0].name} | the folder's tests | `unit/test_a.py::b` | 1 | **not caught** |" in text
    assert "Before" not in table_of(results, {}, "abc")


def test_the_outcomes_before_are_of_these_faults() -> None:
    assert read_results(BEFORE).keys() < {fault.name for fault in FAULTS}, "some are in code that is newer"
