"""The model for all agents of a process, by a name that other processes understand too."""

from __future__ import annotations

from functools import cache

from helix.core.agents import AnyAgent
from helix.core.errors import InvalidInputError
from helix.ports.model import LLMAdapter
from helix.runtime.agents import Models
from helix.runtime.importing import load

IMPORTED = "import:"


def named_models(name: str | None) -> Models | None:
    """`import:module:attribute` (an adapter, or a function agent -> adapter), `demo`, or any litellm name; None for each
    agent's own. Raises `InvalidInputError` where nothing is there."""
    if not name:
        return None
    if name.startswith(IMPORTED):
        place = name.removeprefix(IMPORTED)
        found: Models = load(place)
        if not callable(found) and not hasattr(found, "generate_step"):
            raise InvalidInputError(f"the model {place!r} is neither an adapter nor a function of an agent")
        return found
    from helix.runtime.models import choose_model

    @cache
    def chosen(agent: AnyAgent) -> LLMAdapter:
        adapter = choose_model(agent, name, {}).adapter
        assert adapter is not None, "a model was asked for by name"
        return adapter

    return chosen
