"""Compact forms of values that every row repeats, because each step writes them and the store bills by the byte.

Law: `expand` reverses `shorten`, even if single fields were updated in between. It also accepts rows that were written
in full.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from functools import lru_cache
from typing import Annotated, Any, get_args

from pydantic import BeforeValidator, PlainSerializer

from helix.core.files import FileKind, FilePart
from helix.core.row_keys import checkpoint_id, turn_of
from helix.core.usage import Usage

FIELDS = (
    "prompt_tokens",
    "completion_tokens",
    "cost_micros",
    "calls",
    "reasoning_tokens",
    "cached_tokens",
    "unknown_calls",
    "written_tokens",
    "lost_tokens",
)
HERE = "~"
REMEMBERED = 256
"""The number of ids whose short forms are cached. Every write of a session uses the same ids."""


def _numbers(usage: Usage) -> list[int | bool]:
    """Return the numbers without trailing zeros. A final `False` means that a price was unknown."""
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


FILE = ("sha256", "media_type", "kind", "size", "name", "after_text", "width", "height", "pages")
"""The fields of a stored file, in the order of its short form."""
KINDS: tuple[str, ...] = get_args(FileKind)


def shorten_file(file: dict[str, Any]) -> list[Any] | dict[str, Any]:
    """Return the short form of a stored file, which has half the length: its values in the order of `FILE`, up to the
    last one that it has. The hash is base64url, the kind is its number, and the type omits the kind that it begins
    with. A file at a URL is returned unchanged."""
    if "sha256" not in file:
        return file
    values = [file.get(name) for name in FILE]
    digest = base64.urlsafe_b64encode(bytes.fromhex(file["sha256"])).decode().rstrip("=")
    values[:3] = digest, file["media_type"].removeprefix(f"{file['kind']}/"), KINDS.index(file["kind"])
    while values[-1] is None:
        values.pop()
    return values


def expand_file(value: Any) -> Any:
    """Return the fields of a file in its short form. Raises `ValueError`, as pydantic expects, if they are not there."""
    if not isinstance(value, list):
        return value
    file = {name: found for name, found in zip(FILE, value, strict=False) if found is not None}
    match value:
        case [str(digest), str(media_type), int(number), *_] if 0 <= number < len(KINDS):
            kind = KINDS[number]
            sha256 = base64.b64decode(f"{digest}=", altchars=b"-_", validate=True).hex()
            return file | {
                "sha256": sha256,
                "media_type": media_type if "/" in media_type else f"{kind}/{media_type}",
                "kind": kind,
            }
    raise ValueError("the short form of a file begins with its hash, its type and the number of its kind")


def _file(file: FilePart) -> list[Any] | dict[str, Any]:
    return shorten_file(file.model_dump(mode="json", exclude_defaults=True))


StoredFile = Annotated[FilePart, BeforeValidator(expand_file), PlainSerializer(_file, when_used="json")]


def shorten_session(value: dict[str, Any]) -> dict[str, Any]:
    """Remove the fields of a session row that its key or other fields imply: its own stream, the run of its claim and
    open step, its first state, and a total usage equal to the run's. Also remove those of a claim that has ended.
    Single-field updates, such as incrementing the version, never touch the fields that imply them."""
    session_id = value.pop("session_id")
    if value["stream_id"] == session_id:
        del value["stream_id"]
    if "claim" not in value:
        value.pop("head", None)
        value.pop("output_limit", None)
    _shorten_turn(value)
    _shorten_ids(session_id, value)
    if "usage" in value and value["usage"] == value.get("run_usage"):
        del value["usage"]
    for name in ("claim", "open"):
        part = value.get(name)
        if part is not None and part["run_id"] == value["run_id"]:
            del part["run_id"]
    return value


def expand_session(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    session_id = value["session_id"]
    value = _with_turn({"stream_id": session_id, **value})
    _expand_ids(session_id, value)
    if "run_usage" in value:
        value.setdefault("usage", value["run_usage"])
    for name in ("claim", "open"):
        if isinstance(value.get(name), dict):
            value[name] = {"run_id": value.get("run_id"), **value[name]}
    return value


def shorten_run(value: dict[str, Any]) -> dict[str, Any]:
    """Remove the fields of a run row that its key implies, and shorten the files of its input."""
    session_id = value.pop("session_id")
    _map_files(value, shorten_file)
    _shorten_turn(value)
    _shorten_ids(session_id, value)
    del value["run_id"]
    return value


def expand_run(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    value = _with_turn(value)
    _expand_ids(value["session_id"], value)
    _map_files(value, expand_file)
    return value


def _map_files(value: dict[str, Any], change: Callable[[Any], Any]) -> None:
    """Change each file in the input of a run row. The input is copied, because the row may share it."""
    given = value.get("input")
    if isinstance(given, dict) and isinstance(files := given.get("files"), list):
        value["input"] = {**given, "files": [change(file) for file in files]}


def shorten_checkpoint(value: dict[str, Any]) -> dict[str, Any]:
    """Remove the id of a checkpoint row, which its key and fields imply. Also remove `state_at` if it equals the id."""
    ident = value["id"]
    session_id = _session_of(ident)
    _shorten_turn(value)
    if value["state_at"] == ident:
        del value["state_at"]
    else:
        value["state_at"] = shorten_checkpoint_id(session_id, value["state_at"])
    if ident.rpartition("-")[0] == _ident(session_id, 0, value).rpartition("-")[0]:
        del value["id"]
    return value


def expand_checkpoint(value: Any) -> Any:
    """Restore a checkpoint row. `place` is the session and the version in the row's key."""
    if not isinstance(value, dict):
        return value
    value = _with_turn(value)
    if "id" not in value:
        session_id, version = value["place"]
        value["id"] = _ident(session_id, version, value)
    ident = value["id"]
    state_at = value.get("state_at", ident)
    value["state_at"] = expand_checkpoint_id(_session_of(ident), state_at) if isinstance(state_at, str) else state_at
    return value


@lru_cache(REMEMBERED)
def shorten_checkpoint_id(session_id: str, ident: str) -> str:
    """Return `~<step>-<ms>-<version>` for the id of one of the session's checkpoints. Other ids are returned
    unchanged."""
    prefix = _prefix(session_id)
    if not ident.startswith(prefix):
        return ident
    found = _TAIL.fullmatch(ident, len(prefix))
    short = HERE + ("-".join(found.groups()) if found is not None else ident[len(prefix) :])
    return short if expand_checkpoint_id(session_id, short) == ident else ident


@lru_cache(REMEMBERED)
def expand_checkpoint_id(session_id: str, ident: str) -> str:
    """Return the full id. Also accepts the longer `~` form that earlier versions wrote."""
    if not ident.startswith(HERE):
        return ident
    found = _SHORT.fullmatch(ident)
    tail = f"s{found[1]}-t{found[2]}-{found[3]:0>6}" if found is not None else ident[len(HERE) :]
    return _prefix(session_id) + tail


_IDS = {"checkpoint", "state_at", "start_state_at"}
_MADE = {"state_at": "created_at", "start_state_at": "started_at"}
"""The field with the time of the session's first checkpoint, if the checkpoint was created together with the row. That
checkpoint's id is stored as just `~`."""
_TAIL = re.compile(r"s(\d+)-t(\d+)-0*([0-9a-f]+)", re.ASCII)
_SHORT = re.compile(rf"{HERE}(\d+)-(\d+)-([0-9a-f]+)", re.ASCII)


@lru_cache(REMEMBERED)
def _first(session_id: str, made_at: float) -> str:
    """Return the id that the session's first checkpoint has if it was created at that time."""
    return checkpoint_id(session_id, 0, made_at, 1)


def _shorten_ids(session_id: str, value: dict[str, Any]) -> None:
    for name in _IDS & value.keys():
        made_at = value.get(_MADE.get(name, ""), 0)
        first = name in _MADE and value[name] == _first(session_id, made_at)
        value[name] = HERE if first else shorten_checkpoint_id(session_id, value[name])


def _expand_ids(session_id: str, value: dict[str, Any]) -> None:
    for name in _IDS & value.keys():
        ident = value[name]
        if ident == HERE:
            value[name] = _first(session_id, value.get(_MADE[name], 0))
        elif isinstance(ident, str):
            value[name] = expand_checkpoint_id(session_id, ident)


def _shorten_turn(value: dict[str, Any]) -> None:
    if turn_of(value["run_id"]) == value["turn"]:
        del value["turn"]


def _with_turn(value: dict[str, Any]) -> dict[str, Any]:
    """Return a copy of the row. A missing turn is taken from the run's id."""
    turn = turn_of(value["run_id"]) if "turn" not in value else None
    return {**value, "turn": turn} if turn is not None else {**value}


def _ident(session_id: str, version: int, value: dict[str, Any]) -> str:
    return checkpoint_id(session_id, value.get("step", 0), value.get("created_at", 0), version)


def _prefix(session_id: str) -> str:
    return f"cpv1-{session_id}-"


def _session_of(checkpoint: str) -> str:
    """Return the session id within a checkpoint's id. The session id may contain any characters."""
    return checkpoint.rsplit("-", 3)[0].removeprefix("cpv1-")
