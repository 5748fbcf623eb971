"""The base of stored rows: how a row is read and written.

Law: a row stays readable whatever another version wrote. Unknown fields are ignored, and unknown values of a status are
kept.
"""

from __future__ import annotations

from typing import Annotated, Any, Self, TypeVar

from pydantic import ConfigDict, PlainSerializer, PlainValidator

from helix.core.damage import UNREADABLE, first_problem
from helix.core.errors import DamagedRowError, damaged_row
from helix.core.messages import Record


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("must be a string")
    return value


ValueT = TypeVar("ValueT", bound=str)


AsStored = Annotated[ValueT, PlainValidator(_text), PlainSerializer(str)]
"""A Literal type for stored values that accepts any string, so that a row remains readable if another version wrote an
unknown value."""


class Stored(Record):
    """The base of stored rows. Fields that equal their default are not stored, because the store bills by the byte.
    Unknown fields of newer versions are ignored."""

    model_config = ConfigDict(extra="ignore")

    @classmethod
    def model_validate(cls, obj: Any, **options: Any) -> Self:
        """Parse a row. Raises `DamagedRowError` for a value that is not a row of this kind."""
        try:
            return super().model_validate(obj, **options)
        except UNREADABLE as error:
            of = f" of session {obj['session_id']!r}" if isinstance(obj, dict) and "session_id" in obj else ""
            raise DamagedRowError(f"a stored {cls.__name__}{of} cannot be read: {first_problem(error)}") from error

    @classmethod
    def read(cls, partition: str, sort: str, value: Any) -> Self:
        """Parse the row stored under this key of the table `sessions`. Raises `DamagedRowError`, which names the
        key."""
        try:
            return super().model_validate(value)
        except UNREADABLE as error:
            raise damaged_row("sessions", partition, sort, first_problem(error)) from error

    def dump(self) -> dict[str, Any]:
        return self.model_dump(mode="json", exclude_defaults=True)
