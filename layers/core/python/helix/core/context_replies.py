"""The context of a step: the messages that the model was shown, and how they differ from the history."""

from __future__ import annotations

from helix.core.messages import Message, Record
from helix.core.request_heads import RequestHead
from helix.core.usage import Usage
from helix.core.view_row import ViewCause


class ViewFound(Record):
    """The view of a history that a model was shown, and its cost."""

    cause: ViewCause
    """Why the view was made: by the agent's policy, because the provider refused the prompt as too long, or because a
    person asked for a summary."""
    run_id: str
    """The run that made the view."""
    step: int
    """The step for which the view was made."""
    tokens: int
    """The estimated length of the prompt before the change, in tokens."""
    created_at: float
    """The time when the view was made, in Unix seconds."""
    model: str | None
    """The model that wrote the summary. None if no model was called, or if the session is a copy and its original paid
    for the call."""
    usage: Usage
    """The usage of that call. Zero without `model`."""


class ContextFound(Record):
    """The result of `get_context`: what the model was shown at a step."""

    session_id: str
    """The requested session."""
    step: int
    """The number of the step."""
    run_id: str | None
    """The run that bought the step. None for the next step, which is not bought yet."""
    model: str | None = None
    """The model that answered, or the model of the last attempt at a step without an answer. None if it is not known."""
    output_limit: int | None = None
    """The maximum number of tokens in the answer, if budgets set it. None: `request.settings` has the agent's limit, if
    any."""
    head: str | None = None
    """The id of the recorded request head of the step: of its answer, or else of its last attempt. None for
    a step that has not been attempted, and for steps of earlier versions."""
    request: RequestHead | None = None
    """The recorded request head: the system prompt, the tools and the settings as they were sent. None without
    `head`, or if the head is missing from the store."""
    system_prompt: str | None
    """The system prompt that was sent. Without a recorded head it is the agent's present prompt, or None if that depends
    on the custom state, or if the agent is not known here."""
    messages: list[Message]
    """The messages as they were shown, oldest first. If earlier ones are hidden, the first message replaces them."""
    count: int
    """The number of messages in the history before the step."""
    hidden: int
    """The number of messages at the beginning of the history that are not shown."""
    cleared: list[int]
    """The indexes in the history of the tool results that a note replaces."""
    summary: str
    """The summary of the hidden messages. Empty without a summary."""
    view: ViewFound | None
    """The view. None: the whole history is shown."""
