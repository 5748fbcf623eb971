"""The counts of `make direct` match pytest's report."""

from __future__ import annotations

from pathlib import Path

from tests.direct import SUITES, outcomes

REPORT = """<?xml version="1.0"?><testsuites><testsuite tests="4">
<testcase classname="tests.e2e.a" name="one"/>
<testcase classname="tests.e2e.a" name="two"><failure message="x">y</failure></testcase>
<testcase classname="tests.e2e.a" name="three"><error message="x">y</error></testcase>
<testcase classname="tests.e2e.a" name="four"><skipped message="x">y</skipped></testcase>
</testsuite></testsuites>"""


def test_each_test_has_one_outcome(tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    report.write_text(REPORT)
    assert dict(outcomes(report)) == {
        "tests.e2e.a.one": "passed",
        "tests.e2e.a.two": "failed",
        "tests.e2e.a.three": "failed",
        "tests.e2e.a.four": "skipped",
    }


def test_the_suites_exist() -> None:
    assert all((Path(__file__).parents[2] / word).is_dir() for suite in SUITES for word in suite)
