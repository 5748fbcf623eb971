"""The scenes of `helix check --live`, in the order in which they are played."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from helix.cli.cloud import checks
from helix.cli.cloud.live import interfaces, scenes
from helix.cli.cloud.live.scenes import Scene

Group = Mapping[str, Scene]
"""Scenes that are played concurrently."""
FIRST: Sequence[Group] = (
    {"a connection": checks.connection},
    {
        "a tool of 40 s": scenes.long_tool,
        "a tool that dies": scenes.tool_dies,
        "a tool that dies and must not be repeated": scenes.tool_dies_once,
        "a model call that dies": scenes.model_dies,
        "the minute": interfaces.minute,
        "a provider that refuses": scenes.provider_refuses,
        "a line of runs": scenes.queue,
        "text while the model speaks": scenes.live_text,
        "a reader that returns": scenes.reader_returns,
        "a message of 40 KB": checks.message,
        "an answer of 500 KB": scenes.large_answer,
        "a step with 40 calls": checks.calls,
        "a user's file": scenes.user_file,
        "a tool's file": scenes.tool_file,
        "an interrupt": checks.interrupt,
        "an execution that is stopped": checks.stop,
        "an approval with other arguments": scenes.approval,
        "a denial": scenes.denial,
        "a sub-agent": scenes.sub_agent,
        "an inline tool": scenes.inline_tool,
        "a model's key that rotates": scenes.key_rotates,
        "a budget": scenes.budget,
        "an alarm": interfaces.alarm,
        "a branch": scenes.branch,
        "a request that comes twice": scenes.same_key,
        "a queue's message": interfaces.trigger,
        "a run over HTTP": interfaces.http,
        "the console": interfaces.console,
        "health": interfaces.health,
    },
    {"Lambda that refuses": scenes.lambda_refuses},
)
"""The groups of scenes on a stage with Kinesis."""
SECOND: Sequence[Group] = (
    {"no Kinesis": interfaces.no_kinesis, "a connection, again": checks.connection},
    {
        "a tool that dies, without Kinesis": scenes.tool_dies,
        "text while the model speaks, without Kinesis": scenes.live_text,
        "a reader that returns, without Kinesis": scenes.reader_returns,
    },
    {"deleted sessions": checks.delete},
)
"""The groups of scenes on a stage without Kinesis."""
PLAYED = sum(map(len, (*FIRST, *SECOND))) + 3
"""The total number of scenes, including the upgrade and the end of both stages."""
