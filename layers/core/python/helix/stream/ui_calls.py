"""The tool calls of a page that shows the AI SDK's messages."""

from __future__ import annotations

from dataclasses import dataclass

from helix.core.conversation.items import Call, Question
from helix.core.json import JsonObject


@dataclass
class ShownCall:
    """A tool call as the page shows it."""

    call: Call
    """The call."""
    input: JsonObject
    """The arguments as last shown. A person may have edited them."""
    asked: Question | None = None
    """The kind of response that the page is asked for. None if it is not asked for one."""
    requested: bool = False
    """Whether its part shows an approval request."""
    done: bool = False
    """Whether its part shows a result."""
    child: bool = False
    """Whether the call started a sub-agent."""
