"""The chunks of an answer: its text, reasoning, output, the calls of the provider's own tools, and its sources."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from helix.core.chunk_envelope import ChunkBase
from helix.core.json import JsonObject, JsonValue


class TextDeltaChunk(ChunkBase):
    """A piece of the model's text."""

    type: Literal["text_delta"] = "text_delta"
    """The tag of this chunk on the wire."""
    delta: str
    """The text to append to the pieces of the same session, step and attempt."""


class ThinkingChunk(ChunkBase):
    """A piece of the model's reasoning, or a whole block of it."""

    type: Literal["thinking"] = "thinking"
    """The tag of this chunk on the wire."""
    content: str
    """The piece, or the text of the whole block."""
    is_complete: bool = False
    """False for a piece. True once for the whole block, which repeats the pieces: do not append it to them."""


class ServerToolChunk(ChunkBase):
    """A call that the provider executes while the model answers. It is sent when the call begins and again with each
    change; the last one replaces the others. It is part of the attempt, like its text."""

    type: Literal["server_tool"] = "server_tool"
    """The tag of this chunk on the wire."""
    tool_call_id: str
    """The provider's id of the call, unique in its answer."""
    tool_name: str
    """The tool: `web_search`, `code_execution`, `file_search`, or `<server>.<tool>` of an MCP server."""
    arguments: JsonObject = Field(default_factory=dict)
    """The arguments of the call. Empty until the model has written them."""
    done: bool = False
    """Whether the call has its result."""
    result: JsonValue = None
    """The result without the provider's encrypted parts. None if it has none yet, or if the provider does not show it."""
    error: str | None = None
    """The error of a call that failed. None otherwise."""


class CitationChunk(ChunkBase):
    """A source of a part of the answer's text."""

    type: Literal["citation"] = "citation"
    """The tag of this chunk on the wire."""
    start: int
    """The index of the first character of the part in the text of the attempt."""
    end: int
    """The index after the last character of the part."""
    url: str | None = None
    """The address of the source. None for a file or a document."""
    title: str | None = None
    """The title of the source, or the name of the file."""
    quote: str | None = None
    """The cited text of the source. None if the provider does not give it."""


class OutputDeltaChunk(ChunkBase):
    """A piece of the structured output, as JSON text."""

    type: Literal["output_delta"] = "output_delta"
    """The tag of this chunk on the wire."""
    delta: str
    """The text to append to the pieces of the same session, step and attempt. The pieces of a whole attempt are the
    arguments of its first `__finish__` call."""


class OutputChunk(ChunkBase):
    """The output of a completed run."""

    type: Literal["output"] = "output"
    """The tag of this chunk on the wire."""
    output: JsonValue
    """The structured output as JSON."""
