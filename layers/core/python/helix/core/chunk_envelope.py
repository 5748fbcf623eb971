"""The envelope of a chunk: the fields that every chunk has, whatever it says.

Law: only the stream writer and the sequencer fill in the envelope, not the code that creates the chunk.
"""

from __future__ import annotations

import re
from typing import ClassVar

from pydantic import BaseModel, ConfigDict

_FIELD = re.compile(r"\{(\w+)\}")


class ChunkBase(BaseModel):
    """The envelope of every chunk. Fields have their defaults until the stream writer fills them in."""

    # Validators are built at first use: a module that defines agents imports all twenty classes but uses none.
    model_config = ConfigDict(extra="forbid", defer_build=True)

    ui_fields: ClassVar[tuple[str, ...]] = ()
    """The fields that the AI SDK encoder sends as the transient part `data-<type>`. Empty if the encoder sends no such
    part. The encoder in TypeScript has the same table, which is generated."""

    session_id: str = ""
    """The session that wrote the chunk: the root session, or a sub-agent's session, which writes to its root's
    stream."""
    run_id: str = ""
    """The run that wrote the chunk."""
    agent_id: str = ""
    """The session id of the agent that wrote the chunk, equal to `session_id`."""
    agent_type: str = ""
    """The name of the agent that wrote the chunk."""
    step: int = 0
    """The step that the chunk belongs to. 0 for chunks about the run as a whole."""
    attempt: int = 0
    """The number of the attempt at the step. For chunks of a tool call, the number of the call's claim."""
    sequence: int = 0
    """The position of the chunk in the stream: 1, 2, 3, ... without gaps across all runs and sub-agents."""
    timestamp: float = 0.0
    """The time when the writer created the chunk, in Unix seconds."""


class NoticeChunk(ChunkBase):
    """The base of chunks that change no item of a conversation. Every reader shows them by `line` and `ui_fields`, so a new
    subclass needs no code in any reader. The AG-UI encoder sends all fields as `CUSTOM helix.<type>` if there are
    `ui_fields`."""

    line: ClassVar[str] = ""
    """The line that people see: a template in which `{name}` is replaced by the text or integer of that field. Empty if
    people see nothing."""

    def words(self) -> str:
        """Return `line` with the values of the fields. A field without a value leaves its place empty."""
        values = {name: getattr(self, name) for name in _FIELD.findall(self.line)}
        return self.line.format_map({name: "" if value is None else value for name, value in values.items()})
