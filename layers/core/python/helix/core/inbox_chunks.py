"""The chunk about a message that waits for a run (`core.inbox`)."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from helix.core.chunk_envelope import ChunkBase
from helix.core.files import FilePart

WaitMode = Literal["steer", "queue", "interrupt"]
"""The delivery of a message that waits for the run that works. `steer`: the run's next model call sees it. `queue`: it
gets a turn of its own once the run has ended. `interrupt`: it stops the run, and then gets a turn of its own."""


class MessageQueuedChunk(ChunkBase):
    """The fate of a message that waits for a run: it waits, it was delivered at this point, or it was withdrawn.

    Readers keep the last state of each `queued_id`. A repeated or late chunk changes nothing after `delivered` or
    `withdrawn`.
    """

    type: Literal["message_queued"] = "message_queued"
    """The tag of this chunk on the wire."""
    ui_fields = ("queued_id", "state", "mode", "content", "files", "message_id")

    queued_id: str
    """The id of the message in the session's `inbox`."""
    state: Literal["waiting", "delivered", "withdrawn"]
    """The state of the message. `delivered`: the conversation has it from here on."""
    mode: WaitMode | None = None
    """The delivery that the message waits for. A delivered message has `steer` if it joined a run, and None if it has a
    run of its own. None for `withdrawn`."""
    content: str = ""
    """The text of the message. Empty for `withdrawn`."""
    files: list[FilePart] = Field(default_factory=list)
    """The files of the message. Empty for `withdrawn`."""
    message_id: str | None = None
    """The id that the sender's page gave the message. None if it gave none, and for `withdrawn`."""
