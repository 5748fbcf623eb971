"""The tools that a front end declares for one run, and whose calls it answers (docs/guide/front-ends.md#tools-of-the-page).

Law: this module knows no agents, so clients can use it. `core.declared_tools` checks a declaration.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pydantic import ConfigDict, Field

from helix.core.errors import InvalidInputError
from helix.core.json import JsonObject
from helix.core.messages import Record

MAX_FRONTEND_TOOLS: Final = 32
"""The maximum number of tools that one run may declare."""
MAX_FRONTEND_TOOL_BYTES: Final = 32_000
"""The maximum size of the declared tools of one run together, in bytes of JSON."""


class FrontendToolError(InvalidInputError):
    """Raised if a run declares a tool that its agent does not accept, or that is not valid."""

    code = "invalid_frontend_tool"


class FrontendTool(Record):
    """A tool that the caller of a run executes itself, for this run only."""

    model_config = ConfigDict(extra="forbid")

    name: str
    """The name by which the model calls the tool, `[A-Za-z0-9_-]{1,64}`. The agent must not have a tool of this name."""
    description: str = ""
    """The text that tells the model what the tool does."""
    parameters: JsonObject = Field(default_factory=dict)
    """The JSON schema of the arguments, which are an object. Empty for a tool without arguments."""


GivenTool = FrontendTool | Mapping[str, Any]
