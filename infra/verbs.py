"""The functions of a stage, as tables. This module does not import CDK, which takes seconds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from helix.infra.config import Settings


@dataclass(frozen=True, slots=True)
class Size:
    """The timeout and the memory of a verb's function."""

    timeout_s: int
    """The timeout of one invocation, in seconds. Lambda's own limit is 900."""
    memory_mb: int = 512
    """The memory in MB. Lambda allocates CPU in proportion to it: 1,769 MB correspond to one vCPU."""


SIZES: Mapping[str, Size] = {
    "call_model": Size(900, 1024),
    "call_tool": Size(900),
    "start_run": Size(60),
    "finish_run": Size(60),
    "fail_run": Size(60),
    "sweep": Size(60),
    "project_stream": Size(60),
    # API Gateway waits at most 29 s for an integration.
    "ws_authorize": Size(29),
    "ws_connect": Size(29),
    "ws_disconnect": Size(29),
    "ws_message": Size(29),
    "govern": Size(60),
    "health": Size(10, 256),
}
TRIGGER_SIZES: Mapping[str, Size] = {
    "start_triggered": Size(30),
    "serve_http": Size(30),  # API Gateway waits this long
}
"""The sizes of functions that only a stage with triggers has."""
CONSOLE_SIZES: Mapping[str, Size] = {"serve_console": Size(10, 256)}
"""The size of the function that only a stage with console=http has."""
WITHOUT_LITELLM_MB = {"call_model": 512}
"""The memory of functions without litellm, in MB. Importing litellm must fit into Lambda's init limit of 10 seconds, and
more memory means more CPU. Without litellm, `call_model` does not need more memory than the others
(docs/adr/0027-memory-by-measurement.md)."""
WITHOUT_AGENTS = ("ws_authorize", "ws_connect", "ws_disconnect", "project_stream", "health", "serve_console")
"""The verbs that do not import the project's modules, and so do not need its environment variables."""
PROFILE_VERBS = ("call_model", "call_tool")
"""The verbs that execute agents. Each profile has functions of its own for them."""
SHARED_VERBS = tuple(verb for verb in SIZES if verb not in PROFILE_VERBS)
"""The verbs whose functions exist once per stage."""


def size_of(verb: str) -> Size:
    return {**SIZES, **TRIGGER_SIZES, **CONSOLE_SIZES}[verb]


def memory_of(verb: str, settings: Settings, profile_mb: int = 0, tools_mb: int = 0) -> int:
    """Return the memory of a function in MB. `profile_mb`: the memory that the agent's resources request. `tools_mb`: the
    memory that the project declares for executing tools; `call_tool` gets exactly this. 0 requests nothing."""
    if verb == "call_tool" and tools_mb:
        return tools_mb
    return max(profile_mb, tools_mb, _own_memory(verb, settings))


def _own_memory(verb: str, settings: Settings) -> int:
    if "litellm" not in settings.calling and verb in WITHOUT_LITELLM_MB:
        return WITHOUT_LITELLM_MB[verb]
    return size_of(verb).memory_mb
