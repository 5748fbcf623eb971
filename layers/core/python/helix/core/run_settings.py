"""The settings of the model's calls that a run may override, and the check of names of settings.

Law: a setting that does not exist is an error, which names the nearest one that does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from pydantic import ConfigDict, Field, ValidationError, model_validator

from helix.core.damage import first_problem
from helix.core.errors import DefinitionError, InvalidInputError
from helix.core.messages import Record
from helix.core.spelling import did_you_mean

CHOICES: Final = frozenset({"auto", "required", "none"})
"""The tool choices that are not the name of a tool."""


class RunSettings(Record):
    """The settings of the model's calls for one run. They override those of the agent."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    tool_choice: str | None = Field(default=None, min_length=1, max_length=128)
    """As in `LLMConfig.tool_choice`. None: the agent's."""
    parallel_tool_calls: bool | None = None
    """As in `LLMConfig.parallel_tool_calls`. None: the agent's."""
    top_p: float | None = Field(default=None, gt=0, le=1)
    """As in `LLMConfig.top_p`. None: the agent's."""

    @model_validator(mode="before")
    @classmethod
    def _check_names(cls, given: Any) -> Any:
        if isinstance(given, Mapping) and (problem := unknown_setting(given, cls.model_fields)) is not None:
            raise ValueError(problem)
        return given

    @property
    def changes(self) -> dict[str, Any]:
        """The settings that the run sets."""
        return self.model_dump(exclude_none=True)


GivenSettings = RunSettings | Mapping[str, Any]


def read_settings(given: GivenSettings | None) -> RunSettings | None:
    """Return the settings that a caller gave. None if there are none. Raises `DefinitionError` for a setting that does not
    exist, and `InvalidInputError` for a value that is not valid."""
    if given is None:
        return None
    if isinstance(given, Mapping) and (problem := unknown_setting(given, RunSettings.model_fields)) is not None:
        raise DefinitionError("the run", "settings", problem)
    try:
        settings = RunSettings.model_validate(given)
    except ValidationError as error:
        raise InvalidInputError(f"settings: {first_problem(error, 'the settings')}") from None
    return settings if settings.changes else None


def unknown_setting(given: Iterable[Any], known: Iterable[str]) -> str | None:
    """Return what is wrong with the first name that is not known. None if all are."""
    names = [*known]
    name = next((str(name) for name in given if name not in names), None)
    if name is None:
        return None
    return f"{name!r} is not a setting{did_you_mean(name, names) or '; the settings are ' + ', '.join(names)}"
