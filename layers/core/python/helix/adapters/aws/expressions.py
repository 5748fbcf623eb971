"""Conditions and updates as DynamoDB expressions. Every name has a placeholder, because many are reserved words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from helix.adapters.aws.items import Attribute, attribute
from helix.ports.state_store import When


class Terms:
    """The names and values of one request's expressions."""

    def __init__(self) -> None:
        self.names: dict[str, str] = {}
        self.values: dict[str, Any] = {}

    def name(self, name: str) -> str:
        place = f"#n{list(self.names.values()).index(name)}" if name in self.names.values() else f"#n{len(self.names)}"
        self.names[place] = name
        return place

    def value(self, value: Any) -> str:
        place = f":v{len(self.values)}"
        self.values[place] = value
        return place

    def attributes(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        if self.names:
            found["ExpressionAttributeNames"] = self.names
        if self.values:
            found["ExpressionAttributeValues"] = self.values
        return found


def condition(when: When | None, terms: Terms, *, must_exist: bool) -> str:
    if when is None:
        return f"attribute_exists({terms.name('pk')})" if must_exist else ""
    if when.absent:
        return f"attribute_not_exists({terms.name('pk')})"
    parts = [f"attribute_exists({terms.name('pk')})"]
    for name, wanted in when.equal.items():
        place = terms.name(name)
        if wanted is None:
            parts.append(f"(attribute_not_exists({place}) OR {place} = {terms.value({'NULL': True})})")
        else:
            parts.append(f"{place} = {terms.value(attribute(wanted))}")
    parts += [f"{terms.name(n)} >= {terms.value(attribute(bound))}" for n, bound in when.at_least.items()]
    parts += [f"{terms.name(n)} < {terms.value(attribute(bound))}" for n, bound in when.below.items()]
    return " AND ".join(parts)


def update(set_: Mapping[str, Attribute], add: Mapping[str, int], terms: Terms) -> str:
    """Return the update expression, or an empty string if nothing changes. An addition to a missing field starts at
    0."""
    parts = [f"{terms.name(name)} = {terms.value(value)}" for name, value in set_.items()]
    for name, amount in add.items():
        place = terms.name(name)
        zero, more = terms.value({"N": "0"}), terms.value({"N": str(amount)})
        parts.append(f"{place} = if_not_exists({place}, {zero}) + {more}")
    return "SET " + ", ".join(parts) if parts else ""
