"""Decides which tools of a request are strict, and why the others are not (docs/guide/models.md#strict-schemas).

Law: one rule decides. A tool is strict if its schema is closed, the model constrains arguments, the tool does not set
`strict=False`, and the provider's limits leave room. Tools with `strict=True` get that room first.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from helix.adapters.models.catalog import entry_of
from helix.adapters.models.failures import Failure, failure, messages_of
from helix.adapters.models.openai_api import name_of
from helix.adapters.models.providers import provider_of
from helix.adapters.models.strict_schema import Form, OpenSchemaError, strict_schema
from helix.core.config import LLMConfig
from helix.core.json import JsonObject, JsonValue
from helix.core.tools import FINISH_TOOL_NAME
from helix.ports.model import ToolSpec

STRUCTURED: Final = re.compile(r"^(ft:)?(gpt-4o|gpt-4\.\d|gpt-([5-9]|\d\d)|o\d)")
"""A pattern for OpenAI's models with structured outputs. It is used for models that are missing from the table."""
MAX_TOOLS, MAX_OPTIONAL, MAX_UNIONS = 20, 24, 16
"""Claude's limits of one request: strict tools, and their optional properties and unions together."""
_ABOUT_SCHEMA: Final = re.compile(
    r"(?i)invalid schema for (function|tool)|invalid_function_parameters|input_?schema|compiled grammar"
    r"|schemas? (is|are) too complex|strict (tools|schemas?|mode)|additionalProperties|optional parameters|union types"
    r"|\btools\.\d+\.(custom|strict|toolSpec)|for '\w+' type"
)
_NAMED_TOOL: Final = re.compile(r"(?:function|tool) ['\"`]([A-Za-z0-9_-]{1,64})['\"`]")
_NUMBERED_TOOL: Final = re.compile(r"\btools[.\[](\d+)")


@dataclass(frozen=True, slots=True)
class Strictness:
    """The tools of a request that are strict, and the reasons why the others are not."""

    schemas: Mapping[str, JsonObject] = field(default_factory=dict)
    """The strict forms of the schemas, by tool."""
    reasons: Mapping[str, str] = field(default_factory=dict)
    """The reasons, by tool."""


def strict_form(model: str, package: str) -> Form | None:
    """Return the strict form that the model takes through this package. None if it does not constrain arguments."""
    entry, provider = entry_of(model), provider_of(model)
    if provider in ("openai", "azure") and package in ("openai", "litellm"):
        known = entry.get("supports_response_schema") if entry else STRUCTURED.match(name_of(model))
        return "openai" if known else None
    if package == "anthropic":
        return "claude" if not entry or entry.get("supports_native_structured_output") else None
    if package == "boto3" and "claude" in model.lower():
        native = ("supports_native_structured_output", "supports_bedrock_native_structured_output")
        refuses = entry.get("bedrock_converse_supports_strict_tools") is False
        return "claude" if not refuses and any(entry.get(name) for name in native) else None
    return None


def plan_strict(tools: Sequence[ToolSpec], config: LLMConfig, form: Form | None) -> Strictness:
    """Decide for each tool of a request. `form`: see `strict_form`."""
    schemas, reasons, room = dict[str, JsonObject](), dict[str, str](), _Room()
    for tool in sorted(tools, key=lambda tool: _asked(tool, config) is not True):
        if _asked(tool, config) is False:
            reasons[tool.name] = "strict_output=False" if tool.name == FINISH_TOOL_NAME else "strict=False"
        elif form is None:
            reasons[tool.name] = "the model does not constrain arguments, or Helix does not know that it does"
        else:
            try:
                made = strict_schema(tool.parameters, form)
            except OpenSchemaError as error:
                reasons[tool.name] = f"its schema is not closed: {error}"
                continue
            if form == "claude" and (limit := room.take(made)) is not None:
                reasons[tool.name] = limit
            else:
                schemas[tool.name] = made
    return Strictness(schemas, reasons)


def explain_refusal(failed: Failure, error: BaseException, model: str, tools: Sequence[str], strict: Any) -> Failure:
    """Return the failure with advice if the provider refused a strict schema. `tools`: the names in the order in which
    they were sent. `strict`: a container of those that are strict."""
    said = " ".join(messages_of(error))
    if failed.code != "bad_request" or not strict or not _ABOUT_SCHEMA.search(said):
        return failed
    named = [name for name in _NAMED_TOOL.findall(said) if name in tools]
    named += [tools[int(number)] for number in _NUMBERED_TOOL.findall(said) if int(number) < len(tools)]
    if named and named[0] not in strict:
        return failed
    which = named[:1] or [name for name in tools if name in strict]
    advice = [f"strict=False for the tool {name!r}" for name in which if name != FINISH_TOOL_NAME][:5]
    advice += ["strict_output=False in LLMConfig"] if FINISH_TOOL_NAME in which else []
    listed = " or ".join(advice) if named else f"{' or '.join(advice)}, the largest first"
    problem = f"the provider refused the strict schema of {' or '.join(map(repr, which[:5]))}: set {listed}"
    return failure(model, failed.code, f"{problem}. {_words_of(failed)}")


def _words_of(failed: Failure) -> str:
    """Return the provider's words, which the failure has only if it may show them."""
    _, _, rest = failed.message.partition(f"{failed.code}: ")
    return rest.rpartition("; correct the request")[0]


def _asked(tool: ToolSpec, config: LLMConfig) -> bool | None:
    return config.strict_output if tool.name == FINISH_TOOL_NAME else tool.strict


@dataclass(slots=True)
class _Room:
    """The room that Claude's limits leave in one request."""

    tools: int = MAX_TOOLS
    optional: int = MAX_OPTIONAL
    unions: int = MAX_UNIONS

    def take(self, schema: JsonObject) -> str | None:
        """Take the room for a strict schema. If it does not fit, take nothing and return the limit."""
        optional, unions = _count(schema)
        if self.tools < 1:
            return f"Claude takes at most {MAX_TOOLS} strict tools in one request"
        if optional > self.optional:
            return f"Claude takes at most {MAX_OPTIONAL} optional properties in the strict tools of one request"
        if unions > self.unions:
            return f"Claude takes at most {MAX_UNIONS} properties with several types in the strict tools of one request"
        self.tools, self.optional, self.unions = self.tools - 1, self.optional - optional, self.unions - unions
        return None


def _count(schema: JsonValue) -> tuple[int, int]:
    """Return the numbers of optional properties and of unions in a strict schema."""
    optional = unions = 0
    if isinstance(schema, dict):
        properties, required = schema.get("properties"), schema.get("required")
        if isinstance(properties, dict) and isinstance(required, list):
            optional += len(properties.keys() - {str(name) for name in required})
        unions += isinstance(schema.get("anyOf"), list) or isinstance(schema.get("type"), list)
    parts = schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ()
    for more_optional, more_unions in map(_count, parts):
        optional, unions = optional + more_optional, unions + more_unions
    return optional, unions
