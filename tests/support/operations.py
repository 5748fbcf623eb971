"""The operations of the deployed functions at AWS, recorded in their processes (`aws_calls`) and compared with their
rights.

`tests/fixtures/operations.json` has the operations of each verb in the scenes of `tests/e2e`. `HELIX_RECORD=1 pytest
tests/e2e` adds to it. To drop operations that no function performs any more, empty it first (`{}`).
`tests/fixtures/operations_direct.json` is the same for stages without Kinesis. `tests/infra/test_needed_rights.py` compares
them with the rights of the templates.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support import aws_calls

if TYPE_CHECKING:
    from tests.support.offline_cloud import CloudForTests

FIXTURES = Path(__file__).parents[1] / "fixtures"
FILES = {"kinesis": FIXTURES / "operations.json", "direct": FIXTURES / "operations_direct.json"}
"""The files, by the stage's setting `streaming`."""
RECORD = "HELIX_RECORD"
Operations = dict[str, dict[str, list[str]]]
"""The actions, by verb and resource."""


def recording(folder: Path) -> dict[str, str]:
    """Return the variables that make functions record into a stage's folder."""
    return {"OFFLINE_RECORDER": aws_calls.__file__, aws_calls.FOLDER: str(folder / "operations")}


def known(streaming: str = "kinesis") -> Operations:
    found: Operations = json.loads(FILES[streaming].read_text())
    return found


def verb_of(function: str) -> str:
    """Return the verb of a function's name without the stage's prefix, such as `crew-call_model`."""
    return function.rpartition("-")[2]


def as_operations(seen: Iterable[tuple[str, str, str]]) -> Operations:
    """Build operations from (verb, what, action) triples."""
    found: Operations = {}
    for verb, what, action in sorted(set(seen)):
        found.setdefault(verb, {}).setdefault(what, []).append(action)
    return found


def pairs(operations: Operations) -> set[tuple[str, str, str]]:
    """Yield the (verb, what, action) triples of operations."""
    return {
        (verb, what, action) for verb, of in operations.items() for what, actions in of.items() for action in actions
    }


def check_operations(cloud: CloudForTests) -> None:
    """Raise `AssertionError` with the operations of this stage's functions to which their roles have no right."""
    from tests.e2e.iam_roles import Roles

    prefix, seen = cloud.cloud.function(""), set[tuple[str, str, str]]()
    for log in (cloud.cloud.folder / "operations").glob("*.jsonl"):
        for line in map(json.loads, log.read_text().splitlines()):
            seen.add((line["function"].removeprefix(prefix), line["what"], line["action"]))
    file = FILES.get(str(cloud.cloud.context.get("streaming")))
    if os.environ.get(RECORD) and file is not None:
        _add(file, ((verb_of(function), what, action) for function, what, action in seen))
    held = {(verb_of(right.function), right.what, right.action) for right in Roles(cloud).rights(others=False)}
    wanted = {(verb_of(function), what, action) for function, what, action in seen}
    missing = sorted(f"{verb}: {action} on {what}" for verb, what, action in wanted - held)
    assert not missing, f"functions did what their roles do not allow; see infra/functions.py: {missing}"


def _add(path: Path, seen: Iterable[tuple[str, str, str]]) -> None:
    with path.open("r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        found = as_operations({*pairs(json.loads(file.read())), *seen})
        file.seek(0)
        file.truncate()
        file.write(json.dumps(found, indent=1, sort_keys=True) + "\n")
