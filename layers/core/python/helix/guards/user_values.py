"""A guard of calls against injected instructions: the values that decide where something goes come from the user.

Text that a tool returned may tell the model to send data or money elsewhere. Such a value is in no message of the user.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Literal

from helix.core.checks import require
from helix.core.guards import GuardContext, GuardFunction
from helix.core.json import JsonValue
from helix.core.verdicts import Allow, AnyVerdict, Ask, Block

_SCHEME = re.compile(r"\b[a-z][a-z0-9+.\-]{0,30}://")
_NUMBER = re.compile(r"(?<![\w.,\-])\d[\d,]{0,30}(?:\.\d{1,30})?(?![\w]|[.,]\d)")
_ANY = r"[^\s,;<>\"'@/\\]*"
"""The characters that a `*` stands for: they end neither a name nor an address."""
_SHOWN = 80
"""The number of characters of a value that the reason repeats."""
_MOST = 1_000
"""The maximum number of texts and numbers in one call. The user named none of a call with more."""
_TRIED = 100
"""The number of places in the messages at which a text is compared, so that no call takes quadratic time."""
_BEFORE = re.compile(r"[\w.+@/\-]")
_AFTER = re.compile(r"[\w@]|[.+/\-]\w")


def named_by_user(
    *arguments: str, allowed: Sequence[str] = (), otherwise: Literal["ask", "block"] = "ask"
) -> GuardFunction:
    """Return a guard of calls that lets the values of these arguments pass only if the user named them.

    A text passes if a message of the user contains it as a whole word or phrase, regardless of case and of `https://`. A
    number passes if a message contains an equal one. In lists and objects, each text and number must pass, also the keys.
    An argument that is absent, empty or a bool passes.

    allowed: further texts that pass. One `*` stands for any characters but spaces, quotes and `@/\\,;<>`, as in
        `*@example.com`.
    otherwise: whether other values ask a person or block the call.

    Raises `DefinitionError` if a parameter is not valid.
    """
    owner = "guard 'named_by_user'"
    valid = bool(arguments) and all(isinstance(name, str) and name for name in arguments)
    require(valid, owner, "arguments", "must be the names of one argument or more")
    listed = isinstance(allowed, Sequence) and not isinstance(allowed, str)
    valid = listed and all(isinstance(text, str) and text.strip(" *") and text.count("*") < 2 for text in allowed)
    require(valid, owner, "allowed", "must be a list of texts, each with one '*' at most, and not only that")
    require(otherwise in ("ask", "block"), owner, "otherwise", "must be 'ask' or 'block'")
    patterns = [re.compile(_ANY.join(map(re.escape, text.lower().split("*")))) for text in allowed]

    def named_by_user(value: Any, context: GuardContext) -> AnyVerdict:
        if context.on != "call":
            return Block(f"named_by_user judges calls, not the {context.on}")
        text = "\n".join(_plain(message) for message in context.user_messages)
        numbers = {float(found.replace(",", "")) for found in _NUMBER.findall(text)}
        found = [(name, leaf) for name in arguments for leaf in _leaves(value.get(name))]
        unnamed = []
        for name, leaf in found:
            known = leaf in numbers if not isinstance(leaf, str) else _is_in(_plain(leaf), text)
            exact = str(leaf).lower().strip()
            if len(found) > _MOST or not (known or any(pattern.fullmatch(exact) for pattern in patterns)):
                unnamed.append(f"{name} {str(leaf)[:_SHOWN]!r}")
            if len(unnamed) == 5:
                break
        if not unnamed:
            return Allow()
        reason = f"the user did not name {', '.join(unnamed)}"
        return Ask(reason) if otherwise == "ask" else Block(reason)

    return named_by_user


def _plain(text: str) -> str:
    return " ".join(_SCHEME.sub("", text.lower()).split())


def _is_in(value: str, text: str) -> bool:
    """Return whether the text contains the value, not as a part of a longer word, address or path."""
    place = -1
    for _ in range(_TRIED):
        place = text.find(value, place + 1)
        if place < 0:
            return not value
        end = place + len(value)
        if not _BEFORE.match(text[max(0, place - 1) : place]) and not _AFTER.match(text, end):
            return True
    return not value


def _leaves(value: JsonValue) -> Iterator[str | int | float]:
    match value:
        case bool() | None:
            return
        case str() | int() | float():
            yield value
        case list():
            for item in value:
                yield from _leaves(item)
        case dict():
            for key, item in value.items():
                yield key
                yield from _leaves(item)
