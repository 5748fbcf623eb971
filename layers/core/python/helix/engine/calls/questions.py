"""The questions of one execution of a tool.

Law: a question without a recorded answer ends the execution, whatever the tool then returns or raises. Its answer starts
another execution, which gets the recorded answers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from typing import Any

from helix.core.errors import InvalidInputError
from helix.core.messages import AskedQuestion
from helix.core.questions import MAX_QUESTIONS, Question


class CallAsksError(BaseException):
    """The tool waits for answers. Not an `Exception`, so that a tool's `except Exception` does not catch it."""


class Asking:
    """The questions that a call has asked so far. `recorded`: those of earlier executions, with their answers."""

    def __init__(self, recorded: Sequence[AskedQuestion]) -> None:
        self._questions = list(recorded)
        self._unused = list(range(len(recorded)))
        self._is_open = False

    @property
    def open(self) -> list[AskedQuestion] | None:
        """All questions of the call, if one of them has no answer. None: none is open."""
        return self._questions if self._is_open else None

    async def ask(self, questions: Sequence[Question[Any]]) -> list[Any]:
        """Return the answers. Raises `CallAsksError` if one is missing, and `InvalidInputError` if the call asks too
        much."""
        if not questions or not all(isinstance(question, Question) for question in questions):
            raise InvalidInputError("ctx.ask takes one or more questions: await ctx.ask(Question('...'))")
        answers = [self._answer(question) for question in questions]
        given = [answer[0] for answer in answers if answer is not None]
        if len(given) == len(answers):
            return given
        await asyncio.sleep(0)  # the other questions of an asyncio.gather are asked in the same round
        raise CallAsksError

    def _answer(self, question: Question[Any]) -> tuple[Any] | None:
        """Return the recorded answer. None: the question is open now."""
        for index in self._unused:
            stored = self._questions[index]
            if stored.answered and question.is_same(stored):
                self._unused.remove(index)
                try:
                    return (question.read(stored.data),)
                except InvalidInputError as error:
                    self._questions[index] = question.asked(str(error))
                    self._is_open = True
                    return None
        if len(self._questions) >= MAX_QUESTIONS:
            raise InvalidInputError(
                f"a call may ask {MAX_QUESTIONS} questions at most: does the text of one change with each execution?"
            )
        self._questions.append(question.asked())
        self._is_open = True
        return None

    async def watch(self, execution: Awaitable[Any]) -> Any:
        """Return the tool's result. Raises `CallAsksError` if the tool asked a question, even if it caught the error."""
        try:
            result = await execution
        except (KeyboardInterrupt, GeneratorExit, asyncio.CancelledError):
            raise
        except BaseException:
            if self._is_open:
                raise CallAsksError from None
            raise
        if self._is_open:
            raise CallAsksError
        return result
