"""The checks of answers against JSON schemas agree with the package `jsonschema`, and name the field."""

from __future__ import annotations

from typing import Any, Literal

import pytest
from jsonschema import Draft202012Validator
from pydantic import BaseModel, Field

from helix.core.json_schema import MAX_PROBLEMS, schema_problems


class Address(BaseModel):
    street: str = Field(min_length=2, pattern="^[A-Z]")
    number: int | None = None


class Form(BaseModel):
    kind: Literal["home", "work"]
    age: int = Field(ge=1, lt=100)
    weight: float = Field(gt=0, le=2.5)
    tags: list[str] = Field(min_length=1, max_length=2)
    addresses: list[Address] = []
    extra: dict[str, int] = {}
    pair: tuple[int, str] = (1, "a")
    sure: bool = False


GOOD: dict[str, Any] = {"kind": "home", "age": 3, "weight": 2.5, "tags": ["a"]}
VALUES: list[Any] = [
    GOOD,
    {**GOOD, "addresses": [{"street": "Elm"}, {"street": "Oak", "number": None}], "extra": {"a": 1}},
    {**GOOD, "age": 3.0},
    {**GOOD, "age": 3.5},
    {**GOOD, "age": 0},
    {**GOOD, "age": 100},
    {**GOOD, "age": True},
    {**GOOD, "weight": 0},
    {**GOOD, "weight": 3},
    {**GOOD, "kind": "other"},
    {**GOOD, "tags": []},
    {**GOOD, "tags": ["a", "b", "c"]},
    {**GOOD, "tags": "a"},
    {**GOOD, "addresses": [{"street": "e"}]},
    {**GOOD, "addresses": [{"number": 1}]},
    {**GOOD, "addresses": [{"street": "Elm", "number": "1"}]},
    {**GOOD, "extra": {"a": "b"}},
    {**GOOD, "pair": ["a", 1]},
    {**GOOD, "pair": [1]},
    {**GOOD, "sure": 1},
    {},
    None,
    [],
    "text",
]
OTHERS: list[tuple[Any, list[Any]]] = [
    ({"enum": [1, "a"]}, [1, True, "a", "b", 1.0]),
    ({"const": False}, [False, 0]),
    ({"type": ["string", "null"]}, [None, "a", 1]),
    ({"type": "array", "uniqueItems": True}, [[1, 2], [1, 1], [1, True]]),
    ({"oneOf": [{"type": "integer"}, {"type": "string"}]}, [1, "a", None]),
    ({"allOf": [{"minLength": 2}, {"maxLength": 3}]}, ["a", "ab", "abcd"]),
    ({"type": "object", "additionalProperties": False, "properties": {"a": {}}}, [{"a": 1}, {"b": 1}]),
    ({}, [None, 1, {}]),
]
CASES = [(Form.model_json_schema(), VALUES), *OTHERS]


@pytest.mark.parametrize(("schema", "value"), [(schema, value) for schema, values in CASES for value in values])
def test_it_agrees_with_jsonschema(schema: Any, value: Any) -> None:
    assert (schema_problems(schema, value, "it") == []) == Draft202012Validator(schema).is_valid(value)


def test_a_problem_names_its_field() -> None:
    schema = Form.model_json_schema()
    assert schema_problems(schema, {**GOOD, "addresses": [{"street": "e"}]}, "it") == [
        "addresses.0.street: must have at least 2 characters",
        "addresses.0.street: must match '^[A-Z]'",
    ]
    assert schema_problems(schema, "text", "it") == ["it: must be object, not string"]
    assert len(schema_problems({"items": {"type": "string"}}, list(range(50)), "it")) == MAX_PROBLEMS


def test_what_is_not_known_is_ignored() -> None:
    """The tool's own type checks it."""
    assert schema_problems({"type": "string", "format": "date", "pattern": "(?<name>"}, "x", "it") == []
    assert schema_problems({"$ref": "https://example.org/schema"}, 1, "it") == []
