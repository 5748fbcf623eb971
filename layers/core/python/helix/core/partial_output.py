"""The structured output of a run while it arrives: partial objects, and the complete elements of its lists.

Law: an output is provisional until its run has completed. An attempt may be discarded, and an answer may not fit the
schema, so a reader is told when what it received is void.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Annotated, Any, TypeAlias, get_args, get_origin

from pydantic import BaseModel, Field, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from helix.core.chunks import (
    OutputChunk,
    OutputDeltaChunk,
    StepCommittedChunk,
    StepDiscardedChunk,
    StreamChunk,
    StreamResyncChunk,
)
from helix.core.errors import InvalidInputError
from helix.core.json import JsonValue, dumps

GROWTH = 32
"""A text is read again when it has grown by this part of its length, so that reading a long one many times stays
cheap."""


@dataclass(frozen=True, slots=True)
class OutputItem:
    """A complete element of a list in the output."""

    index: int
    """The position in the list, starting at 0."""
    value: Any
    """The element: an instance of the list's type if the schema is known, otherwise JSON."""


@dataclass(frozen=True, slots=True)
class OutputDiscarded:
    """A notice that all elements so far are void, because their answer was discarded or refused. The list starts
    again."""

    reason: str | None
    """Why the answer does not count. None if the stream does not say."""


class GrowingText:
    """JSON text that arrives in pieces."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._length, self._due = 0, 0

    @property
    def text(self) -> str:
        """The text so far."""
        if len(self._pieces) > 1:
            self._pieces[:] = ["".join(self._pieces)]
        return self._pieces[0] if self._pieces else ""

    def add(self, delta: str) -> bool:
        """Append a piece. Return whether the text has grown enough to be read again."""
        self._pieces.append(delta)
        self._length += len(delta)
        if self._length <= self._due:
            return False
        self._due = self._length + self._length // GROWTH
        return True


_JSON: TypeAdapter[Any] = TypeAdapter(Any)


def read_partial(text: str, adapter: TypeAdapter[Any] = _JSON) -> Any:
    """Return the value of an incomplete JSON text, without what is not known yet. Its last string or number may be cut.
    None if the text is not the beginning of a valid value."""
    try:
        return adapter.validate_json(text, experimental_allow_partial="trailing-strings", by_alias=True, by_name=True)
    except ValidationError:
        return None


async def partial_outputs(
    chunks: AsyncGenerator[StreamChunk, None], session_id: str, schema: type[BaseModel] | None
) -> AsyncGenerator[dict[str, Any], None]:
    """Yield the output of a run each time that it has grown. See `AgentExecutionHandle.partial_outputs`."""
    adapter: TypeAdapter[Any] = TypeAdapter(dict[str, Any]) if schema is None else _partial_type(schema)
    last: Any = {}
    async with aclosing(chunks), aclosing(_events(chunks, session_id)) as events:
        async for event in events:
            match event:
                case OutputDiscarded():
                    value: Any = {}
                case _Text(text):
                    value = read_partial(text, adapter)
                case _Given(output):
                    value = read_partial(dumps(output), adapter)
            if isinstance(value, dict) and value != last:
                last = value
                yield value


async def output_items(
    chunks: AsyncGenerator[StreamChunk, None], session_id: str, schema: type[BaseModel] | None, field: str
) -> AsyncGenerator[OutputItem | OutputDiscarded, None]:
    """Yield the elements of a list in the output. See `AgentExecutionHandle.output_items`."""
    source = _List(schema, field)
    given: list[Any] = []
    async with aclosing(chunks), aclosing(_events(chunks, session_id)) as events:
        async for event in events:
            void: OutputDiscarded | None = None
            found: list[Any] = []
            match event:
                case OutputDiscarded():
                    void = event
                case _Text(text, whole):
                    found = source.read(read_partial(text), whole=whole)
                case _Given(output):
                    found = source.read(output, whole=True)
                    if found[: len(given)] != given:
                        void = OutputDiscarded("the output differs from its text")
            if void is not None and given:
                given = []
                yield void
            for value in found[len(given) :]:
                given.append(value)
                yield OutputItem(len(given) - 1, value)


@dataclass(frozen=True, slots=True)
class _Text:
    text: str
    """The text of the output so far."""
    whole: bool
    """Whether the answer is complete."""


@dataclass(frozen=True, slots=True)
class _Given:
    output: JsonValue
    """The output of the completed run."""


_Event: TypeAlias = _Text | _Given | OutputDiscarded


async def _events(chunks: AsyncGenerator[StreamChunk, None], session_id: str) -> AsyncGenerator[_Event, None]:
    """Yield what happens to the output of the session. Chunks of sub-agents are ignored."""
    place: tuple[str, int, int] | None = None
    growing, is_given = GrowingText(), False
    async for chunk in chunks:
        if chunk.agent_id != session_id:
            continue
        at = (chunk.run_id, chunk.step, chunk.attempt)
        match chunk:
            case OutputDeltaChunk():
                if place is not None and place != at:
                    yield OutputDiscarded("the answer was refused")
                if place != at:
                    place, growing = at, GrowingText()
                if growing.add(chunk.delta):
                    yield _Text(growing.text, False)
            case StepCommittedChunk() if place == at:
                yield _Text(growing.text, True)
            case StepDiscardedChunk() | StreamResyncChunk() if place is not None:
                if isinstance(chunk, StreamResyncChunk) or place[1:] == at[1:]:
                    place = None
                    yield OutputDiscarded(chunk.reason)
            case OutputChunk():
                is_given = True
                yield _Given(chunk.output)
    if place is not None and not is_given:
        yield OutputDiscarded("the run ended without an output")


def _partial_type(schema: type[BaseModel]) -> TypeAdapter[Any]:
    """Return the type of a schema's partial objects: its fields, none of which is required. Fields that have arrived
    have the types of the schema."""
    fields: dict[str, Any] = {
        name: Annotated[(info.annotation, Field(validation_alias=info.validation_alias), *info.metadata)]
        for name, info in schema.model_fields.items()
    }
    made: Any = TypedDict
    return TypeAdapter(made(f"Partial{schema.__name__}", fields, total=False))


class _List:
    """A list field of the output. Raises `InvalidInputError` if the schema does not have it."""

    def __init__(self, schema: type[BaseModel] | None, field: str) -> None:
        self._names, self._item = {field}, _JSON
        if schema is None:
            return
        info = schema.model_fields.get(field)
        arguments = () if info is None else get_args(info.annotation)
        if info is None or get_origin(info.annotation) not in (list, tuple, set, frozenset) or not arguments:
            raise InvalidInputError(f"{schema.__name__} has no list {field!r}: name a field such as `list[str]`")
        if isinstance(info.validation_alias, str):
            self._names.add(info.validation_alias)
        self._item = TypeAdapter(arguments[0])

    def read(self, output: JsonValue, *, whole: bool) -> list[Any]:
        """Return the complete elements, up to the first one that is not valid. The last element of an incomplete output
        is complete when the model goes on after it."""
        if not isinstance(output, dict):
            return []
        name = next((name for name in output if name in self._names), None)
        items = output.get(name) if name is not None else None
        if not isinstance(items, list):
            return []
        if not whole and next(reversed(output)) == name:
            items = items[:-1]
        found = []
        for item in items:
            try:
                found.append(self._item.validate_json(dumps(item), by_alias=True, by_name=True))
            except ValidationError:
                break
        return found
