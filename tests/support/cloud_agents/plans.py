"""Messages of the e2e tests' users: a plan, as JSON, for what the model does step by step.

Law: a plan is the whole script. Any process that needs the next answer finds it in the last user message and the answers
since. Nothing else is stored, except gates and marks, which are files.
"""

from __future__ import annotations

import json
from typing import Any

Step = dict[str, Any]


def plan(*steps: Step) -> str:
    """Return the user message that asks for these steps, and then for a short end."""
    return json.dumps(list(steps))


def say(text: str, **more: Any) -> Step:
    """A text, streamed in several deltas. `think` is a thinking block before it, and `search` a query of the provider's web
    search, whose source the text cites. `tokens` are fields of the
    usage. The model waits at `gate` in the middle of
    it. `lasts`, `mark` and `deaths` make the model work for seconds in the middle of it, as the tool `linger` does."""
    return {"say": text, **more}


def see() -> Step:
    """A text with the hashes of the files that the model was shown."""
    return {"see": True}


def use(*calls: list[Any], text: str = "", **more: Any) -> Step:
    """Several concurrent calls after a text. `times` repeats the step."""
    return {"say": text, "calls": list(calls), **more}


def call(name: str, /, **arguments: Any) -> list[Any]:
    return [name, arguments]


def ask(agent: str, message: str) -> list[Any]:
    """A call of a sub-agent."""
    return call(f"subagent__{agent}", message=message)


def finish(**output: Any) -> Step:
    """The agent's output."""
    return {"say": "", "calls": [call("__finish__", **output)]}


def fail(code: str, *, unless: str = "", said: str = "") -> Step:
    """A permanent failure of the model after `said`. If the file `unless` exists, the model answers "well again"
    instead."""
    return {"say": said, "fail": code, "unless": unless}


def stumble(text: str) -> Step:
    """A failure of the model's first attempt in the middle of the text. The model repeats the call by itself."""
    return {"say": text, "stumble": True}


def steps_of(message: str) -> list[Step]:
    """Return the steps of a plan. A message that is not a plan asks for a short end at once."""
    if not message.startswith(("[{", "[]")):
        return []
    found: list[Step] = []
    for step in json.loads(message):
        found += [step] * int(step.get("times", 1))
    return found
