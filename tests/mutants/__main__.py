"""Plant faults one by one and report which test catches each: `make mutants`, or `python -m tests.mutants --help`.

The tests of the fault's folder run first. If they pass, all of `make test` runs. A test that also fails without the fault
does not count. Everything happens in a copy of the checkout with its own environment. Both are deleted at the end.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.mutants.fault import Fault, MovedError, path_of, planted
from tests.mutants.faults import FAULTS

ROOT = Path(__file__).parents[2]
TABLE = ROOT / "bench" / "results" / "mutants.md"
BEFORE = ROOT / "tests" / "mutants" / "436ad25.json"
"""The outcomes at an earlier commit, which names the file. It was made with `--checkout` and `--results`, with the tests
that can reach each faulty line. `slow` means that only a test of `make slow` failed."""
CAUGHT = ("room", "all", "time-out")
ALONE = ("-x", "-q", "-n0", "-p", "no:cacheprovider")
"""Options of pytest for the tests of a folder."""
TOGETHER = ("-x", "-q", "-n", "auto", "--dist", "loadgroup", "--max-worker-restart=0", "-p", "no:cacheprovider")
"""The options of `make test`."""
ROOM_S, ALL_S = 900, 5400
FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+?(?:\[.*?\])?)(?: - .*)?$", re.MULTILINE)
TOOK = re.compile(r"\bin ([\d.]+)s\b(?! from)")
TIMED_OUT = re.compile(r"\+\+\+ Timeout \+\+\+|Timeout \(>[\d.]+s\) from pytest-timeout")


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a fault.

    `by` is `room`, `all`, `time-out`, `none`, or `open` if only the tests of its folder ran and passed. `test` is the first
    test that failed, and `seconds` the time that pytest reports with the fault. `unsound` are tests that fail without the
    fault too.
    """

    by: str
    test: str = ""
    seconds: float = 0.0
    unsound: tuple[str, ...] = ()


class Copy:
    """A copy of a checkout. One fault at a time is planted in it."""

    def __init__(self, checkout: Path, folder: Path) -> None:
        self.root = folder / "copy"
        _git(folder, "clone", "--quiet", "--shared", str(checkout), str(self.root))
        for name in _git(checkout, "ls-files", "-mo", "--exclude-standard", "-z").split("\0"):
            if name and (checkout / name).is_file():
                (self.root / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(checkout / name, self.root / name)
            elif name:
                (self.root / name).unlink()
        own = checkout / ".venv"
        _copy_environment(own if own.is_dir() else Path(sys.prefix), checkout, self.root)
        self._ticks = itertools.count(int(time.time()))

    @contextmanager
    def with_fault(self, fault: Fault) -> Iterator[None]:
        """Plant the fault. Each write sets a new file time in whole seconds, so that Python notices stale bytecode."""
        file = path_of(self.root, fault)
        sound = file.read_text()
        file.write_text(planted(sound, fault))
        os.utime(file, (now := next(self._ticks), now))
        try:
            yield
        finally:
            file.write_text(sound)
            os.utime(file, (now := next(self._ticks), now))

    def pytest(self, *arguments: str, limit_s: float) -> tuple[bool, str]:
        """Run pytest and return whether all tests passed, and its output."""
        command = [str(self.root / ".venv" / "bin" / "python"), "-m", "pytest", *arguments]
        variables = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYTEST"))}
        with subprocess.Popen(
            command,
            cwd=self.root,
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        ) as process:
            try:
                text, _ = process.communicate(timeout=limit_s)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                return False, f"{process.communicate()[0]}\n+++ Timeout +++"
        if process.returncode not in (0, 1, 2):
            raise RuntimeError(f"pytest ended with {process.returncode}:\n{text[-3000:]}")
        return process.returncode == 0, text

    def fails_anyway(self, test: str) -> bool:
        """Return whether the test also fails in the copy without a fault."""
        return not self.pytest(*ALONE, test, limit_s=ROOM_S)[0]


def judge(copy: Copy, fault: Fault, *, room_only: bool) -> Outcome:
    """Run the tests of the fault's folder and, unless `room_only`, all tests, until one fails that passes without it."""
    seconds, unsound = 0.0, list[str]()
    marked = ["-m", "slow"] if fault.slow else ["-m", "not slow"]
    stages = [("room", [*ALONE, *marked, *fault.tests], ROOM_S)]
    if not room_only:
        stages.append(("all", [*TOGETHER, "-m", "not slow"], ALL_S))
    for by, arguments, limit_s in stages:
        while True:
            with copy.with_fault(fault):
                passed, text = copy.pytest(*arguments, *(f"--deselect={test}" for test in unsound), limit_s=limit_s)
            seconds += float((TOOK.findall(text) or [limit_s])[-1])
            if passed:
                break
            found = FAILED.search(text)
            test = found[1] if found is not None else ""
            if found is None or TIMED_OUT.search(text):
                if TIMED_OUT.search(text) is None:
                    raise RuntimeError(f"fault {fault.name!r}: pytest failed, and names no test:\n{text[-3000:]}")
                return Outcome("time-out", test, round(seconds, 1), tuple(unsound))
            if not copy.fails_anyway(test):
                return Outcome(by, test, round(seconds, 1), tuple(unsound))
            unsound.append(test)
    return Outcome("open" if room_only else "none", "", round(seconds, 1), tuple(unsound))


def _git(folder: Path, *arguments: str) -> str:
    return subprocess.run(["git", "-C", str(folder), *arguments], check=True, capture_output=True, text=True).stdout


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def _copy_environment(source: Path, checkout: Path, root: Path) -> None:
    """Copy the environment at `source`: packages are linked, and files that contain the checkout's path are rewritten."""
    target = root / ".venv"
    shutil.copytree(source, target, symlinks=True, copy_function=_link)
    packages = next((target / "lib").glob("python*/site-packages"))
    for file in [
        target / "pyvenv.cfg",
        *(target / "bin").iterdir(),
        *packages.glob("*.pth"),
        *packages.glob("__editable__*"),
    ]:
        if file.is_symlink() or not file.is_file() or str(checkout).encode() not in (text := file.read_bytes()):
            continue
        mode = file.stat().st_mode
        file.unlink()  # it may be a link to the checkout's file
        file.write_bytes(text.replace(str(checkout).encode(), str(root).encode()))
        file.chmod(mode)


# --- the table ----------------------------------------------------------------------------------------------------------


def read_results(file: Path) -> dict[str, Outcome]:
    if not file.exists():
        return {}
    found = json.loads(file.read_text())
    return {name: Outcome(**{**one, "unsound": tuple(one["unsound"])}) for name, one in found.items()}


def table_of(results: dict[str, Outcome], before: dict[str, Outcome], commit: str) -> str:
    """Return Markdown: the sums, then a line for each fault. `before` has the outcomes at an earlier commit, if they are
    known."""
    words = {"room": "the folder's tests", "all": "make test", "time-out": "a time-out", "none": "**nothing**"}
    words["open"] = "not by its folder's tests; make test did not run"
    known = [(fault, results[fault.name]) for fault in FAULTS if fault.name in results]
    counts = {by: sum(outcome.by == by for _, outcome in known) for by in words}
    then = [before[fault.name].by in CAUGHT for fault, _ in known if fault.name in before]
    now = sum(counts[by] for by in CAUGHT)
    lines = [
        "# Planted faults",
        "",
        "`make mutants` plants each fault of [faults.py](../../tests/mutants/faults.py) in a copy of the project. It runs",
        "the tests of the fault's folder, then all of `make test`, until a test fails that passes without the fault.",
        "",
        *(
            [f"- **Before: {sum(then)} of {len(then)} caught**, with the code and the tests of {commit}."]
            if then
            else []
        ),
        f"- **Now: {now} of {len(known)} caught.**",
        "",
        *(
            ["At that commit the tests that can reach each faulty line ran, not all of `make test`.", ""]
            if then
            else []
        ),
        *(
            f"- {counts[by]} of {len(known)} faults were caught by {words[by]}"
            for by in ("room", "all", "time-out", "none")
        ),
        *([f"- {counts['open']} of them: {words['open']}"] if counts["open"] else []),
        "",
        f"| Fault | Caught by | First test that fails | Seconds |{f' At {commit} |' if then else ''}",
        f"|---|---|---|---|{'---|' if then else ''}",
    ]
    for fault, outcome in known:
        by = "`make slow` of its folder" if fault.slow and outcome.by == "room" else words[outcome.by]
        test = f"`{outcome.test.removeprefix('tests/')}`" if outcome.test else ""
        earlier = before.get(fault.name)
        told = {**dict.fromkeys(CAUGHT, "caught"), "slow": "by `make slow` only", "": ""}
        more = f" {told.get(earlier.by if earlier else '', '**not caught**')} |" if then else ""
        lines.append(f"| {fault.name} | {by} | {test} | {outcome.seconds:.0f} |{more}")
    return "\n".join([*lines, ""])


def main() -> int:
    parser = argparse.ArgumentParser(prog="make mutants", description="Plant faults, and see which tests catch them.")
    parser.add_argument("--list", action="store_true", help="print the faults, and end")
    parser.add_argument("--only", action="append", default=[], metavar="TEXT", help="faults whose names contain it")
    parser.add_argument("--rooms-only", action="store_true", help="do not run all of make test")
    parser.add_argument(
        "--checkout", type=Path, default=ROOT, metavar="DIR", help="test this checkout's code [this one]"
    )
    parser.add_argument(
        "--results",
        type=Path,
        metavar="FILE",
        help="JSON; faults that have an outcome there are left out [build/mutants.json]",
    )
    parser.add_argument("--table", type=Path, default=TABLE, metavar="FILE", help="Markdown [bench/results/mutants.md]")
    parser.add_argument(
        "--before",
        type=Path,
        default=BEFORE,
        metavar="FILE",
        help="results of an earlier commit, for the table; the file is named after it [tests/mutants/436ad25.json]",
    )
    given = parser.parse_args()
    chosen = [fault for fault in FAULTS if not given.only or any(text in fault.name for text in given.only)]
    checkout, file = given.checkout.resolve(), given.results or ROOT / "build" / "mutants.json"
    if given.list:
        for fault in chosen:
            print(f"{fault.name}\n    {fault.file}\n  - {fault.old}\n  + {fault.new}")
        return 0
    try:
        for fault in chosen:
            planted(path_of(checkout, fault).read_text(), fault)
    except MovedError as error:
        print(error, file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="helix-mutants-") as folder:
        copy = Copy(checkout, Path(folder))
        for fault in chosen:
            known = read_results(file).get(fault.name)
            if known is not None and (known.by != "open" or given.rooms_only):
                continue
            outcome = judge(copy, fault, room_only=given.rooms_only)
            # read again, because another process may run other faults
            results = {**read_results(file), fault.name: outcome}
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps({name: asdict(one) for name, one in results.items()}, indent=1))
            print(f"{outcome.by:9}{outcome.seconds:7.1f} s  {fault.name}  {outcome.test}", flush=True)
    text = table_of(read_results(file), read_results(given.before), given.before.stem)
    given.table.write_text(text)
    print(text)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
