"""A model that follows a script, for tests, benchmarks and examples.

Law: deterministic. With `by="position"` it is also stateless: the next answer depends only on the conversation. So a
process that resumes a session continues where the dead process stopped.
"""

from __future__ import annotations

import inspect
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from pydantic import TypeAdapter

from helix.adapters.models.playback import DELTA_CHARS, OutOfTimeError, Pace, out_of_time, play
from helix.adapters.system import SystemClock
from helix.core.errors import InvalidInputError, ScriptExhaustedError
from helix.core.messages import AnyMessage, AssistantMessage
from helix.core.steps import AnyStepResult, StepResult
from helix.core.tools import SUBAGENT_TOOL_PREFIX
from helix.core.usage import Usage
from helix.ports.catalog import ModelCatalog
from helix.ports.clock import Clock
from helix.ports.model import BaseAdapter, LLMGenerateInput

Entry: TypeAlias = "str | Mapping[str, Any] | AnyStepResult | BaseException | Callable[[LLMGenerateInput], Any]"
Script: TypeAlias = "Sequence[Entry] | Mapping[str, Sequence[Entry]]"
_RESULT: TypeAdapter[AnyStepResult] = TypeAdapter(StepResult)
_TYPES = {
    "tool_calls": "tool_calls",
    "sub_agent_calls": "tool_calls",
    "output": "structured_output",
    "error": "error",
    "content": "text",
}


@dataclass(frozen=True, slots=True)
class _Line:
    """A parsed entry of the script."""

    result: AnyStepResult | None
    """The answer. None: `raises` is raised instead."""
    raises: BaseException | None
    """The exception to raise. None: `result` is returned."""
    delay_s: float
    """The delay before the answer or the exception, in seconds."""
    delta_delay_s: float | None
    """The delay before each delta, in seconds. None: the model's own setting."""


class ScriptedModel(BaseAdapter):
    """A model that answers from a script: a list of entries, or a mapping from agent type to such a list.

    An entry is a string, a step result, an exception to raise, or a function of the request that returns one of these.
    A step result is a model or a mapping of its fields. A mapping may omit `type` and the usage (one call, no tokens).
    It may also omit the ids of its tool calls, which become `call_0`, `call_1`, ... counted over the conversation. It
    may give `thinking` as a string. Three more keys are `delay_s` before the answer, `delta_delay_s` before each delta,
    and `raise_` to raise an exception. Calls named `subagent__...` become sub-agent calls.

    by: `queue` gives each request the next entry. `position` gives the entry whose index is the number of assistant
    messages in the request's conversation. repeat: start again after the last entry; otherwise `ScriptExhaustedError`
    is raised. record: keep every request in `requests`.
    """

    def __init__(
        self,
        script: Script,
        *,
        by: Literal["queue", "position"] = "queue",
        repeat: bool = False,
        delay_s: float = 0.0,
        delta_delay_s: float = 0.0,
        delta_chars: int = DELTA_CHARS,
        model: str = "scripted",
        record: bool = True,
        clock: Clock | None = None,
    ) -> None:
        if by not in ("queue", "position"):
            raise InvalidInputError(f"by is {by!r}: use 'queue' or 'position'")
        if delta_chars < 1:
            raise InvalidInputError(f"delta_chars is {delta_chars}: it must be at least 1")
        self._routes = dict(script) if isinstance(script, Mapping) else None
        self._script = [] if isinstance(script, Mapping) else list(script)
        self._by, self._repeat, self._record = by, repeat, record
        self._delay_s, self._delta_delay_s, self._delta_chars = delay_s, delta_delay_s, delta_chars
        self._model = model
        self._clock: Clock = clock or SystemClock()
        self._given: defaultdict[str, int] = defaultdict(int)
        self.requests: list[LLMGenerateInput] = []
        for entry in [*self._script, *(entry for route in (self._routes or {}).values() for entry in route)]:
            if not callable(entry):
                self._read(entry, 0)

    def unsupported(self, request: LLMGenerateInput, catalog: ModelCatalog | None) -> str | None:
        return None  # a program accepts all files, and reads none

    async def generate_step(self, request: LLMGenerateInput) -> AnyStepResult:
        if self._record:
            self.requests.append(replace(request, messages=tuple(request.messages)))
        entry = self._next(request)
        if callable(entry):
            entry = entry(request)
            if inspect.isawaitable(entry):
                entry = await entry
        line = self._read(entry, _calls_so_far(request.messages))
        pace = Pace(self._clock, request.timeout_s)
        delta_delay_s = self._delta_delay_s if line.delta_delay_s is None else line.delta_delay_s
        try:
            await pace.wait(line.delay_s)
            if line.result is None:
                raise line.raises or InvalidInputError("a script entry has neither an answer nor an exception")
            return await play(line.result, request, pace, delta_delay_s, self._delta_chars)
        except OutOfTimeError:
            return out_of_time(request, self._model)

    def _next(self, request: LLMGenerateInput) -> Any:
        key = "" if self._routes is None else request.agent_type
        entries = self._script if self._routes is None else self._routes.get(key, ())
        if self._by == "position":
            index = sum(isinstance(m, AssistantMessage) for m in request.messages)
        else:
            index = self._given[key]
            self._given[key] += 1
        if self._repeat and entries:
            index %= len(entries)
        if index >= len(entries):
            raise ScriptExhaustedError(
                f"agent {request.agent_type!r} asked for answer {index + 1}, and its script has {len(entries)}: "
                "add an entry, or pass repeat=True"
            )
        return entries[index]

    def _read(self, entry: Any, first_call: int) -> _Line:
        if isinstance(entry, BaseException):
            return _Line(None, entry, self._delay_s, None)
        if isinstance(entry, str):
            entry = {"content": entry}
        if not isinstance(entry, Mapping):
            entry = _RESULT.validate_python(entry).model_dump()
        fields = dict(entry)
        raises = fields.pop("raise_", None)
        delay_s, delta_delay_s = fields.pop("delay_s", self._delay_s), fields.pop("delta_delay_s", None)
        if raises is not None:
            return _Line(None, raises, delay_s, delta_delay_s)
        fields.setdefault("type", next((kind for key, kind in _TYPES.items() if key in fields), None))
        fields["model"] = fields.get("model") or self._model
        if fields.get("usage") in (None, Usage().model_dump()):
            fields["usage"] = Usage(calls=1)
        if isinstance(fields.get("thinking"), str):
            fields["thinking"] = [{"text": fields["thinking"]}]
        if fields["type"] == "tool_calls":
            fields.update(_number_calls(fields, first_call))
        return _Line(_RESULT.validate_python(fields), None, delay_s, delta_delay_s)


def _calls_so_far(messages: Sequence[AnyMessage]) -> int:
    return sum(len(m.tool_calls) for m in messages if isinstance(m, AssistantMessage))


def _number_calls(fields: Mapping[str, Any], first: int) -> dict[str, Any]:
    """Return both lists of calls with ids, and the order in which they were written."""
    tools: list[dict[str, Any]] = []
    children: list[dict[str, Any]] = []
    ids: list[str] = []
    for call in [*fields.get("tool_calls", ()), *fields.get("sub_agent_calls", ())]:
        made = dict(call if isinstance(call, Mapping) else call.model_dump())
        made["id"] = made.get("id") or f"call_{first + len(ids)}"
        ids.append(made["id"])
        if str(made.get("name", "")).startswith(SUBAGENT_TOOL_PREFIX):
            made["agent_type"] = made.pop("name").removeprefix(SUBAGENT_TOOL_PREFIX)
            made["input"] = made.pop("arguments", {})
        (children if "agent_type" in made else tools).append(made)
    return {"tool_calls": tools, "sub_agent_calls": children, "order": fields.get("order") or ids}
