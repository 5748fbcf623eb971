"""Merges the state changes of one step's tools. Each tool changed its own copy of the same base state.

Law: the result depends only on the base and the changes in call order, never on which tool finished first.

    appends to one list            concatenated in call order
    changes of different members   all are kept, nested ones too
    one member written twice       the last call wins, with a warning
    a whole and a part of it       the whole wins in any order, with a warning (so replace beats append)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias, cast

from pydantic import Field

from helix.core.errors import InvalidInputError
from helix.core.json import JsonObject, JsonValue
from helix.core.messages import Record
from helix.core.patches import ArrayDeltaMode, apply, diff, json_copy, parts_of, pointer


class Merged(NamedTuple):
    """The result of a merge."""

    state: JsonObject
    """The state after all changes."""
    patches: list[JsonObject]
    """The RFC 6902 operations that turn the base into `state`."""
    warnings: list[str]
    """Human-readable descriptions of conflicts between the changes. Empty if there were none."""


class MergeChanges(Record):
    """Changes of top-level fields of the state, in a form that can be stored."""

    values: JsonObject = Field(default_factory=dict)
    """The new values of the fields, by name. A list is appended to the old list, unless `array_replacements` contains
    its field."""
    array_replacements: list[str] = Field(default_factory=list)
    """The names of the fields whose list replaces the old one."""
    warnings: list[str] = Field(default_factory=list)
    """Warnings to include in the result of the merge."""


@dataclass(frozen=True, slots=True)
class _Set:
    """A change that replaces the old value."""

    value: JsonValue
    """The new value of the member."""


@dataclass(frozen=True, slots=True)
class _Remove:
    pass


@dataclass(frozen=True, slots=True)
class _Append:
    """A change that appends items to a list."""

    items: list[JsonValue]
    """The items to append, in order."""


@dataclass(frozen=True, slots=True)
class _Inside:
    """Changes of the members of an object."""

    members: dict[str, _Change]
    """The changes of the members, by name."""


_Change: TypeAlias = _Set | _Remove | _Append | _Inside
_By: TypeAlias = tuple[int, _Change]
_MISSING: Any = object()


def merge_patches(
    base: JsonObject,
    changes: Sequence[Sequence[Mapping[str, Any]]],
    array_delta_mode: ArrayDeltaMode = "append_only",
) -> Merged:
    """Merge the patches of several tools against `base` into one state, in call order. Warnings number the calls from
    0.

    Raises `InvalidInputError`, naming the call whose patches do not apply to the base.
    """
    trees: list[_By] = []
    for index, patches in enumerate(changes):
        try:
            tree = _tree(base, patches) or _tree(base, diff(base, apply(base, patches), array_delta_mode))
        except InvalidInputError as error:
            raise InvalidInputError(f"call {index}: {error}") from error
        trees.append((index, tree or _Inside({})))
    warnings: list[str] = []
    state = (
        _merge(json_copy(base), trees, (), array_delta_mode == "append_only", warnings) if trees else json_copy(base)
    )
    return Merged(state, diff(base, state, array_delta_mode), warnings)


def merge_custom_state(
    state: JsonObject, changes: MergeChanges, array_delta_mode: ArrayDeltaMode = "append_only"
) -> Merged:
    """Apply `changes` to the top-level fields of `state`. A list is appended to the old list, unless
    `changes.array_replacements` contains its field."""
    after = json_copy(state)
    for key, value in changes.values.items():
        old = after.get(key)
        if isinstance(old, list) and isinstance(value, list) and key not in changes.array_replacements:
            after[key] = old + json_copy(value)
        else:
            after[key] = json_copy(value)
    return Merged(after, diff(state, after, array_delta_mode), list(changes.warnings))


def _tree(base: JsonObject, patches: Sequence[Mapping[str, Any]]) -> _Inside | None:
    """Return the patches as a tree over `base`. None if they go beyond what `diff` produces, such as list indexes,
    moves, or two writes to one path. The caller then applies the patches and computes a new diff."""
    root = _Inside({})
    for patch in patches:
        op, path = (patch.get("op"), patch.get("path")) if isinstance(patch, Mapping) else (None, None)
        if (
            op not in ("add", "replace", "remove")
            or not isinstance(path, str)
            or (op != "remove" and "value" not in patch)
        ):
            return None
        if not (parts := parts_of(path)):
            return None
        *parents, last = parts
        holder = _value_at(base, parents)
        if isinstance(holder, list):
            if op != "add" or last != "-":
                return None
            *parents, last = parents  # the member that changes is the list
        elif not isinstance(holder, dict) or (op != "add" and last not in holder):
            return None
        node = root
        for part in parents:
            inner = node.members.setdefault(part, _Inside({}))
            if not isinstance(inner, _Inside):
                return None
            node = inner
        if isinstance(holder, list):
            appended = node.members.setdefault(last, _Append([]))
            if not isinstance(appended, _Append):
                return None
            appended.items.append(json_copy(patch["value"]))
        elif last in node.members:
            return None
        else:
            node.members[last] = _Remove() if op == "remove" else _Set(json_copy(patch["value"]))
    return root


def _value_at(base: JsonValue, parts: Sequence[str]) -> JsonValue:
    for part in parts:
        if not isinstance(base, dict) or part not in base:
            return None
        base = base[part]
    return base


def _merge(base: Any, changes: list[_By], path: tuple[str, ...], append: bool, warnings: list[str]) -> Any:
    """Return the value at `path` after `changes` (at least one), or `_MISSING` if it was removed. May modify `base`."""
    if base is _MISSING and len(changes) > 1:
        changes = _split_new_members(changes, append)
        if isinstance(changes[0][1], _Append):
            base = []
        elif isinstance(changes[0][1], _Inside):
            base = {}
    wholes = [(index, change) for index, change in changes if isinstance(change, _Set | _Remove)]
    if wholes:
        index, winner = wholes[-1]
        if len(changes) > 1 and not all(isinstance(change, _Remove) for _, change in changes):
            calls = ", ".join(str(i) for i, _ in changes)
            verb = (
                "removed it"
                if isinstance(winner, _Remove)
                else "replaced it"
                if len(wholes) < len(changes)
                else "holds"
            )
            warnings.append(f"{pointer(path)}: calls {calls} changed it; call {index} {verb}")
        return winner.value if isinstance(winner, _Set) else _MISSING
    if isinstance(changes[0][1], _Append):
        return base + [item for _, change in changes for item in cast(_Append, change).items]
    inside: dict[str, list[_By]] = {}
    for index, change in changes:
        for key, member in cast(_Inside, change).members.items():
            inside.setdefault(key, []).append((index, member))
    for key in sorted(inside):
        value = _merge(base.get(key, _MISSING), inside[key], (*path, key), append, warnings)
        if value is _MISSING:
            base.pop(key, None)
        else:
            base[key] = value
    return base


def _split_new_members(changes: list[_By], append: bool) -> list[_By]:
    """Resolve changes of calls that created the same new member. Objects are merged and lists are concatenated;
    anything else is a conflict."""
    values = [(index, change.value) for index, change in changes if isinstance(change, _Set)]
    if all(isinstance(value, dict) for _, value in values):
        return [(i, _Inside({k: _Set(v) for k, v in cast(JsonObject, value).items()})) for i, value in values]
    if append and all(isinstance(value, list) for _, value in values):
        return [(i, _Append(cast("list[JsonValue]", value))) for i, value in values]
    return changes
