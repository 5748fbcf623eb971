"""A session as its front ends received it: all their responses, rebuilt from the log and the rows that a run left."""

from __future__ import annotations

import asyncio
import fcntl
import subprocess
from collections.abc import AsyncIterator, Iterator, Sequence, Set
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from tests.support.node_process import NodeProcess

from helix.core.json import JsonObject
from helix.core.messages import UserMessage
from helix.core.wire import StreamMessage
from helix.http.messages import ui_conversation
from helix.http.responses import Position, encode
from helix.http.turn_reader import read_turn, replayed_text
from helix.http.turns import Turn, agui_messages, conversation, get_owned, start_state, turn_of
from helix.runtime.executor import Executor
from helix.stream.agui import AgUiEncoder
from helix.stream.agui_open import Joining
from helix.stream.ui_calls import shown_call
from helix.stream.ui_fold import UIMessageFold
from helix.stream.ui_messages import UIMessageEncoder, Version

JS = Path(__file__).parents[1] / "js"
Event = tuple[Position, JsonObject]
BASE = "/desk/ai-sdk"


async def turns(executor: Executor, session_id: str) -> list[Turn]:
    """Return the turns of the runs whose end is on the stream, oldest first."""
    session = await get_owned(executor, session_id, (await executor.sessions.get(session_id)).user_id)
    runs = (await executor.sessions.list_runs(session_id, limit=1000)).runs
    log = await whole_log(executor, session_id)
    ended = {m.run_id for m in log if m.kind != "chunk" and m.session_id == session_id}
    return [await turn_of(executor, session, run.run_id) for run in reversed(runs) if run.run_id in ended]


async def whole_log(executor: Executor, stream_id: str) -> list[StreamMessage]:
    found: list[StreamMessage] = []
    while page := await executor.streams.read(stream_id, found[-1].sequence if found else 0):
        found += page
    return found


async def events_of(
    executor: Executor,
    turn: Turn,
    encoder: Any,
    *,
    whole: bool,
    after: Position | None = None,
    left_out: Set[int] = frozenset(),
) -> list[Event]:
    async with asyncio.timeout(30):
        reading = read_turn(executor, turn, 5, left_out)
        return [item async for item in encode(reading, turn, encoder, whole=whole, after=after) if item is not None]


def ui_encoder(turn: Turn, version: Version = 7) -> UIMessageEncoder:
    return UIMessageEncoder(turn.session.session_id, version=version, base=BASE)


async def agui_encoder(executor: Executor, turn: Turn, *, join: bool = False) -> AgUiEncoder:
    state = await start_state(executor, turn)
    made = AgUiEncoder(turn.session.session_id, messages=await conversation(executor, turn), state=state)
    made.announce(run_id=turn.run.run_id, messages=join)
    return made


async def ui_messages(executor: Executor, session_id: str, version: Version = 7) -> list[JsonObject]:
    """Return for each message of the page its responses, each with the page's answers before it, and one replay of all."""
    log = await whole_log(executor, session_id)
    found: dict[str, dict[str, Any]] = {}
    ended = 0
    for turn in await turns(executor, session_id):
        message = found.setdefault(turn.first.run_id, {"responses": []})
        left_out = await replayed_text(executor, turn) if version == 6 else frozenset()
        events = await events_of(executor, turn, ui_encoder(turn, version), whole=False, left_out=left_out)
        chunks = [event for _, event in events]
        answers = _answers(log, session_id, ended) if message["responses"] else None
        ended = next(m.sequence for m in log if m.kind != "chunk" and m.run_id == turn.run.run_id)
        message["responses"].append({"chunks": chunks, "answers": answers})
        replay = await events_of(executor, turn, ui_encoder(turn, version), whole=True, left_out=left_out)
        message["replay"] = [event for _, event in replay]
    return list(found.values())


def ui_fold(chunks: Sequence[JsonObject]) -> JsonObject | None:
    fold = UIMessageFold()
    fold.feed(chunks)
    return fold.message


async def loaded_answers(executor: Executor, session_id: str, version: Version) -> list[JsonObject]:
    """Return the answers of a page that loads."""
    session = await executor.engine.history.existing(session_id)
    return [one for one in await ui_conversation(executor, session, version, BASE) if one["role"] == "assistant"]


def _answers(log: Sequence[StreamMessage], root: str, end: int) -> dict[str, bool]:
    """Return the answers to the calls that waited at that sequence, as whether each was approved, by their ids on the
    page."""
    asked: set[str] = set()
    answers: dict[str, bool] = {}
    for message in log:
        chunk: Any = message.chunk or {}
        kind = chunk.get("type")
        if kind == "tool_approval_request" and message.sequence <= end:
            asked.add(shown_call(root, message.session_id, chunk["tool_call_id"]))
        elif kind in ("tool_start", "tool_end") and message.sequence > end:
            shown = shown_call(root, message.session_id, chunk["tool_call_id"])
            if shown in asked:
                answers.setdefault(shown, kind == "tool_start" or chunk.get("success", True))
    return answers


async def agui_runs(executor: Executor, session_id: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    seen: set[str] = set()
    messages = await executor.sessions.load_conversation_messages(session_id)
    began = {m.run_id: m.queued_id or m.run_id for m in reversed(messages) if isinstance(m, UserMessage)}
    for turn in await turns(executor, session_id):
        copied = (
            not found and turn.first.start_count > 0
        )  # its reader does not have the messages of the original session
        encoder = await agui_encoder(executor, turn, join=copied)
        events = [event for _, event in await events_of(executor, turn, encoder, whole=False)]
        said = (turn.first.input or {}).get("message")
        name = began.get(turn.first.run_id, turn.first.run_id)
        user = {"id": f"{name}/user", "role": "user", "content": said}
        new = said is not None and not copied and turn.first.run_id not in seen
        seen.add(turn.first.run_id)
        found.append({"user": user if new else None, "events": events})
    return found


async def agui_cuts(executor: Executor, session_id: str) -> list[dict[str, Any]]:
    """Return for each run all that its reader receives, and what a reader receives that reconnects, by the last event that
    it has."""
    found: list[dict[str, Any]] = []
    for turn, run in zip(await turns(executor, session_id), await agui_runs(executor, session_id), strict=True):
        async with asyncio.timeout(30):
            log = [message async for message in read_turn(executor, turn, 5) if message is not None]
        positions = [
            None,
            *(p for p, _ in await events_of(executor, turn, await agui_encoder(executor, turn), whole=False)),
        ]
        messages, state = await conversation(executor, turn), await start_state(executor, turn)
        cuts: list[list[JsonObject]] = []
        for after in positions[: len(run["events"]) + 1]:
            encoder = AgUiEncoder(session_id, messages=messages, state=state)
            join = Joining(encoder, turn.run.run_id, anew=True)
            events = encode(_again(log), turn, encoder, whole=False, after=after, join=join)
            cuts.append([item[1] async for item in events if item is not None])
        found.append({**run, "cuts": cuts})
    return found


async def _again(log: Sequence[StreamMessage]) -> AsyncIterator[StreamMessage | None]:
    for message in log:
        yield message


async def sent(executor: Executor, session_id: str) -> dict[str, Any]:
    log = await whole_log(executor, (await executor.sessions.get(session_id)).stream_id)
    return {
        "session": session_id,
        "log": [message.model_dump(mode="json", exclude_none=True) for message in log],
        "ui": await ui_messages(executor, session_id),
        "ui6": await ui_messages(executor, session_id, 6),
        "agui": {"runs": await agui_runs(executor, session_id)},
    }


async def whole_fold(executor: Executor, session_id: str) -> list[JsonObject]:
    """Return one fold of every part that the AI SDK receives of the session's stream."""
    encoder = UIMessageEncoder(session_id)
    log = await whole_log(executor, (await executor.sessions.get(session_id)).stream_id)
    return [part for message in log for part in encoder.feed(message)] + encoder.close()


async def stored_conversation(executor: Executor, session_id: str) -> list[JsonObject]:
    """Return the session's messages in the format of AG-UI."""
    history = executor.engine.history
    session = await history.existing(session_id)
    lineage = await history.lineage(session_id, session.lineage)
    return agui_messages(session_id, await history.entries(session_id, lineage, 0, session.count))


def install() -> None:
    """Install the packages of tests/js, in one of the processes that ask for them."""
    with (JS / "package-lock.json").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        installed, wanted = JS / "node_modules" / ".installed", lock.read()
        if not installed.exists() or installed.read_text() != wanted:
            subprocess.run(["npm", "ci", "--no-audit", "--no-fund"], cwd=JS, check=True, stdout=subprocess.DEVNULL)
            installed.write_text(wanted)


@contextmanager
def readers() -> Iterator[NodeProcess]:
    """The client libraries of the front ends, in Node."""
    install()
    with closing(NodeProcess(JS / "node_modules/.bin/node", "check.mjs", cwd=JS)) as made:
        yield made
