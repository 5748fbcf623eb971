"""Stores the request heads that model calls name (docs/protocol.md#row-head), and reads them.

    control    head#<id>    q#<id>    a head that is the same for all sessions, once per store
    sessions   <session>    q#<id>    a head that depends on the session, once per session

Law: a head is stored before the first row that names it, or in the same transaction. A head in the table `control` is
never deleted, because it says nothing about a session, and because exports and audits read it years later. A head of a
session is deleted with the session.
"""

from __future__ import annotations

from collections.abc import Container, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from weakref import WeakKeyDictionary

from helix.core.agents import AnyAgent
from helix.core.json import JsonObject, clean_text, dumps
from helix.core.request_heads import HeadRow, RequestHead, head_row, join_head, sent_settings
from helix.core.row_keys import head_sort
from helix.ports.model import LLMGenerateInput, ToolSpec
from helix.ports.state_store import ABSENT, Key, Put, StateStore, Value

REMEMBERED = 1_024
"""The number of shared heads that a process remembers to be stored. Forgetting one costs a read."""
MOST_ROWS = 32
"""The number of rows that are kept in memory for each agent, with and without `recall`, for summaries and so on."""


@dataclass(frozen=True, slots=True)
class CallHead:
    """The head of a model call, and the rows that have it."""

    id: str = ""
    """The id of the head. Empty for a function agent, which calls no model."""
    shared: HeadRow | None = None
    """The row, or the base, that is the same for all sessions. None if everything belongs to the session."""
    own: HeadRow | None = None
    """The row that belongs to the session. None if no field depends on the session."""


class RequestHeads:
    """A component that makes the heads of a process's model calls, and remembers which shared heads are stored."""

    def __init__(self) -> None:
        self._stored: dict[str, None] = {}
        self._rows: WeakKeyDictionary[AnyAgent, dict[Hashable, HeadRow]] = WeakKeyDictionary()

    def of(
        self,
        agent: AnyAgent,
        request: LLMGenerateInput,
        declared: Container[str] = (),
        reminders: Sequence[str] = (),
        *,
        overridden: bool = False,
    ) -> CallHead:
        """Return the head of the request. `declared`: the names of the tools that the run declared, which belong to the
        session. `reminders`: the texts at the end of the request, which belong to the session if the agent has reminders.
        `overridden`: whether the run has settings of its own, which belong to the session too. Raises `InvalidInputError`
        for settings that are not JSON, which a function of the agent may return."""
        if agent.function is not None:
            return CallHead()
        fields, varying = _fields(request), _varying(agent)
        varying = [*varying, "settings", "tool_choice"] if overridden else varying
        own = {name: fields.pop(name) for name in varying if name in fields}
        if reminders:
            (own if agent.reminders else fields)["reminders"] = [*reminders]
        known = [tool for tool in request.tools if tool.name not in declared or agent.find_tool(tool.name) is not None]
        if len(known) < len(request.tools):
            own["tools"] = _tools(request)["tools"]
            request = replace(request, tools=known)
        if agent.made_by_factory and own:  # its tools may have values of the session too, so no base is shared
            whole = head_row({**fields, **_tools(request), **own})
            return CallHead(whole.id, own=whole)
        row = self._row(agent, request, fields)
        if agent.made_by_factory:
            return CallHead(row.id, own=row)
        if not varying and not own:
            return CallHead(row.id, shared=row)
        depends = head_row(own, base=row)
        return CallHead(depends.id, shared=row, own=depends)

    def _row(self, agent: AnyAgent, request: LLMGenerateInput, fields: JsonObject) -> HeadRow:
        """Return the row with these fields and the tools. The tools of an agent have the same schema in each call, so
        their names identify the text."""
        rows = self._rows.setdefault(agent, {})
        names = tuple(tool.name for tool in request.tools)
        key = (names, request.output_schema is None, dumps(fields))
        if (row := rows.get(key)) is None:
            if len(rows) >= MOST_ROWS:
                rows.clear()
            row = rows[key] = head_row({**fields, **_tools(request)})
        return row

    def is_stored(self, ident: str) -> bool:
        """Return whether this process knows that the shared head is stored."""
        return ident in self._stored

    def note_stored(self, ident: str) -> None:
        """Remember that the shared head is stored."""
        while len(self._stored) >= REMEMBERED:
            del self._stored[next(iter(self._stored))]
        self._stored[ident] = None


async def read_head(store: StateStore, session_id: str, ident: str) -> RequestHead | None:
    """Return a head that a row of the session names. None if it, or its base, is missing from the store."""
    row = (await read_head_rows(store, session_id, [ident])).get(ident)
    if row is None:
        return None
    base = None if row.base is None else (await read_head_rows(store, session_id, [row.base])).get(row.base)
    return None if row.base is not None and base is None else join_head(row, base)


async def read_head_rows(store: StateStore, session_id: str, idents: Iterable[str]) -> dict[str, HeadRow]:
    """Return the stored rows of these heads by id: those of the session, or else the shared ones."""
    wanted = list(dict.fromkeys(idents))
    keys = [key for ident in wanted for key in (_session_key(session_id, ident), _shared_key(ident))]
    values = await store.get(keys)
    found: dict[str, HeadRow] = {}
    for key, value in zip(keys, values, strict=True):
        if value is not None:
            ident = key.sort.partition("#")[2]
            found.setdefault(ident, HeadRow.at(key.partition, key.sort, value))
    return found


async def shared_heads(store: StateStore, values: Iterable[Value]) -> list[HeadRow]:
    """Return the shared heads, and the shared bases of heads, that these rows of a session name."""
    named: dict[str, None] = {}
    for value in values:
        ident = HeadRow.model_validate(value).base if value.get("kind") == "head" else value.get("head")
        if isinstance(ident, str) and ident:
            named[ident] = None
    keys = [_shared_key(ident) for ident in named]
    found = zip(keys, await store.get(keys), strict=True)
    return [HeadRow.at(key.partition, key.sort, value) for key, value in found if value is not None]


async def session_heads(store: StateStore, session_id: str, idents: Iterable[str]) -> list[HeadRow]:
    """Return the heads of these ids, and their bases, that are stored in the session."""
    found: dict[str, HeadRow] = {}
    while wanted := [ident for ident in dict.fromkeys(idents) if ident not in found]:
        keys = [_session_key(session_id, ident) for ident in wanted]
        values = await store.get(keys)
        rows = [HeadRow.at(k.partition, k.sort, v) for k, v in zip(keys, values, strict=True) if v is not None]
        found |= {row.id: row for row in rows}
        idents = [row.base for row in rows if row.base is not None]
    return list(found.values())


def shared_put(row: HeadRow) -> Put:
    """Put a shared head, if it is absent."""
    return Put(_shared_key(row.id), head_value(row), ABSENT)


def head_put(session_id: str, row: HeadRow) -> Put:
    """Put a head in a session. A repeated put writes the same text."""
    return Put(_session_key(session_id, row.id), head_value(row))


def head_value(row: HeadRow) -> Value:
    """Return the stored form of a head."""
    return {"kind": row.kind, **row.dump()}


def _session_key(session_id: str, ident: str) -> Key:
    return Key("sessions", session_id, head_sort(ident))


def _shared_key(ident: str) -> Key:
    return Key("control", f"head#{ident}", head_sort(ident))


def _varying(agent: AnyAgent) -> Sequence[str]:
    """Return the fields that depend on the custom state."""
    functions = {"system_prompt": callable(agent.system_prompt), "settings": callable(agent.llm_config)}
    return [name for name, is_function in functions.items() if is_function]


def _fields(request: LLMGenerateInput) -> JsonObject:
    """Return the fields of the request's head that are not at their default, without those of `_tools`."""
    first = request.messages[0] if request.messages else None
    fields: JsonObject = {}
    if first is not None and first.role == "system" and first.content:
        fields["system_prompt"] = clean_text(first.content)
    if request.tool_choice != "auto":
        fields["tool_choice"] = request.tool_choice
    if settings := sent_settings(request.config):
        fields["settings"] = settings
    return fields


def _tools(request: LLMGenerateInput) -> JsonObject:
    """Return the tools and the output schema, unless they are at their default."""
    fields: JsonObject = {}
    if request.tools:
        fields["tools"] = [_tool(tool) for tool in request.tools]
    if request.output_schema is not None:
        fields["output_schema"] = request.output_schema
    return fields


def _tool(tool: ToolSpec) -> JsonObject:
    """Return the fields of `HeadTool` that are not at their default."""
    strict: JsonObject = {} if tool.strict is None else {"strict": tool.strict}
    return {"name": tool.name, "description": tool.description, "parameters": tool.parameters, **strict}
