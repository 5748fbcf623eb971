"""Helpers for reading CloudFormation templates in tests: resources by type and name, references as text."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Properties = dict[str, Any]

PROFILES = ("default", "heavy", "quick")
"""The profiles in the assembly `deployed`."""


@dataclass(frozen=True)
class Template:
    """A template. `resources` maps logical ids to resources."""

    text: dict[str, Any]

    @property
    def resources(self) -> dict[str, Any]:
        found: dict[str, Any] = self.text["Resources"]
        return found

    def of(self, type_: str) -> dict[str, Properties]:
        """Return the properties of all resources of that type by logical id."""
        return {id_: r.get("Properties", {}) for id_, r in self.resources.items() if r["Type"] == f"AWS::{type_}"}

    def one(self, type_: str, **wanted: Any) -> Properties:
        """Return the properties of the one resource of that type that has the `wanted` ones."""
        found = [p for p in self.of(type_).values() if all(p.get(key) == value for key, value in wanted.items())]
        assert len(found) == 1, f"{len(found)} of {type_} with {wanted}"
        return found[0]

    def id_of(self, type_: str, **wanted: Any) -> str:
        one = self.one(type_, **wanted)
        return next(id_ for id_, properties in self.of(type_).items() if properties is one)

    def function(self, verb: str, stage: str = "dev") -> Properties:
        return self.one("Lambda::Function", FunctionName=f"helix-{stage}-{verb}")

    def role_of(self, function: Properties) -> str:
        role: str = function["Role"]["Fn::GetAtt"][0]
        return role

    def statements(self, role: str) -> Iterator[dict[str, Any]]:
        """Return the statements of all policies of a role."""
        for type_ in ("IAM::Policy", "IAM::ManagedPolicy"):
            for policy in self.of(type_).values():
                if {"Ref": role} in policy["Roles"]:
                    yield from policy["PolicyDocument"]["Statement"]

    def alias_of(self, function: Properties) -> str:
        id_ = next(id_ for id_, properties in self.of("Lambda::Function").items() if properties is function)
        return self.id_of("Lambda::Alias", FunctionName={"Ref": id_})


@dataclass(frozen=True)
class Assembly:
    """The templates of a stage. `main` is its own template, and `nested` are the others, by the name in their file
    names."""

    folder: Path
    main: Template
    nested: dict[str, Template]

    @classmethod
    def read(cls, folder: Path) -> Assembly:
        main, nested = None, {}
        for file in sorted(folder.glob("*.template.json")):
            template = Template(json.loads(file.read_text(encoding="utf-8")))
            if ".nested." in file.name:
                nested[file.name.split(".")[0]] = template
            else:
                main = template
        assert main is not None
        return cls(folder, main, nested)

    def meant(self, template: Template, value: dict[str, str]) -> Any:
        """Resolve a reference to the stage's own template. A nested template refers to its parameters."""
        if template is self.main or value.get("Ref") not in template.text.get("Parameters", {}):
            return value
        told = [stack.get("Parameters", {}) for stack in self.main.of("CloudFormation::Stack").values()]
        (found,) = {json.dumps(given[value["Ref"]]) for given in told if value["Ref"] in given}
        return json.loads(found)

    @property
    def templates(self) -> list[Template]:
        return [self.main, *self.nested.values()]


def text(value: Any) -> str:
    """Return an intrinsic function as text: `<Name>` for a reference, `<Name.Attribute>` for an attribute."""
    match value:
        case {"Ref": name}:
            return f"<{name}>"
        case {"Fn::GetAtt": [name, attribute]}:
            return f"<{name}.{attribute}>"
        case {"Fn::Join": [separator, parts]}:
            return str(separator).join(map(text, parts))
        case str():
            return value
        case _:
            return json.dumps(value)


def listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
