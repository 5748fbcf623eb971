"""RFC 6902 patches of JSON state: computes and applies them.

Law: `apply(before, diff(before, after)) == after`. `diff` of equal states is empty. Arguments are never modified. To
stay compact and mergeable, a diff only writes object members, plus `add .../-` for items appended to a list.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias, cast

from helix.core.errors import InvalidInputError
from helix.core.json import JsonObject, JsonValue

ArrayDeltaMode: TypeAlias = Literal["append_only", "full_replace"]
Path: TypeAlias = tuple[str | int, ...]


def diff(before: JsonObject, after: JsonObject, array_delta_mode: ArrayDeltaMode = "append_only") -> list[JsonObject]:
    """Return the operations that turn `before` into `after`, in a deterministic order.

    append_only: items appended to a list become `add /list/-`; any other change replaces the whole list. full_replace:
    any change of a list replaces the whole list.
    """
    out: list[JsonObject] = []
    if before is not after:
        _diff(before, after, array_delta_mode == "append_only", (), out)
    return out


def apply(state: JsonObject, patches: Sequence[Mapping[str, Any]]) -> JsonObject:
    """Apply `patches` to `state`, and return the new state. Raises `InvalidInputError` if they do not apply."""
    if not patches:
        return cast(JsonObject, json_copy(state))
    import jsonpatch  # takes 20 ms, so only processes that apply patches import it
    from jsonpointer import JsonPointerException

    try:
        # copied, because jsonpatch puts the operations' values into the document, where later operations may change them
        result = jsonpatch.JsonPatch([json_copy(patch) for patch in patches]).apply(json_copy(state), in_place=True)
    except (
        jsonpatch.JsonPatchException,
        JsonPointerException,
        LookupError,
        AttributeError,
        TypeError,
        ValueError,
    ) as error:
        raise InvalidInputError(f"patches do not fit the state: {error or type(error).__name__}") from error
    if not isinstance(result, dict):
        raise InvalidInputError("patches replace the state by something that is no JSON object")
    return result


def to_rfc6902(patches: Sequence[Mapping[str, Any]]) -> list[JsonObject]:
    """Convert the operations to RFC 6902. Immer and similar libraries write `path` as a list instead of a JSON
    pointer."""
    return [{**patch, "path": pointer(patch["path"])} for patch in patches]


def pointer(parts: Sequence[str | int]) -> str:
    """Return the RFC 6901 pointer for the parts: `["a/b", 0]` becomes `/a~1b/0`. No parts mean the whole document."""
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in parts)


def parts_of(path: str) -> list[str]:
    """Return the parts of a pointer, unescaped. Raises `InvalidInputError` if the text is not a pointer."""
    if path and not path.startswith("/"):
        raise InvalidInputError(f"{path!r} is no JSON pointer: it starts with '/' or is empty")
    return [part.replace("~1", "/").replace("~0", "~") for part in path.split("/")[1:]]


def equals_json(a: JsonValue, b: JsonValue) -> bool:
    """Return whether two values are equal as JSON. Unlike in Python, `true` is not 1."""
    if a is b:
        return True
    if isinstance(a, dict) and isinstance(b, dict):
        return len(a) == len(b) and all(key in b and equals_json(value, b[key]) for key, value in a.items())
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(equals_json, a, b))
    return not isinstance(a, bool) and not isinstance(b, bool) and a == b


def json_copy(value: Any) -> Any:
    """Return a deep copy in plain JSON types; tuples become lists. Raises `InvalidInputError`, naming the part that is
    not JSON."""
    try:
        return _copy(value, ())
    except RecursionError as error:
        raise InvalidInputError("value is nested too deeply, or contains itself") from error


def _diff(before: JsonObject, after: JsonObject, append: bool, path: Path, out: list[JsonObject]) -> None:
    for key in before:
        if key not in after:
            out.append({"op": "remove", "path": pointer((*path, key))})
    for key, new in after.items():
        here = (*path, key)
        if key not in before:
            out.append({"op": "add", "path": pointer(here), "value": json_copy(new)})
            continue
        old = before[key]
        if old is new:
            continue
        if isinstance(old, dict) and isinstance(new, dict):
            _diff(old, new, append, here, out)
        elif equals_json(old, new):
            continue
        elif append and isinstance(old, list) and isinstance(new, list) and equals_json(old, new[: len(old)]):
            end = pointer((*here, "-"))
            out.extend({"op": "add", "path": end, "value": json_copy(item)} for item in new[len(old) :])
        else:
            # in RFC 6902, `add` replaces a member that exists; jsonpatch refuses to `replace` a member named "-"
            out.append({"op": "add" if key == "-" else "replace", "path": pointer(here), "value": json_copy(new)})


def _copy(value: Any, path: Path) -> Any:
    kind = type(value)
    if value is None or kind is bool or kind is int:
        return value
    if isinstance(value, str):
        if not value.isascii():
            try:
                value.encode()
            except UnicodeEncodeError as error:
                raise InvalidInputError(f"{_at(path)}: the text has a lone surrogate and cannot be stored") from error
        return value if kind is str else str.__str__(value)
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise InvalidInputError(f"{_at(path)}: key {key!r} is no string, as JSON keys are")
        return {str.__str__(key): _copy(item, (*path, key)) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_copy(item, (*path, index)) for index, item in enumerate(value)]
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise InvalidInputError(f"{_at(path)}: {value!r} is not JSON")
        return value if kind is float else float(value)
    raise InvalidInputError(f"{_at(path)}: {kind.__name__} is not JSON")


def _at(path: Path) -> str:
    return repr(pointer(path)) if path else "value"
