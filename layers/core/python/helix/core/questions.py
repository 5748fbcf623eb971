"""Questions that a tool asks while it runs, and the tool with which a model asks.

Law: a recorded answer belongs to the text and the schema of its question. A tool that is entered again gets it for the same
question, and a changed question is asked again.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Any, Generic, Literal, TypedDict, Unpack, get_args, overload

from pydantic import PydanticUserError, TypeAdapter, ValidationError
from typing_extensions import TypeVar

from helix.core.checks import is_number
from helix.core.context import ToolContext
from helix.core.damage import every_problem
from helix.core.errors import InvalidInputError
from helix.core.json import JsonObject, JsonValue, check_json, check_text
from helix.core.json_schema import schema_problems
from helix.core.messages import AskedQuestion
from helix.core.tools import REMIND_PROBLEM, RemindS, reminders_of, tool

MAX_QUESTIONS = 20
"""The maximum number of questions of one call, counting each change of a question."""
MAX_TEXT_BYTES = 4_000
MAX_SCHEMA_BYTES = 16_000

T = TypeVar("T")
OnTimeout = Literal["deny", "fail", "default"]


class Timeout(TypedDict, total=False):
    """The time that a question waits; see `Question`."""

    timeout_s: float | None
    """The number of seconds, or None to wait forever."""
    on_timeout: OnTimeout
    """The action when the time is over."""
    remind_s: RemindS
    """The number of seconds after which a reminder is recorded, or several of them."""
    default: JsonValue
    """The answer for `on_timeout="default"`."""


class Question(Generic[T]):
    """A question to a person. `ctx.ask` returns the answer as `T`: a text, a choice, a list of choices, or a value of the
    schema's type.

    timeout_s: how many seconds the question waits; None: forever. A sweep ends the wait, up to a minute late, or an hour
        on a stage at rest. If several questions are open, the shortest time applies to all of them.
    on_timeout: `deny` fails the call, `fail` also fails the run, `default` answers with `default`.
    default: the answer if none comes in time, as JSON.
    remind_s: after how many seconds a reminder is recorded, while the question is open. It may be several numbers.
    schema: a pydantic model or another type that pydantic can read, or a JSON schema. None: a text, or `choices`.
    choices: the allowed answers. With `several`, the answer is a list of them.

    Raises `InvalidInputError` if the question cannot be asked.
    """

    @overload
    def __init__(
        self: Question[str], text: str, *, choices: Sequence[str] | None = None, **timeout: Unpack[Timeout]
    ) -> None: ...
    @overload
    def __init__(
        self: Question[list[str]],
        text: str,
        *,
        choices: Sequence[str],
        several: Literal[True],
        **timeout: Unpack[Timeout],
    ) -> None: ...
    @overload
    def __init__(self: Question[JsonValue], text: str, *, schema: JsonObject, **timeout: Unpack[Timeout]) -> None: ...
    @overload
    def __init__(self, text: str, *, schema: type[T], **timeout: Unpack[Timeout]) -> None: ...
    def __init__(
        self,
        text: str,
        *,
        schema: Any = None,
        choices: Sequence[str] | None = None,
        several: bool = False,
        **timeout: Unpack[Timeout],
    ) -> None:
        check_text(text, "the text of a question", MAX_TEXT_BYTES)
        if not text.strip():
            raise InvalidInputError("the text of a question is empty")
        if (several and choices is None) or (choices is not None and schema is not None):
            raise InvalidInputError(f"question {text[:80]!r}: give schema, or choices, or choices with several")
        self.text = text
        """The text that the person reads."""
        self.answer_schema: JsonObject = _choices_schema(text, choices, several)
        """The JSON schema of the answer."""
        self._reader: TypeAdapter[Any] | None = None
        if isinstance(schema, dict):
            self.answer_schema = schema
        elif schema is not None:
            try:
                self._reader = TypeAdapter(schema)
                self.answer_schema = self._reader.json_schema()
            except (PydanticUserError, NameError) as error:
                raise InvalidInputError(f"question {text[:80]!r}: schema cannot be a form: {error}") from error
        self._timeout = _checked_timeout(text, self.answer_schema, timeout)
        check_json(self.answer_schema, f"the schema of question {text[:80]!r}", MAX_SCHEMA_BYTES)

    def asked(self, problem: str | None = None) -> AskedQuestion:
        """Return the question as it is stored. `problem`: why the last answer did not fit."""
        return AskedQuestion(
            text=self.text,
            answer_schema=self.answer_schema,
            problem=problem,
            timeout_s=self._timeout.get("timeout_s"),
            on_timeout=self._timeout.get("on_timeout", "deny"),
            default_answer=self._timeout.get("default"),
            remind_s=reminders_of(self._timeout.get("remind_s"), self._timeout.get("timeout_s")) or [],
        )

    def is_same(self, stored: AskedQuestion) -> bool:
        return (self.text, self.answer_schema) == (stored.text, stored.answer_schema)

    def read(self, data: JsonValue) -> T:
        """Return the answer as its type. Raises `InvalidInputError`, naming the fields that do not fit."""
        try:
            value: Any = data if self._reader is None else self._reader.validate_python(data)
        except ValidationError as error:
            raise InvalidInputError(every_problem(error, "the answer")) from error
        return value  # type: ignore[no-any-return]

    def __repr__(self) -> str:
        return f"Question({self.text!r})"


def _choices_schema(text: str, choices: Sequence[str] | None, several: bool) -> JsonObject:
    if choices is None:
        return {"type": "string", "minLength": 1}
    given = list(choices)
    if isinstance(choices, str) or not given or not all(isinstance(choice, str) and choice for choice in given):
        raise InvalidInputError(f"question {text[:80]!r}: choices must be a list of texts that are not empty")
    if len(set(given)) < len(given):
        raise InvalidInputError(f"question {text[:80]!r}: a choice is listed twice")
    one: JsonObject = {"type": "string", "enum": [*given]}
    return {"type": "array", "items": one, "uniqueItems": True} if several else one


def _checked_timeout(text: str, schema: JsonObject, timeout: Timeout) -> Timeout:
    seconds, policy, owner = timeout.get("timeout_s"), timeout.get("on_timeout", "deny"), f"question {text[:80]!r}"
    if policy not in get_args(OnTimeout):
        raise InvalidInputError(f"{owner}: on_timeout must be one of {', '.join(get_args(OnTimeout))}")
    if seconds is not None and not (is_number(seconds) and 0 < seconds < inf):
        raise InvalidInputError(f"{owner}: timeout_s must be a number of seconds, more than 0, or None")
    if reminders_of(timeout.get("remind_s"), seconds) is None:
        raise InvalidInputError(f"{owner}: remind_s {REMIND_PROBLEM}")
    if (policy == "default") != ("default" in timeout) or (policy == "default" and seconds is None):
        raise InvalidInputError(f"{owner}: default needs on_timeout='default' and timeout_s, and the other way round")
    if policy == "default" and (problems := schema_problems(schema, timeout["default"], "default")):
        raise InvalidInputError(f"{owner}: the default does not fit its schema: {'; '.join(problems)}")
    return timeout


def timeout_of(questions: Sequence[AskedQuestion]) -> tuple[float | None, OnTimeout]:
    """Return the shortest timeout of the open questions, in seconds, and the policy of that question. The policy `default`
    needs a default for each of them."""
    limited = [question for question in open_questions(questions) if question.timeout_s is not None]
    if not limited:
        return None, "deny"
    first = min(limited, key=lambda question: question.timeout_s or 0)
    given = all(question.on_timeout == "default" for question in open_questions(questions))
    policy: OnTimeout = "deny" if first.on_timeout == "default" and not given else first.on_timeout
    return first.timeout_s, policy


def with_defaults(questions: Sequence[AskedQuestion], now: float) -> list[AskedQuestion]:
    """Return the questions with the default answers to the open ones."""
    given = {"answered": True, "timed_out": True, "at": now}
    return [q if q.answered else q.model_copy(update={**given, "data": q.default_answer}) for q in questions]


def open_questions(questions: Sequence[AskedQuestion]) -> list[AskedQuestion]:
    return [question for question in questions if not question.answered]


def with_answers(
    call_id: str, questions: Sequence[AskedQuestion], data: JsonValue, *, by: str | None, at: float
) -> list[AskedQuestion]:
    """Return the questions with the answers to the open ones: `data` is the answer to a single one, or a list with an
    answer to each. `by` and `at`: who answered, and when. Raises `InvalidInputError`, naming the question and the field
    that does not fit."""
    waiting = open_questions(questions)
    if len(waiting) > 1 and (not isinstance(data, list) or len(data) != len(waiting)):
        raise InvalidInputError(
            f"call {call_id!r} asks {len(waiting)} questions: data must be a list with an answer to each, in their order"
        )
    answers = iter(data if len(waiting) > 1 and isinstance(data, list) else [data])
    given = {"answered": True, "problem": None, "by": by, "at": at}
    found: list[AskedQuestion] = []
    for question in questions:
        if not question.answered:
            value = next(answers)
            if problems := schema_problems(question.answer_schema, value, "the answer"):
                text = question.text[:80]
                raise InvalidInputError(f"the answer to {text!r} does not fit its schema: {'; '.join(problems)}")
            question = question.model_copy(update={**given, "data": value})
        found.append(question)
    return found


@tool(inline=True)
async def ask_user(
    question: str, ctx: ToolContext, choices: list[str] | None = None, several: bool = False
) -> JsonValue:
    """Ask the user a question and wait for the answer. Use it if you cannot continue without something that only the user
    knows. Give choices if the answer is one of a few, and several=true if the user may choose more than one."""
    asked: Question[JsonValue] = Question(question, choices=choices or None, several=several and bool(choices))  # type: ignore[call-overload]
    return await ctx.ask(asked)
