"""Matches the answers of a page with the calls that wait."""

from __future__ import annotations

from collections.abc import Mapping

from helix.core.errors import InvalidInputError
from helix.core.handles import Confirmation
from helix.http.requests import Given
from helix.http.run_start import same_json
from helix.http.turns import Question
from helix.stream.ui_calls import question_id


def confirmation_of(asked: Question, given: Given, user: str | None) -> Confirmation:
    """Build the confirmation. If the page changed the call's input, the changed arguments are executed."""
    arguments, shown = given.arguments, given.shown
    if arguments is None and shown is not None and given.approved and asked.kind == "approval":
        if not isinstance(shown, dict):
            raise InvalidInputError(f"the input of call {asked.call_id!r} is not an object: nothing was executed")
        arguments = None if same_json(asked.arguments, shown) else shown
    round = asked.round if asked.kind == "question" else None
    return Confirmation(asked.call_id, given.approved, given.data, given.reason, arguments, user, round)


def only_question(waiting: Mapping[str, Question], shown: str, given: Given) -> Question | None:
    """Return the questions of the call with this id. A page's result of the call itself is not an answer to them."""
    if given.result:
        return None
    return next((asked for key, asked in waiting.items() if key == question_id(shown, asked.round)), None)
