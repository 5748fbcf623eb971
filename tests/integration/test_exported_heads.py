"""Request heads outside of their store: in exports, which contain those that their model calls name, and in replies."""

from __future__ import annotations

from typing import Any

import pytest
from tests.integration.test_damaged_reads import opened
from tests.integration.test_request_heads import FIXED, MOODY, Counting, Recorder, check, heads_of, run, use
from tests.support.context_talk import S

from helix import Agent, LocalExecutor, MemoryStateStore
from helix.adapters.system import SystemClock, SystemIds
from helix.cli.sessions.files import _export
from helix.core.context_replies import ContextFound
from helix.core.errors import InvalidInputError
from helix.core.json import dumps, loads
from helix.core.request_heads import HeadRow
from helix.services.session_calls import session_calls
from helix.sessions.exports import Export, read_export
from helix.sessions.imports import import_session
from helix.sessions.read import Sessions


async def exported(who: Agent[Any, Any], store: MemoryStateStore | None = None) -> tuple[Export, list[ContextFound]]:
    """Return the export of a session of two turns, and the contexts of its steps."""
    store = store or Counting()
    first = use("feel", mood="glad") if who is MOODY else use("look", place="here")
    async with LocalExecutor(store=store, model=Recorder(first, "It is empty.", "Still empty.").adapter()) as executor:
        await run(executor, who)
        await run(executor, who)
        contexts = [await executor.sessions.get_context(S, step) for step in (1, 2, 3)]
    async with opened(store) as (client, _):
        return await _export(client, S), contexts


async def imported(lines: list[str]) -> Counting:
    store = Counting()
    await import_session(store, read_export(lines), SystemClock(), SystemIds())
    return store


@pytest.mark.parametrize("who", [FIXED, MOODY], ids=["fixed", "moody"])
async def test_an_imported_session_says_what_its_model_was_asked(who: Agent[Any, Any]) -> None:
    export, contexts = await exported(who)
    assert all(context.request is not None for context in contexts)
    store = await imported([*export.lines()])
    assert [await Sessions(store).get_context(S, step) for step in (1, 2, 3)] == contexts
    assert store.shared() == []  # the session has them, so its deletion deletes them
    await check(store)
    async with LocalExecutor(store=store, model=Recorder("And now?").adapter()) as executor:
        copy = (await executor.branch(S)).session_id
        await run(executor, who)
        assert await executor.delete(S) and await heads_of(store) == []
        found = await executor.sessions.get_context(copy, 2)
    assert found.request == contexts[1].request


async def test_a_page_of_rows_has_the_heads_that_it_names() -> None:
    store = Counting()
    export, _ = await exported(FIXED, store)
    (head,) = [row.key.sort for row in export.rows if row.key.sort.startswith("q#")]
    async with opened(store) as (client, _):
        pages, cursor = [], None
        while True:
            page: dict[str, Any] = dict(await client.ask("read_rows", {"session_id": S, "limit": 2, "after": cursor}))
            pages.append([sort for sort, _ in page["rows"]])
            if (cursor := page["cursor"]) is None:
                break
    assert all(page == sorted(page) for page in pages)
    assert sum(head in page for page in pages) > 1


async def test_rows_are_returned_as_the_lines_of_an_export() -> None:
    store = Counting()
    export, _ = await exported(FIXED, store)
    lines: dict[tuple[bool, str], str] = {}
    async with opened(store) as (client, _):
        for stream in (False, True):
            cursor = None
            while True:
                asked: dict[str, Any] = {"session_id": S, "limit": 2, "after": cursor, "stream": stream, "lines": True}
                page: dict[str, Any] = dict(await client.ask("read_rows", asked))
                assert page["rows"] == [] == page["export"]["children"] == page["export"]["files"]
                lines |= {(stream, one["sort"]): one["line"] for one in page["export"]["lines"]}
                if (cursor := page["cursor"]) is None:
                    break
        head = page["export"]["head"]
    read = read_export([head, *lines.values(), f'{{"end": true, "rows": {len(lines)}}}'])
    assert sorted(lines.values()) == sorted([*export.lines()][1:-1])
    assert {**read.header, "exported_at": 0} == {**export.header, "exported_at": 0}


async def test_each_attempt_at_a_step_names_its_head() -> None:
    store = Counting()
    _, contexts = await exported(FIXED, store)
    async with opened(store) as (client, _):
        found = [dict(await client.get_step(S, step)) for step in (1, 2, 3)]
    attempts: list[Any] = [step["attempts"] for step in found]
    assert [[one["head"] for one in tries] for tries in attempts] == [[context.head] for context in contexts]


async def test_a_changed_head_is_refused() -> None:
    export, _ = await exported(FIXED)
    lines = [*export.lines()]
    (number,) = [n for n, line in enumerate(lines, 1) if '"sort": "q#' in line]
    changed = lines[number - 1].replace("You look at places.", "You look at nothing.")
    assert changed != lines[number - 1]
    with pytest.raises(InvalidInputError, match=rf"line {number}: .*'q#.*text: its hash is not that of the key"):
        read_export([*lines[: number - 1], changed, *lines[number:]])


async def test_a_head_that_is_not_a_head_is_refused() -> None:
    export, _ = await exported(FIXED)
    lines = [*export.lines()]
    row = HeadRow(text=dumps({"tools": "none"}))
    line = {"table": "sessions", "partition": S, "sort": f"q#{row.id}", "value": {"kind": "head", "text": row.text}}
    end = loads(lines[-1])
    with pytest.raises(InvalidInputError, match="tools: Input should be a valid"):
        read_export([*lines[:-1], dumps(line), dumps({**end, "rows": end["rows"] + 1})])


async def test_a_name_that_is_not_that_of_a_head_is_refused() -> None:
    export, contexts = await exported(FIXED)
    lines = [line.replace(f'"head": "{contexts[0].head}"', '"head": "../x"') for line in export.lines()]
    with pytest.raises(InvalidInputError, match=r"head: '\.\./x' is not the id of a request head"):
        read_export(lines)


async def test_an_export_of_an_earlier_version_has_no_heads() -> None:
    export, contexts = await exported(FIXED)
    rows = [
        row._replace(value={n: value for n, value in row.value.items() if n != "head" or row.key.table == "streams"})
        for row in export.rows
        if not row.key.sort.startswith("q#")
    ]
    store = await imported([*Export(export.header, rows).lines()])
    await check(store)
    found = await Sessions(store).get_context(S, 2, agent=FIXED)
    assert (found.head, found.request, found.system_prompt) == (None, None, "You look at places.")
    assert found.messages == contexts[1].messages and found.model == "scripted"
    assert {call.head for call in await session_calls(store, S)} == {""}
