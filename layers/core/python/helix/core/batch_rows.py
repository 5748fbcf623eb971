"""The rows of model calls that wait for a provider's batch (docs/protocol.md#batches).

Law: a call is in at most one batch at a time. A conditional write puts it there before the batch is sent, and only the
end of that batch takes it out again.
"""

from __future__ import annotations

from typing import Literal

from helix.core.json import JsonObject
from helix.core.rows import ErrorInfo
from helix.core.session_row import StepClaim
from helix.core.stored import Stored


class BatchQueue(Stored):
    """A queue of calls that may share a batch: calls of one agent to one model at one address."""

    agent: str
    """The name of the agent that makes the calls. Its adapter sends the batches."""
    place: JsonObject
    """The model, interface and address of the calls, as the adapter describes them. It has no credentials."""


class BatchedCall(Stored):
    """A model call that waits for a batch. Its request is in a row of its own until the call has an answer."""

    session_id: str
    """The session of the call."""
    created_at: float
    """The time when that session was created (Unix seconds). It tells it from a later session with the same id."""
    agent_type: str
    """The name of the session's own agent."""
    claim: StepClaim
    """The claim of the step, as in the session's row."""
    head: str = ""
    """The id of the request head."""
    output_limit: int | None = None
    """The output limit that budgets set, in tokens. None: they set none."""
    user_id: str | None = None
    """The user who owns the session. None: it has no user."""
    put_at: float
    """The time when the call began to wait (Unix seconds)."""
    due_at: float
    """The time from which the call may be sent (Unix seconds)."""
    size: int
    """The length of the request in bytes of JSON."""
    tries: int = 1
    """The number of batches that the call may still be sent in."""
    batch: str | None = None
    """The name of the batch that the call is in. None: it waits for the next one."""
    answer: JsonObject | None = None
    """The provider's answer. None: there is none yet."""
    error: ErrorInfo | None = None
    """The reason why the call failed. None: it has not failed."""
    ended: bool = False
    """Whether the call has an answer or has failed. The run then continues."""


class Batch(Stored):
    """A batch of calls, from the decision to send it until all its calls have ended."""

    state: Literal["gathering", "sending", "sent"] = "gathering"
    """The progress. `gathering`: calls are put into it. `sending`: it may or may not have reached the provider. `sent`: the
    provider has it under `provider_id`."""
    attempts: int = 0
    """The number of times that the sending began. If it is not 0, the provider may have the batch."""
    begun_at: float
    """The time of the row (Unix seconds). The provider cannot have the batch since before."""
    provider_id: str = ""
    """The provider's id of the batch. Empty until it is known."""
    owner: str | None = None
    """The worker that looks after the batch. None: none does."""
    until: float | None = None
    """The time until which that worker has the batch to itself (Unix seconds). None: no worker has it."""
    look_at: float = 0
    """The time from which the batch is to be looked at again (Unix seconds)."""
