"""The state tracker: custom state that is changed atomically and records its changes as patches.

Law: `apply(base, get_patches())` equals `to_json()`, where base is the state at creation or at the last reset. A change
that raises, or whose result the schema rejects, leaves the state and the patches unchanged. The tracker copies every
value that it accepts or returns.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any, Generic, TypeAlias, TypeVar, cast, overload

from pydantic import BaseModel, ValidationError

from helix.core.damage import every_problem
from helix.core.errors import InvalidInputError
from helix.core.json import MAX_STATE_BYTES, JsonObject, JsonValue, check_json, dumps
from helix.core.patches import ArrayDeltaMode, diff, json_copy

StateT = TypeVar("StateT")
ModelT = TypeVar("ModelT", bound=BaseModel)
Draft: TypeAlias = Annotated[StateT, "a copy of the state that may be changed freely"]


class StateTracker(Generic[StateT]):
    """Custom state and a record of its changes. `initial` is a JSON object or an instance of `schema`. Without a schema
    the state is any JSON object.

    Fields added by a newer schema get their defaults with the first change. Sets are stored as lists, so prefer lists.
    """

    def __init__(
        self,
        initial: StateT | Mapping[str, JsonValue],
        *,
        schema: type[StateT] | None = None,
        array_delta_mode: ArrayDeltaMode = "append_only",
    ) -> None:
        if array_delta_mode not in ("append_only", "full_replace"):
            raise InvalidInputError(f"array_delta_mode is {array_delta_mode!r}: use 'append_only' or 'full_replace'")
        if schema is None and isinstance(initial, BaseModel):
            schema = cast("type[StateT]", type(initial))
        self._schema = cast("type[BaseModel] | None", schema)
        self.array_delta_mode: ArrayDeltaMode = array_delta_mode
        self._state = dump_state(initial) if isinstance(initial, BaseModel) else _object(initial)
        self._base = self._state
        self._open(self._state)

    def update(self, change: Callable[[StateT], Any]) -> StateT:
        """Apply `change` to a draft in place, and return the new state. The return value of `change` is ignored.

        Exceptions from `change` propagate. Raises `InvalidInputError`, naming the fields, if the schema rejects the
        result.
        """
        before = self._state
        draft = self._open(before)
        returned = change(draft)
        if inspect.iscoroutine(returned):
            returned.close()
            raise InvalidInputError("update takes a plain function, not an async one: use draft() around an await")
        self._commit(before, draft)
        return self.get_state()

    @contextmanager
    def draft(self) -> Generator[StateT, None, None]:
        """Open a mutable draft: `with tracker.draft() as state:`. Leaving the block validates and records the changes.
        An exception discards them."""
        before = self._state
        draft = self._open(before)
        yield draft
        self._commit(before, draft)

    def get_state(self) -> StateT:
        """Return a copy of the state. Modifying it does not affect the tracker."""
        return self._open(self._state)

    def get_patches(self) -> list[JsonObject]:
        """Return the RFC 6902 operations that turn the base into the current state. Empty if the state was changed and
        changed back."""
        return diff(self._base, self._state, self.array_delta_mode)

    def reset_patches(self) -> None:
        """Make the current state the new base."""
        self._base = self._state

    def to_json(self) -> JsonObject:
        return cast(JsonObject, json_copy(self._state))

    def _open(self, state: JsonObject) -> StateT:
        return cast(StateT, json_copy(state) if self._schema is None else load_state(self._schema, state))

    def _commit(self, before: JsonObject, draft: StateT) -> None:
        after = dump_state(draft) if isinstance(draft, BaseModel) else _object(draft)
        if self._schema is not None:
            after = dump_state(load_state(self._schema, after))
        check_json(after, "the state", MAX_STATE_BYTES)
        if self._state is not before:
            raise InvalidInputError("the state changed while this draft was open: use one draft at a time")
        self._state = after


@overload
def create_state_tracker(
    initial: ModelT, *, schema: None = None, array_delta_mode: ArrayDeltaMode = "append_only"
) -> StateTracker[ModelT]: ...
@overload
def create_state_tracker(
    initial: ModelT | Mapping[str, JsonValue],
    *,
    schema: type[ModelT],
    array_delta_mode: ArrayDeltaMode = "append_only",
) -> StateTracker[ModelT]: ...
@overload
def create_state_tracker(
    initial: Mapping[str, JsonValue], *, schema: None = None, array_delta_mode: ArrayDeltaMode = "append_only"
) -> StateTracker[JsonObject]: ...
def create_state_tracker(
    initial: Any, *, schema: Any = None, array_delta_mode: ArrayDeltaMode = "append_only"
) -> StateTracker[Any]:
    """Create a `StateTracker`, typed by the schema, or as a JSON object without one."""
    return StateTracker(initial, schema=schema, array_delta_mode=array_delta_mode)


def _object(value: Any) -> JsonObject:
    if not isinstance(value, Mapping):
        raise InvalidInputError(f"state is a JSON object or an instance of its schema, not {type(value).__name__}")
    return cast(JsonObject, json_copy(value))


def load_state(schema: type[BaseModel], state: JsonObject) -> BaseModel:
    try:
        return schema.model_validate_json(dumps(state), by_alias=True, by_name=True)
    except ValidationError as error:
        raise InvalidInputError(f"state is no valid {schema.__name__}: {every_problem(error, 'state')}") from error


def dump_state(model: BaseModel) -> JsonObject:
    """Return the state by field name and without computed fields, in the form that `load_state` accepts."""
    options: dict[str, Any] = {"mode": "json", "round_trip": True, "by_alias": False, "warnings": False}
    try:
        dumped = model.model_dump(**options)
    except (ValueError, RecursionError) as error:  # too deep, inside itself, or not JSON
        for name in type(model).model_fields:
            try:
                model.model_dump(include={name}, **options)
            except (ValueError, RecursionError):
                raise InvalidInputError(f"state is no valid {type(model).__name__}: {name}: {error}") from error
        raise InvalidInputError(f"state is no valid {type(model).__name__}: {error}") from error
    return _object(dumped)
