"""The conversation as an AG-UI front end builds it from events, for use in a MESSAGES_SNAPSHOT.

Law: it follows the reducer of `@ag-ui/client`, so that a snapshot removes only what was discarded.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import deepcopy
from typing import Any

from helix.core.json import JsonObject, JsonValue


class AgUiMessages:
    def __init__(self, messages: Sequence[JsonObject]) -> None:
        self._messages: list[dict[str, Any]] = [deepcopy(dict(message)) for message in messages]

    def snapshot(self) -> list[JsonObject]:
        return deepcopy(self._messages)

    def add(self, message: JsonObject) -> None:
        """Add a message, unless it is already there."""
        if self._find(str(message["id"])) is None:
            self._messages.append(dict(message))

    def append(self, message_id: str, delta: str) -> None:
        if (message := self._find(message_id)) is not None:
            message["content"] = (message.get("content") or "") + delta

    def discard(self, ids: Iterable[str]) -> None:
        """Remove messages. Reasoning is emptied instead of removed, because a snapshot without any reasoning leaves the
        reader's reasoning unchanged."""
        gone = set(ids)
        calls: set[str] = set()  # those that the provider executed for the answer
        for message in self._messages:
            if message["id"] in gone:
                calls.update(call["id"] for call in message.get("toolCalls", []))
                if message["role"] == "reasoning":
                    message["content"] = ""
        self._messages = [
            m
            for m in self._messages
            if (m["id"] not in gone or m["role"] == "reasoning") and m.get("toolCallId") not in calls
        ]

    def rename(self, ids: Iterable[str], suffix: str) -> list[str]:
        """Rename these messages. Return their new ids."""
        old = set(ids)
        for message in self._messages:
            if message["id"] in old:
                message["id"] = f"{message['id']}/{suffix}"
        return [f"{message_id}/{suffix}" for message_id in old]

    def has_call(self, call_id: str) -> bool:
        return self._call(call_id) is not None

    def change_arguments(self, call_id: str, arguments: str) -> bool:
        """Change the call's arguments. Return whether they differ from the previous ones."""
        call = self._call(call_id)
        if call is None or call["function"]["arguments"] == arguments:
            return False
        call["function"]["arguments"] = arguments
        return True

    def add_call(self, parent: str, call_id: str, name: str, arguments: str, tag: JsonObject) -> None:
        """Add a call to the `parent` message, creating the message if it does not exist (it may have no text)."""
        message = self._find(parent)
        if message is None:
            message = {"id": parent, "role": "assistant", **tag}
            self._messages.append(message)
        call = {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
        message.setdefault("toolCalls", []).append(call)

    def add_result(self, result_id: str, call_id: str, content: JsonValue, tag: JsonObject) -> None:
        """Add a call's result, after the message that made the call and the results that already follow it."""
        if self._find(result_id) is not None:  # the run's claim closed the call: its result is there
            return
        result = {"id": result_id, "role": "tool", "toolCallId": call_id, "content": content, **tag}
        owner = next((n for n, m in enumerate(self._messages) if _has(m, call_id)), None)
        if owner is None:
            self._messages.append(result)
            return
        place = owner + 1
        while place < len(self._messages) and self._messages[place]["role"] == "tool":
            place += 1
        self._messages.insert(place, result)

    def _find(self, message_id: str) -> dict[str, Any] | None:
        return next((m for m in reversed(self._messages) if m["id"] == message_id), None)

    def _call(self, call_id: str) -> dict[str, Any] | None:
        calls = (call for m in reversed(self._messages) for call in m.get("toolCalls", []))
        return next((call for call in calls if call["id"] == call_id), None)


def _has(message: dict[str, Any], call_id: str) -> bool:
    return any(call["id"] == call_id for call in message.get("toolCalls", []))
