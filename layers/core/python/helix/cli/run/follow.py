"""Following a run to its end, and waiting for a session whose process may have died.

Law: the first Ctrl-C interrupts the run and waits for its end. The second exits immediately and releases the lease, so that
`resume` works immediately. If this process ends in any other way, the session can be resumed once its lease has expired.

A command takes over a run only after the worker's lease has expired. If the worker shows signs of life before that (it
renews the lease, commits a step or extends the stream), the command is refused immediately. Therefore two workers never
compete, and a command never waits for a live worker.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from typing import Any

from helix.adapters.system import SystemClock
from helix.cli.output import OF_STATUS, STOPPED, RefusedError, say
from helix.cli.view.base import Question, View
from helix.core.agents import AnyAgent
from helix.core.chunks import StreamChunk
from helix.core.claim_plan import lapsed
from helix.core.errors import AgentAlreadyRunningError
from helix.core.handles import AgentExecutionHandle, AgentResult, Confirmation, SessionState
from helix.core.json import loads
from helix.core.json_schema import schema_problems
from helix.core.messages import AskedQuestion
from helix.fleet.rows import read_entry
from helix.ports.clock import Clock
from helix.runtime.executor import Executor


async def open_questions(load: Callable[[str], Awaitable[SessionState | None]], session_id: str) -> list[Question]:
    """Return the calls that wait for a person, in call order. A call that waits for a sub-agent is replaced by the
    sub-agent's waiting calls."""
    state = await load(session_id)
    found: list[Question] = []
    if state is None:
        return found
    for pending in state.pending:
        if pending.child_session_id is not None:
            found += await open_questions(load, pending.child_session_id)
        else:
            asked = (pending.call_id, pending.tool_name, pending.kind, pending.arguments, state.agent_type)
            why = "; ".join(question.text for question in pending.questions) or pending.reason
            found.append(Question(*asked, why, pending.questions, pending.round))
    return found


def confirmations(
    approve: Sequence[str] | None, deny: Sequence[str] | None, data: str | None, reason: str | None, *, other: bool
) -> list[Confirmation]:
    """Return the answers given on the command line, approvals first. `other`: whether the command line also requests
    another way to resume. Raises `RefusedError` for conflicting options."""
    approved, denied = list(approve or ()), list(deny or ())
    if not approved and not denied:
        if data is not None or reason is not None:
            raise RefusedError("--data and --reason need --approve or --deny")
        return []
    if other:
        raise RefusedError(
            "--approve and --deny answer a call, but --message and --checkpoint continue without an answer: choose one"
        )
    if both := set(approved) & set(denied):
        raise RefusedError(f"call {sorted(both)[0]!r} is both approved and denied: choose one")
    value = None if data is None else parse_data(data)
    return [
        *(Confirmation(call, approved=True, data=value) for call in approved),
        *(Confirmation(call, approved=False, data=value, reason=reason) for call in denied),
    ]


def parse_data(text: str) -> Any:
    """Parse a string as JSON. Return the string itself if it is not JSON."""
    try:
        return loads(text)
    except ValueError:
        return text


def parse_answer(question: AskedQuestion, text: str) -> Any:
    """Parse what a person typed as the answer to a question: a text verbatim, choices between commas, or JSON. Raises
    `RefusedError`, naming the fields that do not fit."""
    schema, stripped = question.answer_schema, text.strip()
    value: Any = stripped if schema.get("type") == "string" else parse_data(stripped)
    if schema.get("type") == "array" and isinstance(value, str):
        value = [part.strip() for part in stripped.split(",") if part.strip()]
    if problems := schema_problems(schema, value, "the answer"):
        raise RefusedError("; ".join(problems))
    return value


def describe_answer(question: AskedQuestion) -> str:
    """Describe the answer that a question wants: its choices, or its fields, one per line. Empty for a text."""
    schema: dict[str, Any] = question.answer_schema
    items = schema.get("items")
    choices = schema.get("enum") or (items.get("enum") if isinstance(items, dict) else None)
    if isinstance(choices, list):
        return f"{'some' if schema.get('type') == 'array' else 'one'} of: {', '.join(map(str, choices))}"
    if fields := describe_fields(schema):
        return f"a JSON object with\n{fields}"
    return "" if schema.get("type") == "string" else f"JSON: {schema.get('type', 'any value')}"


def describe_fields(schema: dict[str, Any]) -> str:
    """Describe an object by the fields of its JSON schema, one per line."""
    known, needed = schema.get("properties"), schema.get("required") or []
    lines = []
    for name, field in (known if isinstance(known, dict) else {}).items():
        of = field if isinstance(field, dict) else {}
        choices = of.get("enum")
        kind = " or ".join(map(str, choices)) if isinstance(choices, list) else str(of.get("type", ""))
        what = f"{kind}{'' if isinstance(needed, list) and name in needed else ', optional'}"
        lines.append(f"{name}: {what}{' · ' + str(of['description']) if of.get('description') else ''}")
    return "\n".join(lines)


def parse_arguments(text: str) -> dict[str, Any]:
    value = parse_data(text)
    if not isinstance(value, dict):
        raise RefusedError("--arguments must be a JSON object: all arguments of the call, as the tool names them")
    return value


POLL_S = 0.1


async def wait_until_free(executor: Executor, session_id: str, clock: Clock) -> None:
    """Wait until no worker owns the session. The session need not exist. Raises `AgentAlreadyRunningError`.

    The wait is announced only after a live worker would have renewed its lease, so that a refusal remains a single line.
    """
    state = await executor.sessions.load(session_id)
    if state is None or state.status != "running" or not state.lease_expires:
        return  # a run without a lease belongs to a fleet and is never lost, so the claim refuses the command
    seen, began, announced = await _read_signs_of_life(executor, state), clock.now(), False
    patience_s = executor.engine.settings.claim_s / 3 + 0.5
    while not _has_expired(state, clock.now(), clock.now() - began >= patience_s):
        if not announced and clock.now() - began >= patience_s:
            announced = True
            left = max(1, round(state.lease_expires - clock.now()))
            say(f"session {session_id!r} is running, but its process is silent: waiting {left} s until its lease ends")
        await asyncio.sleep(POLL_S)
        state = await executor.sessions.load(session_id)
        if state is None or await _read_signs_of_life(executor, state) != seen:
            raise AgentAlreadyRunningError(session_id, state.current_run_id if state is not None else None)
    waited = f" (waited {clock.now() - began:.0f} s for its lease)" if clock.now() - began >= POLL_S else ""
    say(f"the process that ran session {session_id!r} is gone{waited}: continuing in its place")


def _has_expired(state: SessionState, now: float, patient: bool) -> bool:
    """Return whether the lease has expired. If the clock was set back, the worker is still given time to renew the
    lease."""
    return lapsed(state, now) and (state.lease_expires < now or patient)


async def explain_unserved(executor: Executor, agent_name: str, clock: Clock) -> str | None:
    """Return why a fleet's run is not making progress if no process serves its agent, otherwise None."""
    entry = await read_entry(executor.store, agent_name)
    if entry is not None and entry.supervised(clock.now()):
        return None
    return f"no process serves {agent_name!r} from this store now; its runs wait for `helix fleet serve` on this store"


async def _read_signs_of_life(executor: Executor, state: SessionState) -> tuple[float, int, int]:
    info = await executor.streams.info(state.stream_id)
    return state.lease_expires, state.version, info.latest_sequence if info is not None else 0


Handle = AgentExecutionHandle[Any]
LOOK_S = 2.0


class RunLostError(Exception):
    """No process is executing the run any more, and it has not ended."""


class Follower:
    def __init__(self, executor: Executor, agent: AnyAgent, view: View) -> None:
        self.executor, self.agent, self.view = executor, agent, view
        self._clock = SystemClock()
        self._followed: Handle | None = None
        self._signals = 0
        self._asking: asyncio.Task[bool] | None = None
        self._unserved: str | None = None

    async def run(self, action: Callable[[Follower], Awaitable[Handle]]) -> AgentResult[Any] | None:
        """Execute `action`, show how its last run ended, and return its result. None if the user did not wait for the
        end."""
        task = asyncio.current_task()
        assert task is not None
        with on_signals(lambda: self._on_signal(task), signal.SIGINT, signal.SIGTERM):
            try:
                handle = await action(self)
                result: AgentResult[Any] = await handle.result()
            except (asyncio.CancelledError, RunLostError) as error:
                await self._leave(error)
                return None
        paused = result.status == "paused"
        self.view.result(result, await open_questions(self.executor.sessions.load, handle.session_id) if paused else ())
        return result

    async def wait_until_free(self, session_id: str) -> None:
        await wait_until_free(self.executor, session_id, self._clock)

    async def follow(self, handle: Handle, *, after: int | None = None, root: str | None = None) -> int:
        """Show the run to its end and return the sequence number of the last chunk. `root` is the session that the user
        named, if the run belongs to another one."""
        self._followed = handle
        self.view.opened(root or handle.session_id)
        sequence = after or 0
        async with contextlib.aclosing(self._chunks(handle, after)) as chunks:
            async for chunk in chunks:
                sequence = max(sequence, chunk.sequence)
                self.view.chunk(chunk)
        return sequence

    async def _chunks(self, handle: Handle, after: int | None) -> AsyncGenerator[StreamChunk, None]:
        """Yield the run's chunks. Raises `RunLostError` if no process is executing the run any more."""
        chunks = aiter(await handle.stream(after=after))
        coming = asyncio.ensure_future(anext(chunks, None))
        try:
            while True:
                while not (await asyncio.wait({coming}, timeout=LOOK_S))[0]:
                    await self._check_alive(handle)
                if (chunk := coming.result()) is None:
                    return
                yield chunk
                coming = asyncio.ensure_future(anext(chunks, None))
        finally:
            coming.cancel()
            await asyncio.gather(coming, return_exceptions=True)

    async def _check_alive(self, handle: Handle) -> None:
        """Raise `RunLostError` if the worker's lease renewal is overdue by more than half a lease. Before that, the worker
        may only be late."""
        state = await self.executor.sessions.get(handle.session_id)
        slack_s = self.executor.engine.settings.claim_s / 2
        if state.status != "running" or state.current_run_id != handle.run_id:
            return
        if state.lease_expires and state.lease_expires + slack_s < self._clock.now():
            raise RunLostError("the process that executed the run is gone")
        if not state.lease_expires:  # a fleet is executing the run, and may come back
            why = await explain_unserved(self.executor, self.agent.name, self._clock)
            if why is not None and why != self._unserved:
                say(why)
            self._unserved = why

    def _on_signal(self, task: asyncio.Task[Any]) -> None:
        self._signals += 1
        if self._signals == 1 and self._followed is not None:
            self.view.stopping()
            interrupt = self.executor.interrupt(self._followed.session_id, "interrupted at the terminal")
            self._asking = asyncio.get_running_loop().create_task(interrupt)
        elif self._signals <= 2:
            task.cancel()
        else:
            os._exit(STOPPED)

    async def _leave(self, error: BaseException) -> None:
        if self._followed is None:
            say("stopped before a run was started")
        else:
            self.view.left(self._followed, str(error) or "left before the run had stopped")
        if isinstance(error, asyncio.CancelledError):
            await self.executor.close()
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(STOPPED)  # a tool in a thread cannot be cancelled, and Python would wait for it


@contextlib.contextmanager
def on_signals(handler: Callable[[], None], *numbers: signal.Signals) -> Iterator[None]:
    """Call `handler` on these signals for the duration of the block, if the operating system and the thread allow it."""
    loop = asyncio.get_running_loop()
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
            for number in numbers:
                loop.add_signal_handler(number, handler)
                stack.callback(loop.remove_signal_handler, number)
        yield


def exit_code_of(result: AgentResult[Any] | None) -> int:
    return STOPPED if result is None else OF_STATUS[result.status]
