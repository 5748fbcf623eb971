"""Builds the prompt of a model call: the system prompt and history. Every tool call has exactly one result, as all
providers require."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from helix.core.agents import AnyAgent
from helix.core.json import JsonObject, dumps
from helix.core.messages import AnyMessage, AssistantMessage, SystemMessage, ToolResultMessage, UserMessage
from helix.core.server_tools import is_paused
from helix.core.steps import StopReason
from helix.core.tools import AnyTool
from helix.core.verdicts import GUARDS, WITHHELD, Verdict, describe_change, refusal, replacement

FINISH_NUDGE = "Give your final answer now by calling the tool __finish__ with all required fields."
NOT_EXECUTED = {"status": "not_executed", "reason": "the run ended before this call was started"}
NOT_ANSWERED = {
    "status": "not_answered",
    "reason": "the tool asked the user a question, and the run ended before it went on",
}
UNKNOWN = {"status": "unknown", "reason": "the call was started, but its outcome was lost; it may have taken effect"}
CRASHED = "tool_crashed"
UNANSWERED = "[The message before was not answered.]"
STOPPED = "[The user stopped this answer here.]"
"""The note after an answer that an interrupt cut off, if a user's message follows."""
GO_ON = "[This answer was cut off here. Go on where it ended.]"
"""The note after such an answer if the run was resumed without a message."""
BY_GUARD = "guard:"
"""The beginning of `Edit.by` for arguments that a guard replaced."""


def crashed_result(tool_name: str, deaths: int) -> JsonObject:
    """Return the result of a call whose worker process died in every one of its `deaths` executions."""
    cause = f"tool {tool_name!r} was started {deaths} times, and its process died each time"
    return {"error": f"{cause}: it is not started again, and it may have taken effect", "code": CRASHED}


def build_effective_tools(agent: AnyAgent, declared: Mapping[str, AnyTool] | None = None) -> list[AnyTool]:
    """Return the agent's tools in the order of the definition, then `__finish__`, then the `declared` ones whose name the
    agent does not use. A stable order preserves provider prompt cache hits."""
    finish = agent.finish_tool
    own = [*agent.tools, finish] if finish is not None else list(agent.tools)
    return own + [tool for name, tool in (declared or {}).items() if agent.find_tool(name) is None]


def resolve_system_prompt(system_prompt: str | Callable[[Any], str], state: Any) -> str:
    return system_prompt if isinstance(system_prompt, str) else system_prompt(state)


def build_messages_for_llm(
    messages: Sequence[AnyMessage],
    system_prompt: str | Callable[[Any], str],
    custom_state: Any = None,
    *,
    force_finish: bool = False,
    paired: bool = False,
) -> list[AnyMessage]:
    """Return the system message followed by the history, with call/result pairs repaired and argument edits noted.

    `paired`: the pairs are known to be complete. `force_finish` appends a request to finish, which is not stored,
    unless the last message is a user message. The arguments are not modified.
    """
    prompt = resolve_system_prompt(system_prompt, custom_state)
    built: list[AnyMessage] = [SystemMessage(content=prompt)] if prompt else []
    built.extend(note_cuts(messages if paired else show_changes(repair_pairs(messages))))
    return [*built, *request_end(built, "", finish=force_finish)]


def note_cuts(messages: Sequence[AnyMessage]) -> list[AnyMessage]:
    """Return the messages with a note of the user after each answer that an interrupt cut off. A user's note keeps the
    turns apart, and the last one from being an answer, which some models refuse to continue."""
    noted: list[AnyMessage] = []
    for place, message in enumerate(messages):
        noted.append(message)
        if is_cut(message):
            follows = place + 1 < len(messages) and isinstance(messages[place + 1], UserMessage)
            noted.append(UserMessage(content=STOPPED if follows else GO_ON))
    return noted


def is_cut(message: AnyMessage) -> bool:
    """Return whether an interrupt cut the answer off."""
    return isinstance(message, AssistantMessage) and message.metadata.get("stop_reason") == StopReason.INTERRUPTED


def request_end(messages: Sequence[AnyMessage], reminder: str, *, finish: bool) -> list[UserMessage]:
    """Return the messages that follow the history in one request and are not stored: the agent's reminder, and a request
    to finish, unless the last message is a user's. None follow an answer that the provider goes on with."""
    if messages and is_paused(messages[-1]):
        return []
    texts = [reminder] if reminder else []
    if finish and messages and messages[-1].role in ("assistant", "tool"):
        texts.append(FINISH_NUDGE)
    return [UserMessage(content=text) for text in texts]


def is_changed(message: AnyMessage) -> bool:
    """Return whether the model sees this message, or a user's message before it, otherwise than it is stored."""
    match message:
        case ToolResultMessage():
            return "edited" in message.metadata
        case AssistantMessage():
            return GUARDS in message.metadata
        case _:
            return False


def show_changes(messages: Sequence[AnyMessage], places: Iterable[int] | None = None) -> list[AnyMessage]:
    """Return the messages as the model sees them: with a note if the arguments of a call were edited, and with what
    guards replaced or withheld. `places`: the indexes of messages that are changed. None: all may be."""
    shown = list(messages)
    for place in range(len(shown)) if places is None else places:
        message = shown[place]
        if isinstance(message, ToolResultMessage):
            shown[place] = _edit_shown(message)
        elif isinstance(message, AssistantMessage) and GUARDS in message.metadata:
            _show_verdicts(shown, place, message)
    return shown


def _edit_shown(message: ToolResultMessage) -> ToolResultMessage:
    """Return the result, with a note if the arguments of its call were edited. The answer with the call remains as the
    model wrote it."""
    if not isinstance(edited := message.metadata.get("edited"), dict):
        return message
    who = "guard" if str(edited.get("by")).startswith(BY_GUARD) else "person"
    note = f"\n[A {who} changed the arguments of this call before it was executed: {dumps(edited.get('arguments'))}]"
    return message.model_copy(update={"content": message.content + note})


def _show_verdicts(shown: list[AnyMessage], place: int, answer: AssistantMessage) -> None:
    """Apply the verdicts of this answer to the user's messages before it. A refused answer without calls becomes a note,
    because no provider takes an empty answer."""
    found = answer.metadata.get(GUARDS)
    verdicts = [Verdict.model_validate(one) for one in found] if isinstance(found, list) else []
    for before in range(place - 1, -1, -1):
        message = shown[before]
        if isinstance(message, AssistantMessage):
            break
        if isinstance(message, UserMessage) and message.id:
            shown[before] = show_input(message, verdicts)
    if (refused := refusal(verdicts, "output")) is not None and not answer.tool_calls:
        shown[place] = UserMessage(content=f"[{describe_change(refused)}. Answer again.]", metadata=answer.metadata)
    elif not answer.content and not answer.tool_calls:  # the run ended because an input was blocked
        shown[place] = UserMessage(content=UNANSWERED, metadata=answer.metadata)


def index_of(message: UserMessage) -> str:
    """Return the message's index in history, which is the same in a copy of the session. Empty if it is not stored."""
    return message.id.rpartition("_")[2]


def show_input(message: UserMessage, verdicts: Sequence[Verdict]) -> UserMessage:
    """Return the user's message as guards let it pass. A blocked message loses its text and its files."""
    index = index_of(message)
    if (blocked := refusal(verdicts, "input", index)) is not None:
        text = f"[{describe_change(blocked)}]" if blocked.to == "model" else WITHHELD
        return message.model_copy(update={"content": text, "files": []})
    replaced = replacement(verdicts, "input", index)
    return message if replaced is None else message.model_copy(update={"content": str(replaced.value)})


def repair_pairs(messages: Sequence[AnyMessage]) -> list[AnyMessage]:
    """Return the messages with exactly one result for every call, directly after its assistant message and in call
    order.

    A missing result becomes `not_executed`. Results without a call and duplicate results are dropped.
    """
    if _paired(messages):
        return list(messages)
    results: dict[str, ToolResultMessage] = {}
    for message in messages:
        if isinstance(message, ToolResultMessage):
            results.setdefault(message.tool_call_id, message)
    repaired: list[AnyMessage] = []
    for message in messages:
        if isinstance(message, ToolResultMessage):
            continue
        repaired.append(message)
        if isinstance(message, AssistantMessage):
            for call in message.tool_calls:
                missing = ToolResultMessage(
                    tool_call_id=call.id, tool_name=call.name, content=dumps(NOT_EXECUTED), success=False
                )
                repaired.append(results.pop(call.id, missing))
    return repaired


def _paired(messages: Sequence[AnyMessage]) -> bool:
    expected: list[str] = []
    for message in messages:
        if isinstance(message, ToolResultMessage):
            if not expected or message.tool_call_id != expected.pop(0):
                return False
        elif expected:
            return False
        elif isinstance(message, AssistantMessage):
            expected = [call.id for call in message.tool_calls]
    return not expected
