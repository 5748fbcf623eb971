"""All messages of a session, for a page that is loading. The page then looks as if it had received them live.

Law: each message of the page is assembled from the stream, as the page itself would assemble it. Messages that the stream
no longer contains, or never contained because the session is a copy, are built from the session's history.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from helix.core.conversation.changes import CONTINUES
from helix.core.entries import read_waits
from helix.core.files import FilePart
from helix.core.inbox import WaitingMessage
from helix.core.json import JsonObject, JsonValue, loads
from helix.core.messages import AnyMessage, AssistantMessage, ToolResultMessage, UserMessage, distinct_sources
from helix.core.run_row import RunRow
from helix.core.server_tools import server_calls
from helix.core.session_row import SessionRow
from helix.core.tools import FINISH_TOOL_NAME
from helix.core.wire import StreamMessage
from helix.http.turns import agui_messages
from helix.runtime.executor import Executor
from helix.stream.discarded import discarded_text
from helix.stream.file_parts import file_url, parts_of, ui_result_files
from helix.stream.ui_calls import (
    ANSWERED_BY,
    QUESTION,
    answers_of,
    people_of,
    question_id,
    rounds_of,
    shown_question,
    ui_source,
)
from helix.stream.ui_fold import UIMessageFold
from helix.stream.ui_messages import UIMessageEncoder, Version

RUNS = 100
"""The number of most recent runs that are read from the stream. Older runs come from history."""
PAGE = 1000
REWINDS = frozenset({"from_checkpoint", "from_start"})


@dataclass
class _Entry:
    """A message of the page: a run, and the runs that continue it."""

    first: RunRow
    """The run that began the message. Its input contains the user's message, if there is one."""
    runs: set[str]
    """The ids of all runs of the message, including the first."""
    last_step: float = math.inf
    """The last step that a later rewind kept. Infinite if no rewind cut into the message."""
    log: list[StreamMessage] = field(default_factory=list)
    """The stream's messages of these runs, with those of sub-agents interleaved, in order."""
    late: list[StreamMessage] = field(default_factory=list)
    """The ends of this message's calls that arrived during the next message."""


async def agui_conversation(executor: Executor, session: SessionRow) -> list[JsonObject]:
    history = executor.engine.history
    lineage = await history.lineage(session.session_id, session.lineage)
    return agui_messages(session.session_id, await history.entries(session.session_id, lineage, 0, session.count))


async def ui_conversation(executor: Executor, session: SessionRow, version: Version, base: str) -> list[JsonObject]:
    """Return the messages of an AI SDK page. `base`: the address of the agent in this encoding, for the files."""
    session_id = session.session_id
    runs = (await executor.sessions.list_runs(session_id, limit=RUNS)).runs
    history = await _history(executor, session_id)
    entries = _entries(list(reversed(runs)))
    if not entries:
        return _from_history(session_id, history, base)
    found = _from_history(session_id, history[: entries[0].first.start_count], base)
    begins = await _read_log(executor, session, entries)
    for n, entry in enumerate(entries):
        first = entry.first
        said = history[first.start_count] if first.start_count < len(history) else None
        own = isinstance(said, UserMessage) and said.run_id in entry.runs
        if own:
            assert isinstance(said, UserMessage)
            found.append(_user(said, session_id, base))
        end = entries[n + 1].first.start_count if n + 1 < len(entries) else None
        rest = history[first.start_count + own : end]  # messages that steered the run follow its answer
        if first.start_sequence + 1 >= begins:
            answer = _fold_entry(session_id, entry, version, base)
            if answer is not None:
                found.append(answer)
            found += [_user(one, session_id, base) for one in rest if isinstance(one, UserMessage)]
        else:
            found += _from_history(session_id, rest, base, first.run_id)
    return found + [_waiting(one, session_id, base) for one in await executor.sessions.get_inbox(session_id)]


async def _history(executor: Executor, session_id: str) -> list[AnyMessage]:
    found: list[AnyMessage] = []
    while True:
        page = await executor.sessions.get_messages(session_id, offset=len(found), limit=PAGE)
        found += page.messages
        if not page.has_more or not page.messages:
            return found


def _entries(runs: Sequence[RunRow]) -> list[_Entry]:
    """Return the runs that are part of the conversation, oldest first. A rewind removes those after its checkpoint."""
    entries: list[_Entry] = []
    for run in runs:
        if run.mode in CONTINUES and entries and run.previous_run_id in entries[-1].runs and not _has_message(run):
            entries[-1].runs.add(run.run_id)
            continue
        if run.mode in REWINDS:
            while entries and entries[-1].first.start_count >= run.start_count:
                entries.pop()
            if entries:
                entries[-1].last_step = min(entries[-1].last_step, run.start_step)
        entries.append(_Entry(run, {run.run_id}))
    return entries


def _has_message(run: RunRow) -> bool:
    return (run.input or {}).get("message") is not None


async def _read_log(executor: Executor, session: SessionRow, entries: Sequence[_Entry]) -> float:
    """Fill the log of each entry from the stream, with the messages of sub-agents interleaved. Return the first sequence
    that the stream still contains."""
    by_run = {run_id: n for n, entry in enumerate(entries) for run_id in entry.runs}
    after, begins, present = entries[0].first.start_sequence, math.inf, None
    while page := await executor.streams.read(session.stream_id, after):
        for message in page:
            if begins == math.inf or message.run_id == "":  # or a notice that all earlier messages are lost
                begins = message.sequence
            after = message.sequence
            if message.run_id == "":
                continue
            own = message.session_id == session.session_id
            if own:
                present = by_run.get(message.run_id)
            if present is None:
                continue
            entries[present].log.append(message)
            if own and present > 0 and (message.chunk or {}).get("type") == "tool_end":
                entries[present - 1].late.append(message)
    return begins


def _fold_entry(session_id: str, entry: _Entry, version: Version, base: str) -> JsonObject | None:
    """Return the message that a page would assemble from a replay of the entry, or None if the entry has no visible
    content."""
    encoder, fold = UIMessageEncoder(session_id, version=version, base=base), UIMessageFold()
    left_out = discarded_text(entry.log, session_id) if version == 6 else ()
    for message in entry.log:
        own = message.session_id == session_id
        chunk: dict[str, Any] = message.chunk or {}
        if own and chunk.get("step", 0) > entry.last_step:
            break
        if message.sequence in left_out:
            continue
        fold.feed(encoder.feed(message))
    for message in entry.late:
        fold.feed(encoder.end_call(message))
    fold.feed(encoder.close())
    return fold.message if fold.message is not None and fold.message["parts"] else None


# --- from history -------------------------------------------------------------------------------------------------------


def _user(said: UserMessage, session_id: str, base: str) -> JsonObject:
    return _page_message(said, said.queued_id or said.run_id or said.id, session_id, base)


def _waiting(said: WaitingMessage, session_id: str, base: str) -> JsonObject:
    """Return a message that waits for a run. The page shows it last, as the page that sent it does."""
    about: JsonObject = {"metadata": {"queuedId": said.id, "state": "waiting"}}
    return {**_page_message(said, said.id, session_id, base), **about}


def _page_message(said: UserMessage | WaitingMessage, unnamed: str, session_id: str, base: str) -> JsonObject:
    given = said.metadata.get("id")
    name = given if isinstance(given, str) else f"{unnamed}/user"
    parts: list[JsonValue] = [
        {"type": "text", "text": part} if isinstance(part, str) else _ui_file(part, session_id, base)
        for part in parts_of(said.content, said.files)
    ]
    return {"id": name, "role": "user", "parts": parts}


def _ui_file(file: FilePart, session_id: str, base: str) -> JsonObject:
    """Return the part of a file. If the page sends it back, `helix.http.message_parts` finds the hash in its URL."""
    named = {"filename": file.name} if file.name is not None else {}
    return {"type": "file", "mediaType": file.media_type, **named, "url": file_url(file, session_id, base)}


def _from_history(
    session_id: str, history: Sequence[AnyMessage], base: str, run_id: str | None = None
) -> list[JsonObject]:
    """Convert stored messages. `run_id` identifies the page's message that all answers belong to. By default, each answer
    belongs to the run that gave it."""
    found: list[Any] = []
    calls: dict[str, dict[str, Any]] = {}
    answer: dict[str, Any] | None = None
    for stored in history:
        match stored:
            case UserMessage():
                found.append(_user(stored, session_id, base))
            case AssistantMessage():
                run = run_id or stored.run_id or stored.id
                if not found or found[-1]["role"] != "assistant":
                    answer = next((one for one in reversed(found) if one["id"] == run), None)  # it was steered
                if answer is None:
                    about = {"sessionId": session_id, "runId": run}
                    answer = {"id": run, "role": "assistant", "metadata": about, "parts": []}
                    found.append(answer)
                answer["parts"] += _answer(stored, calls)
            case ToolResultMessage() if stored.tool_call_id in calls and answer is not None:
                calls[stored.tool_call_id].update(_result(stored))
                answer["parts"] += _questions(stored)
                if people := people_of(stored.tool_call_id, *read_waits(stored)):
                    answer["metadata"].setdefault(ANSWERED_BY, {}).update(people)
                answer["parts"] += ui_result_files(stored.files, session_id, stored.tool_call_id, base)
    return found


def _answer(answer: AssistantMessage, calls: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    parts: list[dict[str, Any]] = [{"type": "step-start"}]
    parts += [{"type": "reasoning", "text": one.text, "state": "done"} for one in answer.thinking if one.text]
    for made in server_calls(answer.server_blocks):
        given = {"toolName": made.name, "toolCallId": f"{answer.step}/0/{made.id}", "input": made.arguments}
        ended = {"state": "output-available", "output": made.result}
        if made.error is not None:
            ended = {"state": "output-error", "errorText": made.error}
        parts.append({"type": "dynamic-tool", **given, **ended, "providerExecuted": True})
    if answer.content:
        parts.append({"type": "text", "text": answer.content, "state": "done"})
    sources = enumerate(distinct_sources(answer.citations), 1)
    parts += [ui_source(answer.step or 0, number, source) for number, source in sources]
    for call in answer.tool_calls:
        if call.name == FINISH_TOOL_NAME:
            continue
        part = {"type": "dynamic-tool", "toolName": call.name, "toolCallId": call.id}
        calls[call.id] = {**part, "state": "input-available", "input": call.arguments}
        parts.append(calls[call.id])
    return parts


def _questions(stored: ToolResultMessage) -> list[JsonObject]:
    """Return the parts of the rounds of questions that the call asked. An unanswered one has the call's error."""
    parts: list[JsonObject] = []
    for number, asked in rounds_of(read_waits(stored)[0]):
        shown: JsonObject = {"questions": [shown_question(question) for question in asked]}
        part: JsonObject = {"type": "dynamic-tool", "toolCallId": question_id(stored.tool_call_id, number)}
        part |= {"toolName": QUESTION, "input": shown}
        if all(question.answered for question in asked):
            parts.append({**part, "state": "output-available", "output": answers_of(asked)})
        else:
            parts.append({**part, "state": "output-error", "errorText": str(_result(stored).get("errorText") or "")})
    return parts


def _result(stored: ToolResultMessage) -> JsonObject:
    edited = stored.metadata.get("edited")
    arguments = edited.get("arguments") if isinstance(edited, dict) else None
    given: JsonObject = {} if arguments is None else {"input": arguments}
    try:
        value: Any = loads(stored.content)
    except ValueError:
        value = stored.content
    if stored.success:
        return {**given, "state": "output-available", "output": value}
    error = value.get("error") if isinstance(value, dict) else None
    return {**given, "state": "output-error", "errorText": error if isinstance(error, str) else stored.content}
