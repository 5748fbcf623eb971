"""The scenes that `helix check --live` plays on its stage, one function each.

Law: a scene asserts what a user would see through the stage's own interfaces. It stores nothing outside the stage. Its
model and its tools follow the script in the message (`project/live_agents.py`).
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from helix.cli.cloud.checks import CheckError, Probe
from helix.client.remote_handle import RemoteHandle
from helix.core.chunks import TextDeltaChunk
from helix.core.files import Content, FilePart
from helix.core.handles import AgentResult
from helix.core.periods import TokenPeriod
from helix.fleet.budgets import BudgetManager

Scene = Callable[[Probe], Awaitable[str]]
Step = dict[str, Any]
TALKER, INLINE, SINGLE, POOR = "live_talker", "live_inline", "live_single", "live_poor"
LONG_S, DEAD_S, BUSY_S, REFUSED_S = 40, 5, 15, 30
LARGE = 500_000
OLD, NEW = "1", "2"
"""The versions of the project before and after the upgrade."""
SPOKEN_S, WORDS = 2.0, "one two three four five six"


async def say(
    probe: Probe, *steps: Step, agent: str = TALKER, file: bytes | None = None, **options: Any
) -> RemoteHandle:
    message: Content = json.dumps(steps) if file is None else [json.dumps(steps), file]
    handle = await probe.client.run(agent, message, **options)
    probe.sessions.append(handle.session_id)
    return handle


def call(name: str, **arguments: Any) -> Step:
    return {"calls": [[name, arguments]]}


def end(text: str = "done") -> Step:
    return {"say": text}


async def completed(handle: RemoteHandle, text: str = "done") -> AgentResult[Any]:
    result = await handle.result()
    if (result.status, result.text) != ("completed", text):
        raise CheckError(f"the run is {result.status} and says {result.text!r}, not {text!r}: {result.error}")
    return result


async def results(probe: Probe, handle: RemoteHandle) -> list[str]:
    """Return the contents of the session's tool results."""
    page: Any = await probe.client.get_messages(handle.session_id)
    return [str(message["content"]) for message in page["messages"] if message["role"] == "tool"]


def expect(found: Any, wanted: Any) -> None:
    if found != wanted:
        raise CheckError(f"found {found!r}, not {wanted!r}")


# --- streams ---------------------------------------------------------------------------------------------------------


async def live_text(probe: Probe) -> str:
    """Check that the first word arrives while the model is still generating."""
    handle = await say(probe, {"say": WORDS, "pause_s": SPOKEN_S})
    arrived = []
    async for chunk in await handle.stream():
        if isinstance(chunk, TextDeltaChunk):
            arrived.append((probe.clock.now(), chunk.delta))
    expect("".join(delta for _, delta in arrived).strip(), WORDS)
    if (took := arrived[-1][0] - arrived[0][0]) < 2:
        raise CheckError(f"all words came within {took:.1f} s; the model took {SPOKEN_S * len(WORDS.split()):.0f} s")
    return f"first to last word: {took:.1f} s"


async def reader_returns(probe: Probe) -> str:
    """Check that a reader that disconnected after a message resumes after it and misses none."""
    handle = await say(probe, {"say": WORDS, "pause_s": 0.5})
    seen = []
    async for message in await handle.messages():
        seen.append(message.sequence)
        if len(seen) == 3:
            break
    again = await probe.client.handle(handle.session_id)
    async for message in await again.messages(after=seen[-1]):
        seen.append(message.sequence)
    expect(seen, list(range(seen[0], seen[0] + len(seen))))
    await completed(handle, f"{WORDS} ")
    return f"{len(seen)} messages"


# --- tools -----------------------------------------------------------------------------------------------------------


async def approval(probe: Probe) -> str:
    """Approve a call with an amount that differs from the model's."""
    handle = await say(probe, call("pay", euros=5), end())
    paused = await handle.result()
    expect(paused.status, "paused")
    (asked,) = [one.call_id for one in paused.pending]
    await completed(await probe.client.answer(handle.session_id, asked, arguments={"euros": 99}))
    expect(await results(probe, handle), ["paid 99"])
    return ""


async def denial(probe: Probe) -> str:
    handle = await say(probe, call("pay", euros=5), end())
    (asked,) = [one.call_id for one in (await handle.result()).pending]
    await completed(await probe.client.answer(handle.session_id, asked, approved=False, reason="too dear"))
    (said,) = await results(probe, handle)
    if "too dear" not in said or "paid" in said:
        raise CheckError(f"the model was told {said!r}")
    return ""


async def sub_agent(probe: Probe) -> str:
    await completed(
        await say(
            probe, call("subagent__live_helper", message=json.dumps([call("__finish__", summary="helped")])), end()
        )
    )
    return ""


async def inline_tool(probe: Probe) -> str:
    """Run an inline tool. The same invocation that called the model executes it."""
    handle = await say(probe, call("look", topic="kettle"), end(), agent=INLINE)
    await completed(handle)
    expect((await results(probe, handle))[0].partition(":")[0], "kettle")
    return ""


async def long_tool(probe: Probe) -> str:
    """Check that a tool is started only once, even if it runs longer than a claim lasts."""
    handle = await say(probe, call("wait", seconds=LONG_S), end())
    begun = 0
    async for chunk in await handle.stream():
        begun += chunk.type == "custom"
    await completed(handle)
    expect(begun, 1)
    return f"{LONG_S} s, one start"


async def large_answer(probe: Probe) -> str:
    """Check an answer that is larger than a DynamoDB item may be."""
    handle = await say(probe, {"size": LARGE})
    expect(len((await handle.result()).text or ""), LARGE)
    page: Any = await probe.client.get_messages(handle.session_id)
    expect(len(page["messages"][-1]["content"]), LARGE)
    return ""


async def user_file(probe: Probe) -> str:
    """Send a file to the bucket with a presigned request, let the model read it, and read it back."""
    data = f"a note of {probe.clock.now():.0f}".encode()
    handle = await say(probe, {"see": True}, file=data)
    await completed(handle, data.decode())
    page: Any = await probe.client.get_messages(handle.session_id)
    part = FilePart.model_validate(page["messages"][0]["files"][0])
    expect(await probe.client.read_file(handle.session_id, part), data)
    return ""


async def tool_file(probe: Probe) -> str:
    """Let a tool return a file, and the model read it."""
    await completed(await say(probe, call("draw"), {"see": True}), "a drawing")
    return ""


# --- accidents -------------------------------------------------------------------------------------------------------


async def tool_dies(probe: Probe) -> str:
    """Kill the process of a repeatable tool with SIGKILL, repeatedly for five seconds."""
    handle = await say(probe, call("die", until=probe.clock.now() + DEAD_S), end())
    await completed(handle)
    (said,) = await results(probe, handle)
    if said != "survived" and "tool_crashed" not in said:
        raise CheckError(f"the result is {said!r}")
    return said[:40]


async def tool_dies_once(probe: Probe) -> str:
    """Kill the process of a tool that must not be repeated. Check that the model is told that the outcome is unknown."""
    handle = await say(probe, call("die_once", until=probe.clock.now() + 600), end())
    await completed(handle)
    (said,) = await results(probe, handle)
    if "unknown" not in said:
        raise CheckError(f"the result is {said!r}")
    return ""


async def model_dies(probe: Probe) -> str:
    await completed(await say(probe, {"say": "alive", "die_until": probe.clock.now() + DEAD_S}), "alive")
    return ""


async def provider_refuses(probe: Probe) -> str:
    """Check that a run fails with the provider's reason, and that a retry completes it."""
    until = probe.clock.now() + REFUSED_S
    handle = await say(probe, {"say": "at last", "refuse_until": until})
    failed = await handle.result()
    expect((failed.status, failed.error_code), ("failed", "rate_limited"))
    await probe.clock.sleep(max(0.0, until + 1 - probe.clock.now()))
    await completed(await probe.client.retry(handle.session_id), "at last")
    return ""


async def lambda_refuses(probe: Probe) -> str:
    """Set the tool function's reserved concurrency to zero for 15 seconds."""
    function = {"FunctionName": f"{probe.at.stack}-call_tool"}
    await probe.aws("lambda", "put_function_concurrency", **function, ReservedConcurrentExecutions=0)
    try:
        handle = await say(probe, call("look", topic="kettle"), end())
        await probe.clock.sleep(BUSY_S)
    finally:
        await probe.aws("lambda", "delete_function_concurrency", **function)
    await completed(handle)
    return f"refused for {BUSY_S} s"


async def key_rotates(probe: Probe) -> str:
    """Check that a process with an outdated model key reads the new key when the provider rejects the old one."""
    secret = {"SecretId": secret_name(probe.at.stage)}
    await completed(await say(probe, {"say": "old", "key": "one"}), "old")
    await probe.aws("secretsmanager", "put_secret_value", **secret, SecretString=key_text("two"))
    await completed(await say(probe, {"say": "new", "key": "two"}), "new")
    return ""


def secret_name(stage: str) -> str:
    return f"helix-{stage}-live-check"


def key_text(key: str) -> str:
    return json.dumps({"LIVE_KEY": key})


# --- budgets and limits ------------------------------------------------------------------------------------------


async def budget(probe: Probe) -> str:
    await BudgetManager(probe.store).set_budget(1, TokenPeriod.HOURLY, POOR)
    result = await (await say(probe, end(), agent=POOR)).result()
    expect((result.status, result.error_code), ("failed", "budget_exceeded"))
    return ""


async def queue(probe: Probe) -> str:
    """Start two runs of an agent that executes one run at a time. Check that the second waits for the first."""
    first = await say(probe, call("wait", seconds=BUSY_S), end(), agent=SINGLE)
    second = await say(probe, end(), agent=SINGLE)
    waited = False
    async for chunk in await second.stream():
        waited = waited or chunk.type == "run_queued"
    await completed(first)
    await completed(second)
    expect(waited, True)
    return ""


# --- sessions ---------------------------------------------------------------------------------------------------------


async def branch(probe: Probe) -> str:
    """Branch from the end of the first run. Check that the branch does not contain the second run."""
    handle = await say(probe, end("first"))
    await completed(handle, "first")
    listed: Any = await probe.client.list_checkpoints(handle.session_id)
    checkpoint = max(listed["checkpoints"], key=lambda one: one["count"])["id"]
    await completed(await say(probe, end("second"), session_id=handle.session_id), "second")
    made = await probe.client.branch(handle.session_id, checkpoint)
    probe.sessions.append(made)
    page: Any = await probe.client.get_messages(made)
    expect([m["content"] for m in page["messages"] if m["role"] == "assistant"], ["first"])
    return ""


async def same_key(probe: Probe) -> str:
    """Check that a repeated request with the same idempotency key starts only one run."""
    key = f"live-{probe.clock.now():.0f}"
    handles = [await say(probe, end(), key=key) for _ in range(2)]
    probe.sessions.pop()
    expect(handles[0].run_id, handles[1].run_id)
    await completed(handles[0])
    return ""


# --- an upgrade -------------------------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def run_across_upgrade(probe: Probe) -> AsyncIterator[Scene]:
    """Keep a run active across a deployment. Yield the scene that checks that the new code completes it."""
    handle = await say(probe, {"edition": NEW})
    async for chunk in await handle.stream():
        if chunk.type == "custom":
            break

    async def upgraded(probe: Probe) -> str:
        await completed(handle, f"edition {NEW}")
        return ""

    yield upgraded
