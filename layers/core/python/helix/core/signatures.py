"""Builds a tool's input schema from its function's signature. Parameters become fields, keeping their `Field` and
defaults. A description in the docstring applies if the `Field` has no description."""

from __future__ import annotations

import functools
import inspect
import types
import typing
import warnings
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, PydanticUserError, create_model, model_validator

from helix.core.errors import DefinitionError

_VERBATIM = frozenset({"default", "const", "enum", "examples"})


class Signature(typing.NamedTuple):
    """The signature of a tool's function, as returned by `read_signature`."""

    schema: type[BaseModel]
    """The pydantic model of the arguments, without the context parameter and bound parameters."""
    attributes: dict[str, str]
    """The attribute of `schema` for each parameter. It differs from the parameter's name if pydantic reserves that
    name."""
    context: str | None
    """The name of the parameter that receives the `ToolContext`. None if no parameter does."""
    returns: Any
    """The annotation of the return value. None if there is no annotation."""


def read_signature(
    function: Callable[..., Any],
    owner: str,
    context_type: type,
    localns: dict[str, Any],
    descriptions: Mapping[str, str],
) -> Signature:
    """Inspect `function`. `localns` resolves postponed annotations of types that are defined inside another function.
    `descriptions` are those of the docstring, by parameter. One of an unknown parameter causes a warning.

    Parameters bound by `functools.partial` are hidden from the model. Raises `DefinitionError`, naming the parameter,
    if it has no annotation, has a kind that JSON cannot fill, or a type without a JSON schema.
    """
    bound = function.keywords if isinstance(function, functools.partial) else {}
    hints = _hints(function, owner, localns)
    context: str | None = None
    fields: dict[str, Any] = {}
    attributes: dict[str, str] = {}
    parameters = inspect.signature(function).parameters
    taken = set(parameters)
    if unknown := descriptions.keys() - taken:
        problem = "which is not a parameter: the model does not see it"
        warnings.warn(f"{owner}: the docstring describes {sorted(unknown)[0]!r}, {problem}", stacklevel=4)
    for name, parameter in parameters.items():
        if name in bound:
            continue
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            problem = "a tool takes named parameters only: no *args, **kwargs or positional-only"
            raise DefinitionError(owner, name, problem)
        if name not in hints:
            hint = "decorate the bound method, tool(thing.method)" if name in ("self", "cls") else "annotate it"
            raise DefinitionError(owner, name, f"needs a type, since the model's schema is made from it: {hint}")
        hint = hints[name]
        if _is_context(hint, context_type):
            if context is not None:
                raise DefinitionError(owner, name, f"is a second {context_type.__name__}; a tool takes one at most")
            context = name
            continue
        if description := descriptions.get(name):
            hint = _described(hint, description)
        attribute = _attribute(name, taken)
        if attribute != name:
            hint = typing.cast(Any, Annotated[hint, Field(alias=name)])
        attributes[name] = attribute
        fields[attribute] = (hint, ... if parameter.default is parameter.empty else parameter.default)
    try:
        schema = _model(getattr(function, "__name__", "tool"), fields)
    except (PydanticUserError, NameError, TypeError, ValueError) as error:
        raise DefinitionError(
            owner, _culprit(attributes, fields), f"cannot be converted to a JSON schema: {error}"
        ) from error
    return Signature(schema, attributes, context, hints.get("return"))


def parameters_of(schema: type[BaseModel]) -> dict[str, Any]:
    """Return the JSON Schema of the model without the generated titles."""
    return typing.cast("dict[str, Any]", _untitled(schema.model_json_schema()))


def _hints(function: Callable[..., Any], owner: str, localns: dict[str, Any]) -> dict[str, Any]:
    target: Any = function.func if isinstance(function, functools.partial) else function
    if not inspect.isroutine(target):
        target = type(target).__call__
    try:
        return get_type_hints(target, localns=localns, include_extras=True)
    except (NameError, TypeError) as error:
        raise DefinitionError(owner, "signature", f"annotation cannot be resolved: {error}") from error


def _is_context(hint: Any, context_type: type) -> bool:
    """Return whether the hint is `ToolContext`, also with types, inside `Annotated` or with `| None`."""
    if get_origin(hint) is Annotated:
        return _is_context(get_args(hint)[0], context_type)
    if get_origin(hint) in (typing.Union, types.UnionType):
        return any(_is_context(part, context_type) for part in get_args(hint))
    return (get_origin(hint) or hint) is context_type


def _described(hint: Any, description: str) -> Any:
    """Return the hint with the description. It comes first, so that a description in the hint takes precedence."""
    kind, *metadata = get_args(hint) if get_origin(hint) is Annotated else (hint,)
    return typing.cast(Any, Annotated)[(kind, Field(description=description), *metadata)]


def _attribute(name: str, taken: set[str]) -> str:
    """Return an attribute name that pydantic does not reserve. It reserves leading underscores and the names of
    `BaseModel` itself (`json`, `copy`, `model_dump`)."""
    if not (name.startswith(("_", "model_dump", "model_validate")) or hasattr(BaseModel, name)):
        return name
    attribute = f"field_{name.strip('_')}"
    while attribute in taken:
        attribute += "_"
    taken.add(attribute)
    return attribute


def _model(name: str, fields: dict[str, Any]) -> type[BaseModel]:
    schema: type[BaseModel] = create_model(f"{name}_input", __config__=ConfigDict(extra="forbid"), **fields)
    schema.model_json_schema()
    return schema


def _culprit(attributes: dict[str, str], fields: dict[str, Any]) -> str:
    for name, attribute in attributes.items():
        try:
            _model("probe", {attribute: fields[attribute]})
        except (PydanticUserError, NameError, TypeError, ValueError):
            return name
    return "signature"


def _untitled(node: Any) -> Any:
    """Return the schema without its `title` annotations. Properties named `title` and literal values are kept."""
    if isinstance(node, dict):
        return {
            key: value if key in _VERBATIM else _untitled(value)
            for key, value in node.items()
            if not (key == "title" and isinstance(value, str))
        }
    return [_untitled(item) for item in node] if isinstance(node, list) else node


def arguments_model(name: str, schema: Mapping[str, Any], problems: Callable[[Any], Sequence[str]]) -> type[BaseModel]:
    """Return the pydantic model of a tool whose arguments a JSON schema describes. It shows `schema` to the language
    model, keeps the arguments as they are (`model_extra`), and refuses those that have `problems`."""

    class Arguments(BaseModel):
        model_config = ConfigDict(extra="allow")

        @model_validator(mode="before")
        @classmethod
        def _check(cls, value: Any) -> Any:
            if found := problems(value):
                raise ValueError("; ".join(found))
            return value

        @classmethod
        def model_json_schema(cls, *args: Any, **kwargs: Any) -> dict[str, Any]:
            return deepcopy({"type": "object", "properties": {}, **schema})

    Arguments.__name__ = Arguments.__qualname__ = f"{name}_input"
    return Arguments
