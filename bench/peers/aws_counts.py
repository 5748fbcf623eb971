"""Count the requests of each contender to its cloud: calls and units of DynamoDB, calls of S3 and of checkpoint
services."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterable
from typing import Any

from aws_server import CREDENTIALS, CountingAws
from contenders import FOLDER, ROOT, Contender, Failed, finish, start

LONG = 300


def helix_counts(contender: Contender, time_out_s: float) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, str(FOLDER / "helix_aws.py")]
        counts = finish(start(command, folder, PYTHONPATH=str(ROOT)), time_out_s)
    return {**counts, "long": {"steps": "none, nor of 1,000 (aws_calls.md)"}}


def server_counts(contender: Contender, time_out_s: float, count: Callable[[CountingAws, Iterable[int]], Any]) -> Any:
    """Execute three runs; a turn in a new process follows the last one. Its step 100 covers everything between the
    model's calls 100 and 101."""
    found: dict[str, Any] = {}
    with CountingAws() as server, tempfile.TemporaryDirectory() as folder:

        def turn(steps: int) -> None:
            server.forget()
            job = {"measure": "turn", "place": server.url, "script": {"steps": steps, "marks": server.url}}
            contender.run(job, folder, time_out_s, AWS_ENDPOINT_URL=server.url, **CREDENTIALS)

        for name, steps in (("none", 0), ("one", 1), ("step 100", 104)):
            server.reset()
            turn(steps)
            found[name] = count(server, [100] if name == "step 100" else range(1000))
        turn(0)
        found["cold"] = {**count(server, range(1000)), "before": count(server, [0])["reads"]}
        server.reset()
        try:
            turn(LONG)
            found["long"] = {"steps": "none"}
        except Failed as error:
            found["long"] = {"steps": f"step {server.step - 1} ({str(error)[:60]})"}
    return found


def dynamodb_counts(server: CountingAws, steps: Iterable[int]) -> dict[str, Any]:
    calls = [call for step in steps for call in server.calls(step)]
    return {
        "units": sum(call.write_units for call in calls),
        "kb": sum(size for call in calls for _, _, size in call.rows) / 1024,
        "reads": sum(call.reads for call in calls),
    }


def s3_counts(server: CountingAws, steps: Iterable[int]) -> dict[str, Any]:
    wanted = list(steps)
    puts = sum(n for (step, method), n in server.s3.items() if step in wanted and method == "PUT")
    gets = sum(n for (step, method), n in server.s3.items() if step in wanted and method != "PUT")
    size = sum(size for step, size in server.s3_bytes.items() if step in wanted) / 1024
    return {"units": f"{puts} PUT (S3)", "kb": size, "reads": f"{gets} (S3)"}


def checkpoint_counts(contender: Contender, time_out_s: float) -> dict[str, Any]:
    """Count calls to the service that keeps its checkpoints, which has no units. Its reads come with the invocation."""
    found: dict[str, Any] = {}
    for name, steps in (("none", 0), ("one", 1), ("step 100", 104)):
        with tempfile.TemporaryDirectory() as folder:
            job = {"measure": "turn", "place": "memory", "script": {"steps": steps}}
            counted = contender.run(job, folder, time_out_s)["counted"]
        calls = [call for call in counted if name != "step 100" or call[0] == 100]
        writes = [size for _, verb, size in calls if verb == "checkpoint"]
        reads = len(calls) - len(writes)
        found[name] = {"units": f"{len(writes)} checkpoints", "kb": sum(writes) / 1024, "reads": f"{reads}"}
    found["cold"] = {"before": "no sessions", "reads": "no sessions"}
    return found


AWS_COUNTS: dict[str, Callable[[Contender, float], dict[str, Any]]] = {
    "helix": helix_counts,
    "langgraph": lambda contender, time_out_s: server_counts(contender, time_out_s, dynamodb_counts),
    "strands": lambda contender, time_out_s: server_counts(contender, time_out_s, s3_counts),
    "durable": checkpoint_counts,
}
