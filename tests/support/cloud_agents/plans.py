"""What a user of the e2e tests says: a plan, as JSON, of what the model is to do step by step.

Law: a plan is the whole script. Whichever process is asked for the next answer finds it in the last user message and the
answers since; nothing else is remembered anywhere, but what gates and marks (files) tell.
"""

from __future__ import annotations

import json
from typing import Any

Step = dict[str, Any]


def plan(*steps: Step) -> str:
    """The user message that asks for these steps, and then for a short end."""
    return json.dumps(list(steps))


def say(text: str, **more: Any) -> Step:
    """A text, streamed in several deltas. `think`: a thinking block before it. `gate`: wait there in the middle of it.
    `lasts`, `mark`, `deaths`: take so many seconds in the middle of it, as the tool `linger` does."""
    return {"say": text, **more}


def use(*calls: list[Any], text: str = "", **more: Any) -> Step:
    """These calls at once, behind a text. `times`: so many steps like this one."""
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
    """The model fails for good after `said`, unless the file `unless` is there: then it says "well again"."""
    return {"say": said, "fail": code, "unless": unless}


def stumble(text: str) -> Step:
    """The model's first try fails in the middle of the text, and it repeats the call by itself."""
    return {"say": text, "stumble": True}


def steps_of(message: str) -> list[Step]:
    """The steps of a plan; a message that is none asks for a short end at once."""
    if not message.startswith("["):
        return []
    found: list[Step] = []
    for step in json.loads(message):
        found += [step] * int(step.get("times", 1))
    return found
