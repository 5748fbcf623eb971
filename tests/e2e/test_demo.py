"""`helix demo`: its stream arrives live, and its report about AWS agrees with AWS's APIs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.e2e.cloud_executor import cloud_executor
from tests.support.cloud_agents.plans import call, plan, say, use
from tests.support.offline_cloud import PRIVATE, ROOT, CloudForTests, until

from helix.core.aws_prices import DYNAMODB_WRITE_UNIT, LAMBDA_REQUEST, TRANSITION
from helix.local.run_report import Execution, RunReport, lines_of, read_report, size_of
from helix.testing.openai_server import ModelAnswer, ModelToolCall, OpenAIServer

PATIENCE_S = 150


Lines = list[tuple[float, str]]
"""Lines of output with their times."""


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The state folder of all demonstrations. The second one reuses the synthesis of the first."""
    return tmp_path_factory.mktemp("demo")


def demo(state: Path, *options: str, root: Path = ROOT, variables: Mapping[str, str] | None = None) -> Lines:
    kept = {name: value for name, value in os.environ.items() if not PRIVATE.match(name)} | dict(variables or {})
    begun = time.monotonic()
    with subprocess.Popen(
        [sys.executable, "-m", "helix.cli", "demo", "--state", str(state), *options],
        cwd=root,
        env={**kept, "PYTHONUNBUFFERED": "1", "COLUMNS": "120"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        lines = [(time.monotonic() - begun, line.rstrip("\n")) for line in process.stdout]
        wrong = process.stderr.read()
        assert process.wait(PATIENCE_S) == 0, wrong
    assert "Traceback" not in wrong
    return lines


@pytest.mark.timeout(200)
def test_the_demo_plays_and_tells(state: Path) -> None:
    lines = demo(state)
    text = "\n".join(line for _, line in lines)
    assert re.search(r"^desk · the demonstration model · ws://127\.0\.0\.1:\d+/", text, re.MULTILINE)
    assert "OPENAI_API_KEY is not set" in text and "> How do I return something that arrived damaged?" in text
    moments = {line.strip(): moment for moment, line in lines}
    first = next(moment for line, moment in moments.items() if line.startswith("→ search_handbook("))
    last = next(moment for line, moment in moments.items() if line.startswith("completed · 3 steps · 5 model calls"))
    assert last - first > 0.2, "the text is printed as it arrives"
    assert "← colleague completed" in text and "(imaginary)" in text

    told = text.partition("The APIs of AWS say this about the run")[2]
    desk = "CallModel → Route → CallTool → CallModel → Route → StartRun → CallModel → Route → FinishRun"
    colleague = "CallModel → Route → CallTool → CallModel → Route → FinishRun"
    assert f"    {desk}\n" in told and f"    {colleague}\n" in told
    retries = sum(int(n) for n in re.findall(r"(\d+) retr(?:y|ies) of them", told))
    assert f"Step Functions ran 2 executions, {15 + retries} transitions:" in told
    assert re.search(r"sessions dev:demo_\w+: 1 session, 1 run, 7 messages, 4 checkpoints, [\d.]+ KB", told)
    assert re.search(r"^  Lambda ran \d+ invocations, .*:\n.*\bcall_model 5\b", told, re.MULTILINE)
    assert re.search(r"^  At list prices .* that is \$0\.00\d+", told, re.MULTILINE)


@pytest.mark.timeout(200)
def test_the_demo_whose_workers_are_killed_completes_and_tells(state: Path) -> None:
    text = "\n".join(line for _, line in demo(state, "--kill"))
    killed = re.findall(r"^✗ SIGKILL to the worker of (\w+) \(process (\d+)\)", text, re.MULTILINE)
    assert [verb for verb, _ in killed] == ["call_model", "call_tool", "call_model"][: len(killed)] and len(killed) >= 2
    assert len({process for _, process in killed}) == len(killed)
    assert (
        re.search(r"^desk · step 1, attempt 2$", text, re.MULTILINE) and "completed · 3 steps · 5 model calls" in text
    )
    told = text.partition("The run continued after each worker that was killed:")[2]
    assert "1. The worker of call_model was killed: it had the model's answer of step 1, and had not stored it." in told
    assert re.search(r"another worker called search_handbook again, and stored its result \d+ s later", told)
    assert "3. The worker of call_model was killed: it had stored that the run is completed" in told
    assert (
        "Skipped" not in told and "5 answers of the model and 5 results of calls" in told and "found no fault" in told
    )


LONG_S = 40
"""A time longer than a claim and longer than the pauses between its renewals together."""


@pytest.mark.timeout(400)
def test_a_tool_of_forty_seconds_runs_once_in_a_new_project(tmp_path: Path) -> None:
    """One project runs the tool in its own function, and another one runs it inline. The test takes real time, because
    claims are renewed by the worker's clock."""
    with ThreadPoolExecutor() as pool:
        told = list(pool.map(lambda inline: slow_project(tmp_path / f"{inline}", inline), (False, True)))
    assert told == [
        ("CallModel → Route → CallTool → CallModel → Route → FinishRun", 1),
        ("CallModel → Route → FinishRun", 1),
    ]


def slow_project(folder: Path, inline: bool) -> tuple[str, int]:
    """Return the states of a demonstration's one execution, and the number of times that its tool started."""
    module, mark = new_project(folder), folder / "starts"
    about = '    """Find what is known about the query."""\n'
    text, decorator = module.read_text(), f"@tool(inline={inline})\n"
    assert text.count("@tool\n") == text.count(about) == 1
    work = f"    import time\n    open({str(mark)!r}, 'a').write('.')\n    time.sleep({LONG_S})\n"
    module.write_text(text.replace("@tool\n", decorator).replace(about, about + work))
    lines = [line for _, line in demo(folder / "state", "What is the address?", root=folder / "shop")]
    assert [line for line in lines if line.startswith("completed")], lines
    assert sum("→ search_facts(" in line for line in lines) == 1, lines
    place = next(n for n, line in enumerate(lines) if "Step Functions ran 1 execution," in line)
    return lines[place + 2].strip(), len(mark.read_text())


def new_project(folder: Path) -> Path:
    """Create a project, and return the module of its agent."""
    folder.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "helix.cli", "init", "shop", "--template", "minimal"]
    subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
    return folder / "shop" / "agents" / "__init__.py"


@pytest.mark.timeout(200)
def test_a_new_projects_model_of_openai_calls_a_tool_on_the_stage(tmp_path: Path) -> None:
    """The model uses the Responses API. Its reasoning is stored in the session's row, and is sent back with the tool's
    result."""
    module = new_project(tmp_path)
    text, found = re.subn(r'model="[^"]+"', 'model="openai/gpt-5.6", api="responses"', module.read_text())
    assert found == 1
    module.write_text(text)
    searches = ModelAnswer(reasoning="I look it up.", tool_calls=[ModelToolCall("search_facts", {"query": "address"})])
    with OpenAIServer([searches, "It is in the old harbour."]) as server:
        lines = [
            line
            for _, line in demo(
                tmp_path / "state", "Where is it?", root=tmp_path / "shop", variables=server.environment()
            )
        ]
    assert any("It is in the old harbour." in line for line in lines), lines
    assert [request.path for request in server.requests] == ["/v1/responses"] * 2
    kinds = [item.get("type") or item["role"] for item in server.requests[1].json["input"]]
    assert kinds == ["user", "reasoning", "function_call", "function_call_output"]


async def test_the_story_is_what_the_services_say(cloud: CloudForTests) -> None:
    begun = time.time()
    async with cloud.user("story") as client:
        asked = use(call("look", topic="a"), call("add", amount=2))
        handle = await client.run("talker", plan(asked, use(call("look", topic="b")), say("Done.")))
        assert (await handle.result(60)).status == "completed"
    until(lambda: cloud.executions(handle.session_id, status="SUCCEEDED"), "end of the execution")
    story = read_report(cloud.cloud, handle.session_id, begun)

    (execution,) = [e for e in story.executions if e.session_id == handle.session_id]
    (described,) = cloud.executions(handle.session_id)
    assert list(execution.states) == cloud.transitions(described["executionArn"])
    inner = [name for name in execution.states if name in ("Kind", "CallOneTool")]
    assert sorted(inner) == ["CallOneTool", "CallOneTool", "Kind", "Kind"], "including the states inside the Map"
    assert execution.status == "SUCCEEDED" and execution.states.count("CallTool") == 1

    (sessions,) = [rows for rows in story.rows if rows.table == "sessions"]
    items = cloud.rows("sessions", handle.session_id)
    rows = await cloud_executor(cloud).store.query("sessions", handle.session_id)
    assert sessions.kinds.total() == len(rows) and sessions.size == sum(map(size_of, items))
    (streams,) = [rows for rows in story.rows if rows.table == "streams"]
    assert streams.kinds.total() == len(cloud.rows("streams", handle.session_id))

    calls, _, _ = story.invocations["call_model"]
    assert calls >= 3
    units = sum(rows.units for rows in story.rows)
    assert story.dollars["DynamoDB"] == pytest.approx(units * DYNAMODB_WRITE_UNIT)
    assert story.dollars["Step Functions"] == pytest.approx(story.transitions * TRANSITION)


def test_a_retry_is_a_transition() -> None:
    story = RunReport((Execution("s", "m", "SUCCEEDED", 1.0, ("A", "A", "B"), retries=2),), {"v": (1, 1.0, 0.5)}, ())
    assert story.transitions == 5 and story.dollars["Lambda"] > LAMBDA_REQUEST
    assert list(lines_of(story))[:3] == [
        "Step Functions ran 1 execution, 5 transitions:",
        "  s: succeeded in 1.0 s, 5 transitions, 2 retries of them",
        "    A ×2 → B",
    ]
