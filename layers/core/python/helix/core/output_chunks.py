"""The chunks of a run's structured output: its JSON text as the model writes it, and its final value."""

from __future__ import annotations

from typing import Literal

from helix.core.chunk_envelope import ChunkBase
from helix.core.json import JsonValue


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
