"""Short forms of what every row repeats: bytes are written, and billed, at each step.

Law: `expand` of what `shorten` gave is the row; a row that was written in full is read as well.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, PlainSerializer

from helix.core.row_keys import checkpoint_id
from helix.core.usage import Usage

FIELDS = (
    "prompt_tokens",
    "completion_tokens",
    "cost_micros",
    "calls",
    "reasoning_tokens",
    "cached_tokens",
    "unknown_calls",
)
HERE = "~"


def _numbers(usage: Usage) -> list[int | bool]:
    """Up to the last that is not zero; `False` at the end says that a price was not known."""
    numbers: list[int | bool] = [getattr(usage, name) for name in FIELDS]
    while numbers and not numbers[-1]:
        numbers.pop()
    return numbers if usage.priced else [*numbers, False]


def _usage(value: Any) -> Any:
    if not isinstance(value, list):
        return value
    priced = not (value and value[-1] is False)
    return {**dict(zip(FIELDS, value if priced else value[:-1], strict=False)), "priced": priced}


StoredUsage = Annotated[Usage, BeforeValidator(_usage), PlainSerializer(_numbers, when_used="json")]


def shorten_session(value: dict[str, Any]) -> dict[str, Any]:
    """A session row without what its own ids say: the stream is the session's, its run claimed, the checkpoints are its."""
    if value["stream_id"] == value["session_id"]:
        del value["stream_id"]
    for name in ("checkpoint", "state_at"):
        if name in value:
            value[name] = shorten_checkpoint_id(value["session_id"], value[name])
    for name in ("claim", "open"):
        part = value.get(name)
        if part is not None and part["run_id"] == value["run_id"]:
            del part["run_id"]
    return value


def expand_session(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    value = {"stream_id": value.get("session_id"), **value}
    for name in ("checkpoint", "state_at"):
        if isinstance(value.get(name), str):
            value[name] = expand_checkpoint_id(value["session_id"], value[name])
    for name in ("claim", "open"):
        if isinstance(value.get(name), dict):
            value[name] = {"run_id": value.get("run_id"), **value[name]}
    return value


def shorten_checkpoint_id(session_id: str, ident: str) -> str:
    """`~` for all that is the same in the ids of a session's checkpoints."""
    prefix = _prefix(session_id)
    return HERE + ident[len(prefix) :] if ident.startswith(prefix) else ident


def expand_checkpoint_id(session_id: str, ident: str) -> str:
    return _prefix(session_id) + ident[len(HERE) :] if ident.startswith(HERE) else ident


def shorten_run(value: dict[str, Any]) -> dict[str, Any]:
    for name in ("checkpoint", "start_state_at"):
        if name in value:
            value[name] = shorten_checkpoint_id(value["session_id"], value[name])
    return value


def expand_run(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    ids = {name: value[name] for name in ("checkpoint", "start_state_at") if isinstance(value.get(name), str)}
    return {**value, **{name: expand_checkpoint_id(value["session_id"], ident) for name, ident in ids.items()}}


def shorten_checkpoint(value: dict[str, Any]) -> dict[str, Any]:
    """A checkpoint row without its id, which its key and its fields say, and without `state_at` where that is its id."""
    ident, prefix = value["id"], _common(value["id"])
    if value["state_at"] == ident:
        del value["state_at"]
    elif value["state_at"].startswith(prefix):
        value["state_at"] = HERE + value["state_at"][len(prefix) :]
    said = _ident(prefix.removeprefix("cpv1-")[:-1], 0, value)
    if ident.rpartition("-")[0] == said.rpartition("-")[0]:
        del value["id"]
    return value


def expand_checkpoint(value: Any) -> Any:
    """`place`: session and version of the row's key."""
    if not isinstance(value, dict):
        return value
    if "id" not in value:
        session_id, version = value["place"]
        value = {**value, "id": _ident(session_id, version, value)}
    ident = value["id"]
    state_at = value.get("state_at", ident)
    if isinstance(state_at, str) and state_at.startswith(HERE):
        state_at = _common(ident) + state_at[len(HERE) :]
    return {**value, "state_at": state_at}


def _ident(session_id: str, version: int, value: dict[str, Any]) -> str:
    return checkpoint_id(session_id, value.get("step", 0), value.get("created_at", 0), version)


def _prefix(session_id: str) -> str:
    return f"cpv1-{session_id}-"


def _common(checkpoint: str) -> str:
    """`cpv1-<session>-` of a checkpoint's id, whatever is in the session's."""
    return checkpoint.rsplit("-", 3)[0] + "-"
