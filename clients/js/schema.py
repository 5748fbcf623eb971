"""Writes schema.json, the source of the TypeScript client's types.

    python clients/js/schema.py && cd clients/js && npm run generate

Law: everything comes from the models of the service, also the descriptions of fields, which are the docstrings under them.
`tests/js/test_schema.py` fails if schema.json is out of date.
"""

from __future__ import annotations

import inspect
import json
from functools import cache
from pathlib import Path
from typing import Any, get_args

import griffe
from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaMode, models_json_schema

from helix.core import errors, refusals
from helix.core.chunk_envelope import ChunkBase, NoticeChunk
from helix.core.chunks import CHUNK_CLASSES
from helix.core.files import FilePart
from helix.core.handles import AgentResult
from helix.core.messages import AskedQuestion, CallResponse
from helix.core.replies import REPLIES
from helix.core.requests import AnyRequest
from helix.core.usage import Usage
from helix.core.wire import StreamMessage

PLACE = Path(__file__).with_name("schema.json")
PATCH: dict[str, Any] = {
    "title": "Patch",
    "description": "An operation of RFC 6902. The engine writes `add`, `remove` and `replace`; tools may emit any.",
    "type": "object",
    "properties": {
        "op": {"enum": ["add", "copy", "move", "remove", "replace", "test"]},
        "path": {"type": "string"},
        "from": {"type": "string"},
        "value": {},
    },
    "required": ["op", "path"],
}
"""The models take patches as free JSON objects: `helix.core.patches` checks them."""
MADE: tuple[type[BaseModel], ...] = (StreamMessage, AgentResult)
"""The types that the client builds from replies."""


class _Documented(GenerateJsonSchema):
    """Describes each field, and gives none a title: a field needs no type of its own."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def model_schema(self, schema: Any) -> dict[str, Any]:
        made = super().model_schema(schema)
        texts = field_docstrings(schema["cls"])
        for name, field in made.get("properties", {}).items():
            if name in texts:
                field["description"] = texts[name]
        return made


def field_docstrings(cls: type) -> dict[str, str]:
    """Return the docstrings under the fields of a class and its bases, each in one line."""
    found: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        if base.__module__.startswith("helix."):
            fields = _module(base.__module__, inspect.getsourcefile(base) or "")[base.__qualname__].attributes
            found |= {
                name: " ".join(field.docstring.value.split()) for name, field in fields.items() if field.docstring
            }
    return found


@cache
def _module(name: str, file: str) -> griffe.Module:
    return griffe.visit(name, Path(file), Path(file).read_text("utf-8"))


def schema() -> dict[str, Any]:
    """`$defs` of all models; `chunks` by type, `requests` and `replies` by action, and `made`: the names of theirs;
    `defaults`, `ui_fields` and `notices` of chunks, and `codes` of errors."""
    chunks = dict(sorted(CHUNK_CLASSES.items()))
    requests = {get_args(cls.model_fields["action"].annotation)[0]: cls for cls in get_args(AnyRequest)}
    sent = {*chunks.values(), *MADE, *REPLIES.values()}
    modes: list[tuple[type[BaseModel], JsonSchemaMode]] = [(cls, "validation") for cls in requests.values()]
    modes += [(cls, "serialization") for cls in sorted(sent, key=lambda cls: cls.__name__)]
    places, found = models_json_schema(modes, schema_generator=_Documented)
    named = {key: place["$ref"].rpartition("/")[2] for key, place in places.items()}
    found["$defs"]["Patch"] = PATCH
    for model in list(found["$defs"].values()):
        if "patches" in model.get("properties", {}):
            model["properties"]["patches"]["items"] = {"$ref": "#/$defs/Patch"}
    for cls in (*chunks.values(), *MADE):  # the client fills in what is left out
        model = found["$defs"][named[cls, "serialization"]]
        model["required"] = sorted(model["properties"])
    return {
        "$defs": found["$defs"],
        "chunks": {kind: named[cls, "serialization"] for kind, cls in chunks.items()},
        "requests": {action: named[cls, "validation"] for action, cls in sorted(requests.items())},
        "replies": {action: named[cls, "serialization"] for action, cls in sorted(REPLIES.items())},
        "made": {cls.__name__: named[cls, "serialization"] for cls in MADE},
        "defaults": {
            "chunk": _defaults(ChunkBase),
            "usage": _defaults(Usage),
            "file": _defaults(FilePart),
            "question": _defaults(AskedQuestion),
            "response": _defaults(CallResponse),
            "types": {kind: own for kind, cls in chunks.items() if (own := _own_defaults(cls))},
        },
        "ui_fields": {kind: cls.ui_fields for kind, cls in chunks.items() if cls.ui_fields},
        "notices": {kind: cls.line for kind, cls in chunks.items() if issubclass(cls, NoticeChunk)},
        "codes": sorted({cls.code for cls in (*vars(errors).values(), *vars(refusals).values()) if _is_error(cls)}),
    }


def _defaults(cls: type[BaseModel]) -> dict[str, Any]:
    fields = {name: field for name, field in cls.model_fields.items() if not field.is_required()}
    return {name: field.get_default(call_default_factory=True) for name, field in fields.items()}


def _own_defaults(cls: type[ChunkBase]) -> dict[str, Any]:
    return {name: value for name, value in _defaults(cls).items() if name not in {*ChunkBase.model_fields, "type"}}


def _is_error(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, errors.HelixError)


def text() -> str:
    return json.dumps(schema(), indent=1, sort_keys=True) + "\n"


if __name__ == "__main__":
    PLACE.write_text(text(), encoding="utf-8")
