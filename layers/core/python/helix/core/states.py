"""Converts custom state between its stored form (JSON) and the agent's own type."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from helix.core.agents import AnyAgent
from helix.core.errors import InvalidInputError
from helix.core.json import MAX_STATE_BYTES, JsonObject, check_json
from helix.core.patches import json_copy
from helix.core.tracker import dump_state, load_state


def typed_state(agent: AnyAgent, state: JsonObject) -> Any:
    """Return the state as an instance of the agent's schema, or as a JSON object if the agent has no schema. Each call
    returns a new value."""
    return json_copy(state) if agent.state_schema is None else load_state(agent.state_schema, state)


def refused_state(agent: AnyAgent, error: InvalidInputError) -> str:
    """Return the error message for a run that cannot continue because the agent's schema has changed and rejects the
    stored state."""
    return f"the stored state does not fit the state schema of agent {agent.name!r}: {error}; repair the schema, then retry"


def merged_state(agent: AnyAgent, state: JsonObject, given: Mapping[str, Any]) -> JsonObject:
    """Return `state` with its top-level fields replaced by those of `given`, in the form that the agent's schema
    serializes. `given` may use the schema's aliases. Raises `InvalidInputError`, naming the invalid fields."""
    schema = agent.state_schema
    try:
        if schema is None:
            merged: JsonObject = json_copy({**state, **given})
        else:
            named = {name: json_copy(value) for name, value in _by_name(schema, given).items()}
            merged = dump_state(load_state(schema, {**state, **named}))
        check_json(merged, "the state", MAX_STATE_BYTES)
        return merged
    except InvalidInputError as error:
        raise InvalidInputError(f"state does not fit agent {agent.name!r}: {error}") from error


def _by_name(schema: type[BaseModel], given: Mapping[str, Any]) -> dict[str, Any]:
    names = {}
    for name, field in schema.model_fields.items():
        names.update({alias: name for alias in (field.alias, field.validation_alias) if isinstance(alias, str)})
    return {names.get(key, key): value for key, value in given.items()}
