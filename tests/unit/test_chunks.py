"""The chunk types: their union, type guards and schema."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError
from tests.support.chunk_samples import CHUNKS

from helix.core import chunks
from helix.core.chunk_envelope import ChunkBase, NoticeChunk
from helix.core.chunks import CHUNK_CLASSES, CHUNK_TYPES, KnownChunk, UnknownChunk, chunk_json_schema, parse_chunk
from helix.core.errors import InvalidInputError
from helix.core.wire import StreamMessage, is_stream_end

FIELDS: dict[str, dict[str, Any]] = {
    kind: chunk.model_dump(mode="json", exclude={"type", *ChunkBase.model_fields})
    for kind, (_, chunk) in CHUNKS.items()
    if kind != "unknown"
}
"""The own fields of each chunk type."""
ENVELOPE = {
    "session_id": "s",
    "run_id": "r",
    "agent_id": "s",
    "agent_type": "a",
    "step": 1,
    "attempt": 2,
    "sequence": 3,
    "timestamp": 4.5,
}
GUARDS: dict[str, Callable[[ChunkBase], bool]] = {
    "text_delta": chunks.is_text_delta_chunk,
    "thinking": chunks.is_thinking_chunk,
    "tool_start": chunks.is_tool_start_chunk,
    "tool_end": chunks.is_tool_end_chunk,
    "subagent_start": chunks.is_sub_agent_start_chunk,
    "subagent_end": chunks.is_sub_agent_end_chunk,
    "custom": chunks.is_custom_event_chunk,
    "state_patch": chunks.is_state_patch_chunk,
    "error": chunks.is_error_chunk,
    "output": chunks.is_output_chunk,
    "run_interrupted": chunks.is_run_interrupted_chunk,
    "run_resumed": chunks.is_run_resumed_chunk,
    "checkpoint_created": chunks.is_checkpoint_created_chunk,
}


def test_each_type_has_a_sample() -> None:
    assert set(FIELDS) == CHUNK_TYPES and all(FIELDS.values())
    of_the_module = {cls for cls in vars(chunks).values() if isinstance(cls, type) and issubclass(cls, ChunkBase)}
    assert of_the_module - {ChunkBase, NoticeChunk, UnknownChunk} == set(CHUNK_CLASSES.values())


@pytest.mark.parametrize("kind", sorted(FIELDS))
def test_each_goes_round(kind: str) -> None:
    data = {"type": kind, **ENVELOPE, **FIELDS[kind]}
    chunk = parse_chunk(data)
    assert type(chunk) is CHUNK_CLASSES[kind] and chunk.type == kind
    assert parse_chunk(json.loads(chunk.model_dump_json())) == chunk
    union: TypeAdapter[Any] = TypeAdapter(KnownChunk)
    assert union.validate_python(data) == chunk
    assert {name: getattr(chunk, name) for name in ENVELOPE} == ENVELOPE


@pytest.mark.parametrize("kind", sorted(FIELDS))
def test_guards_know_their_own(kind: str) -> None:
    chunk = parse_chunk({"type": kind, **FIELDS[kind]})
    assert [name for name, guard in GUARDS.items() if guard(chunk)] == ([kind] if kind in GUARDS else [])


@pytest.mark.parametrize("kind", sorted(FIELDS))
def test_a_writer_misspells_no_field_and_a_reader_takes_those_of_later_versions(kind: str) -> None:
    with pytest.raises(ValidationError):
        CHUNK_CLASSES[kind](**FIELDS[kind], sesion_id="x")  # type: ignore[call-arg]
    known = parse_chunk({"type": kind, **FIELDS[kind]})
    assert parse_chunk({"type": kind, **FIELDS[kind], "from_the_future": {"x": 1}}) == known


def test_unknown_types_pass_through() -> None:
    data = {"type": "hologram", "session_id": "s", "depth": {"z": 1}}
    chunk = parse_chunk(data)
    assert isinstance(chunk, UnknownChunk) and chunk.model_dump(exclude_defaults=True) == data
    assert not any(guard(chunk) for guard in GUARDS.values())
    message = StreamMessage(stream_id="s", session_id="s", run_id="r", sequence=7, kind="chunk", chunk=data)
    assert message.parsed().sequence == 7 and message.parsed().type == "hologram"


@pytest.mark.parametrize("wrong", [None, 5, [], {}, {"type": 5}, {"type": None}, "text_delta"])
def test_what_is_no_chunk_is_refused(wrong: Any) -> None:
    with pytest.raises(InvalidInputError):
        parse_chunk(wrong)


def test_the_schema_names_every_type() -> None:
    schema = chunk_json_schema()
    assert set(schema["discriminator"]["mapping"]) == CHUNK_TYPES
    json.dumps(schema)
    for name, definition in schema["$defs"].items():
        if "type" in definition.get("properties", {}):
            assert set(ENVELOPE) < set(definition["properties"]), name
    assert chunk_json_schema() == schema


def test_ends_are_told_apart_from_chunks() -> None:
    ends = [
        is_stream_end(StreamMessage(stream_id="s", session_id="s", run_id="r", sequence=1, kind=kind))
        for kind in ("chunk", "end", "fail", "paused")
    ]
    assert ends == [False, True, True, True]


def test_the_envelope_is_not_required_of_who_makes_a_chunk() -> None:
    assert all(field.default is not None for field in ChunkBase.model_fields.values())
