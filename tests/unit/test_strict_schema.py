"""The strict forms of schemas: what is closed, what each form leaves out, and the way back."""

from __future__ import annotations

import decimal
import enum
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter
from tests.support.strict_refusals import claude_refusal, openai_refusal

from helix.adapters.models.strict_schema import Form, OpenSchemaError, drop_nulls, strict_schema
from helix.core.json import JsonObject
from helix.core.signatures import parameters_of


class Unit(enum.Enum):
    metre = "m"
    foot = "ft"


class Card(BaseModel):
    kind: Literal["card"] = "card"
    number: Annotated[str, Field(min_length=4, json_schema_extra={"pattern": r"^(?!0)\d+$"})]
    name: str = "none"


class Cash(BaseModel):
    kind: Literal["cash"] = "cash"
    coins: Annotated[list[int], Field(min_length=2, max_length=9)] = [1, 2]


class Order(BaseModel):
    amount: Annotated[int, Field(ge=1, le=9)]
    unit: Unit = Field(default=Unit.metre, description="The unit.")
    price: decimal.Decimal = decimal.Decimal(1)
    how: Card | Cash
    by: Annotated[Card | Cash, Field(discriminator="kind")] | None = None
    note: str | None = None
    mixed: Literal[1, "a", None] = None
    site: Annotated[str, Field(json_schema_extra={"format": "uri"})] = "https://a.example"
    cards: list[Card] = []


class Tree(BaseModel):
    name: str
    children: list[Tree] = []


class Grove(BaseModel):
    tree: Tree


class Loose(BaseModel):
    model_config = ConfigDict(extra="allow")
    name: str


class HasLoose(BaseModel):
    loose: Loose


class HasAny(BaseModel):
    what: Any


class HasMap(BaseModel):
    names: list[dict[str, int]]


class HasPair(BaseModel):
    pair: tuple[int, str]


def test_openai_accepts_the_strict_form_of_everything_that_is_closed() -> None:
    for model in (Order, Grove, Card, Cash):
        assert openai_refusal({"f": strict_schema(parameters_of(model))}) is None


def test_claude_accepts_the_strict_form_of_everything_that_is_closed_and_does_not_refer_to_itself() -> None:
    made = strict_schema(parameters_of(Order), "claude")
    assert claude_refusal({0: made}) is None
    assert made["required"] == ["amount", "how"], "what is optional stays so"
    with pytest.raises(OpenSchemaError, match="'tree' refers to itself, which Claude does not accept"):
        strict_schema(parameters_of(Grove), "claude")


@pytest.mark.parametrize("form", ["openai", "claude"])
@pytest.mark.parametrize(
    ("schema", "why"),
    [
        (parameters_of(HasLoose), "'Loose' may have any properties"),
        (parameters_of(HasAny), "'what' may be any value"),
        (parameters_of(HasMap), r"'names\[\]' may have any properties"),
        (parameters_of(HasPair), "'pair' has 'prefixItems'"),
        ({"type": "object"}, "the whole schema may have any properties"),
        ({"type": "object", "properties": {"a": {"type": "object"}}}, "'a' may have any properties"),
        ({"type": "object", "properties": {"a": {"type": "array"}}}, r"'a\[\]' may be any value"),
        ({"type": "object", "properties": {"a": {"enum": [{}, 1]}}}, "'a' is one of several objects or lists"),
        ({"type": "object", "properties": {"a": {"$ref": "#/$defs/B"}}}, "'a' refers to '#/\\$defs/B', which is not"),
        ({"type": "object", "properties": {}, "allOf": []}, "the whole schema has 'allOf'"),
        ({"type": "string"}, "the arguments are not an object"),
    ],
)
def test_an_open_schema_has_no_strict_form_and_says_where_it_is_open(form: Form, schema: JsonObject, why: str) -> None:
    with pytest.raises(OpenSchemaError, match=why):
        strict_schema(schema, form)


def test_the_model_still_reads_what_the_form_cannot_say() -> None:
    properties: Any = strict_schema(parameters_of(Order))["properties"]
    number = strict_schema(parameters_of(Card))["properties"]["number"]  # type: ignore[index,call-overload]
    assert number == {"type": "string", "description": r'(minLength: 4, pattern: "^(?!0)\\d+$")'}
    assert properties["amount"] == {"type": "integer", "minimum": 1, "maximum": 9}
    assert properties["mixed"] == {"type": ["integer", "string", "null"], "enum": [1, "a", None]}
    assert properties["site"]["anyOf"][0]["description"] == '(default: "https://a.example", format: "uri")'
    claudes: Any = strict_schema(parameters_of(Order), "claude")["properties"]
    assert claudes["amount"] == {"type": "integer", "description": "(maximum: 9, minimum: 1)"}
    assert claudes["unit"] == {"type": "string", "enum": ["m", "ft"], "description": "The unit.", "default": "m"}


def test_nulls_that_only_the_strict_form_allowed_are_taken_out_in_every_option_of_a_union() -> None:
    schema = parameters_of(Order)
    cash: JsonObject = {"kind": None, "coins": None}
    card: JsonObject = {"kind": "card", "number": "1234", "name": None}
    sent: JsonObject = {"amount": 1, "unit": None, "price": None, "how": cash, "by": card, "note": None, "mixed": None}
    sent |= {"site": None, "cards": [card]}
    relaxed = drop_nulls(schema, sent)
    short = {"kind": "card", "number": "1234"}
    assert relaxed == {"amount": 1, "how": {}, "by": short, "note": None, "mixed": None, "cards": [short]}
    assert Order.model_validate({**relaxed, "how": {"coins": [1, 2]}}).unit is Unit.metre


VALUES = st.builds(
    lambda amount, unit, card, note, coins: {
        "amount": amount,
        "how": card,
        "cards": [card],
        **({"unit": unit} if unit else {}),
        **({"note": note} if note else {}),
        "by": {"kind": "cash", **coins},
    },
    st.integers(1, 9),
    st.sampled_from(["m", "ft", None]),
    st.builds(
        lambda number, kind: {"number": number, **kind},
        st.from_regex(r"\A[1-9]\d{3}\Z"),
        st.sampled_from([{}, {"kind": "card"}]),
    ),
    st.text(),
    st.sampled_from([{}, {"coins": [3, 4]}]),
)


@given(VALUES)
def test_a_tool_receives_what_the_model_meant(meant: dict[str, Any]) -> None:
    """The strict form of a value has a null for each missing property. Dropping the nulls restores the meaning."""
    schema = parameters_of(Order)
    filled = _filled(schema, schema, meant)
    read = TypeAdapter(Order).validate_python(drop_nulls(schema, filled))
    assert read == Order.model_validate(meant)


def _filled(schema: Any, root: Any, value: Any) -> Any:
    """Return the value as a strict model sends it: with a null for each property that is missing."""
    if "$ref" in schema:
        return _filled(root["$defs"][schema["$ref"].rpartition("/")[2]], root, value)
    options = schema.get("anyOf") or schema.get("oneOf")
    if options:
        kinds = {"Card": "number", "Cash": "coins"}
        for option in options:
            named = option.get("$ref", "").rpartition("/")[2]
            if isinstance(value, dict) and (kinds.get(named) in value or value.get("kind") == named.lower()):
                return _filled(option, root, value)
            if "oneOf" in option and isinstance(value, dict):
                return _filled(option, root, value)
        return value
    if isinstance(value, list):
        return [_filled(schema["items"], root, item) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        name: _filled(part, root, value[name]) if name in value else None for name, part in schema["properties"].items()
    }
