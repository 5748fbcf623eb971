"""Custom state between its stored form (JSON) and the agent's own type."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ValidationError

from helix.core.agents import AnyAgent
from helix.core.errors import InvalidInputError
from helix.core.json import JsonObject, size


def typed_state(agent: AnyAgent, state: JsonObject) -> Any:
    """The state as the agent's schema, or the JSON object itself where it has none. A fresh value each time."""
    schema = agent.state_schema
    return dict(state) if schema is None else schema.model_validate(state)


def check_state(agent: AnyAgent, state: JsonObject) -> JsonObject:
    """The state as the agent's schema writes it. Raises `InvalidInputError` naming the fields that are wrong."""
    if agent.state_schema is None:
        size(state)
        return state
    try:
        model: BaseModel = agent.state_schema.model_validate(state)
        return model.model_dump(mode="json")
    except ValidationError as error:
        problems = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())
        raise InvalidInputError(f"state does not fit agent {agent.name!r}: {problems}") from error
