"""The tables of docs/guide/websocket.md describe each field as the protocol's models define it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, get_args

import pytest
from tests.docs.documents import ROOT

from helix.client import ClientSettings
from helix.core.frames import BEARER_SUBPROTOCOL, MAX_FRAME_BYTES, SUBPROTOCOL
from helix.core.messages import Record
from helix.core.protocol import MAX_REQUEST_BYTES
from helix.core.replies import FRAMES, REPLIES, Started, WireMessage
from helix.core.request_fields import ID, LOWEST_PRIORITY
from helix.core.requests import ACTIONS, MAX_REQUEST_PARTS, AnyRequest
from helix.core.session_replies import RunFound
from helix.core.status import CLAIMS, SessionStatus
from helix.gateway.connections import MAX_SUBSCRIPTIONS
from helix.gateway.parts import MAX_OPEN_REQUESTS, PARTS_S

TEXT = (ROOT / "docs" / "guide" / "websocket.md").read_text(encoding="utf-8")
REQUESTS = {get_args(cls.model_fields["action"].annotation)[0]: cls for cls in get_args(AnyRequest)}
SESSION_ID = REQUESTS["abort"].model_json_schema()["properties"]["session_id"]["pattern"]
EVERYWHERE = {"v", "id", "action"}
Row = tuple[str, str, str]
"""Owner, field and type."""


def fields(owner: str, model: type[Record], mode: Any) -> Iterator[Row]:
    schema = model.model_json_schema(mode=mode)
    for name, field in model.model_fields.items():
        default = None if field.is_required() else field.get_default(call_default_factory=True)
        more = ", required" if field.is_required() else "" if default is None else f", default `{spelled(default)}`"
        yield owner, name, kind(schema["properties"][name]) + more


def spelled(default: Any) -> str:
    return default.model_dump_json() if isinstance(default, Record) else json.dumps(default)


def kind(field: dict[str, Any]) -> str:
    """Return the type with its bounds in the guide's spelling."""
    if "anyOf" in field:
        kinds = [kind(one) for one in field["anyOf"] if one.get("type") != "null"]
        return " or ".join(dict.fromkeys(kinds))
    if "$ref" in field:
        return "object"
    if "enum" in field or "const" in field:
        return "string" if isinstance(field.get("const", field.get("enum", [""])[0]), str) else "integer"
    if (named := {ID: "id", SESSION_ID: "session id"}.get(field.get("pattern", ""))) is not None:
        return named
    if "type" not in field:
        return "any"
    if field["type"] == "array":
        most = f" (at most {field['maxItems']})" if "maxItems" in field else ""
        return f"array{most} of " + re.sub(r"^\w+", r"\g<0>s", kind(field["items"]))
    low = field.get("minLength", field.get("minimum"))
    high = field.get("maxLength", field.get("maximum"))
    match low, high:
        case None, None:
            bounds = f" (above {field['exclusiveMinimum']})" if "exclusiveMinimum" in field else ""
        case None, _:
            bounds = f" (at most {high})"
        case _, None:
            bounds = f" (from {low})"
        case _:
            bounds = f" ({low} to {high})"
    return f"{field['type']}{bounds}"


def tables(header: str) -> Iterator[list[list[str]]]:
    """Yield the cells of each table of the guide with this header."""
    for found in re.finditer(rf"^{re.escape(header)}\n\|[-|]+\n((?:\|.*\n)+)", TEXT, re.MULTILINE):
        yield [[cell.strip() for cell in line.strip("|").split(" | ")] for line in found[1].splitlines()]


def named(cell: str) -> list[str]:
    return re.findall(r"`(\w+)`", cell)


def test_every_field_of_every_request_is_there_with_its_type() -> None:
    own, required = set[Row](), set[str]()
    for action, model in REQUESTS.items():
        for row in fields(action, model, "validation"):
            if row[1:] == ("session_id", "session id, required"):
                required.add(action)
            elif row[1] not in EVERYWHERE:
                own.add(row)
    rows = [row for table in tables("| Action | Field | Type | Meaning |") for row in table]
    documented = [(action, named(row[1])[0], row[2]) for row in rows for action in named(row[0])]
    assert sorted(documented) == sorted(own)
    assert all(row[3].endswith(".") for row in rows)
    without = re.search(r"require the session id `session_id`, except for\s+(.*?)\. A field", TEXT, re.DOTALL)
    assert without is not None and set(named(without[1])) == ACTIONS - required


def test_every_action_has_its_result() -> None:
    [rows] = tables("| Action | Does | Result |")
    results = {named(row[0])[0]: row[2] for row in rows}
    assert set(results) == ACTIONS
    for action, result in results.items():
        missing = [name for name in REPLIES[action].model_fields if not re.search(rf"\b{name}\b", result)]
        assert not missing or result.startswith("the same"), (action, missing)


def test_every_mode_is_explained() -> None:
    [rows] = tables("| Action | `mode` | Valid for a session that is | Meaning |")
    modes = {(action, mode) for action in ("resume", "retry") for mode in get_args(mode_of(action))}
    assert {(named(row[0])[0], named(row[1])[0]) for row in rows} == modes
    for action, mode, valid, _ in rows:
        claim: Any = "retry" if named(action) == ["retry"] and named(mode) == ["from_checkpoint"] else named(mode)[0]
        assert set(valid.split(", ")) == CLAIMS[claim]


def mode_of(action: str) -> Any:
    return REQUESTS[action].model_fields["mode"].annotation


@pytest.mark.parametrize(
    ("heading", "model"),
    [("The result of run", Started), ("Reading the answer", RunFound), ("Messages from the service", WireMessage)],
)
def test_what_a_client_reads_is_there_with_its_type(heading: str, model: type[Record]) -> None:
    part = TEXT.partition(f"### {heading}\n")[2].partition("\n##")[0]
    rows = re.findall(r"^\| `(\w+)` \| ([^|]+) \| [A-Z`].*\. \|$", part, re.MULTILINE)
    types = [(name, type_.partition(",")[0]) for _, name, type_ in fields("", model, "serialization")]
    assert [(name, type_.partition(",")[0].strip()) for name, type_ in rows] == types


def test_every_frame_is_there() -> None:
    [rows] = tables("| `type` | Fields |")
    found = {named(row[0])[0]: set(named(row[1].partition(":")[0])) for row in rows}
    assert found == {name: {*frame.model_fields} - {"v", "type"} for name, frame in FRAMES.items()}


def test_values_and_limits_are_those_of_the_code() -> None:
    for status in get_args(SessionStatus):
        assert f"`{status}`" in TEXT
    settings = ClientSettings()
    assert (settings.heartbeat_s, settings.max_age_s) == (4 * 60, 3600 + 55 * 60)
    limits = (MAX_REQUEST_BYTES // 1024, MAX_FRAME_BYTES // 1024, MAX_REQUEST_PARTS, MAX_OPEN_REQUESTS)
    assert (*limits, MAX_SUBSCRIPTIONS, PARTS_S) == (128, 32, 16, 4, 32, 60)
    for words in (
        "every 4 minutes",
        "1 hour 55 minutes",
        "at most 128 KB, and a frame at most 32 KB",
        "at most 16",
        "4 requests of a connection",
        "at most 32 subscriptions",
        f"{LOWEST_PRIORITY} to 0",
        f'"{SUBPROTOCOL}"',
        f'"{BEARER_SUBPROTOCOL}"',
    ):
        assert words in TEXT
