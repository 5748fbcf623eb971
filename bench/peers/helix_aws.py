"""Count Helix's calls to DynamoDB for short runs and for step 100: the deployed functions on moto (`bench/aws/cloud.py`),
with an inline tool, as `bench/aws_calls.py` counts them. It prints one JSON line.

The caller is counted too: `execute` before, `result` after. The stream's own table, which readers replay, is counted
separately.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import aws_calls as bench
from aws.cloud import Cloud, cloud
from aws.wire import Call

SESSION = "bench"


def turn(made: Cloud, first_step: int = 1) -> list[tuple[int, Call]]:
    """Return the calls of one turn from the caller's `execute` to its `result`, in new processes, each with the number
    of model calls until then. `first_step`: the step at which the turn's execution starts."""
    for process in list(made.processes):
        made.restart(process)
    begun, asked = len(made.wire.calls), list[int]()
    generate = type(bench.MODEL).generate_step

    async def noting(request: Any) -> Any:
        asked.append(len(made.wire.calls))
        return await generate(bench.MODEL, request)

    bench.MODEL.generate_step = noting  # type: ignore[method-assign]
    handle = made.caller(lambda executor: executor.execute(bench.INLINE, "go", session_id=SESSION), "execute", 0)
    made.play({"session_id": handle.session_id, "run_id": handle.run_id, "step": first_step})
    made.caller(lambda executor: handle.result(), "result", 0)
    calls = enumerate(made.wire.calls[begun:], begun)
    return [(sum(place >= where for where in asked), call) for place, call in calls if call.service == "dynamodb"]


def counts(calls: Sequence[tuple[int, Call]]) -> dict[str, float]:
    own = [call for _, call in calls if call.where[0] != "project_stream"]
    stream = [call for _, call in calls if call.where[0] == "project_stream"]
    return {
        "units": sum(call.write_units for call in own),
        "kb": sum(size for call in own for _, _, size in call.rows) / 1024,
        "reads": sum(call.reads for call in own),
        "before": sum(call.reads for asked, call in calls if asked == 0),
        "stream_units": sum(call.write_units for call in stream),
    }


def main() -> None:
    found = {}
    for name, steps in (("none", 0), ("one", 1)):
        with cloud("aws_calls") as made:
            bench.MODEL.steps = steps
            found[name] = counts(turn(made))
    with cloud("aws_calls") as made:
        bench.MODEL.steps = 104
        calls = turn(made)
        found["step 100"] = counts([each for each in calls if each[0] == 100])
        found["cold"] = counts(turn(made, bench.MODEL.steps + 2))
    print("\n" + json.dumps(found), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
