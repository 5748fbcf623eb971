"""Folds stream parts into a page's message, as the AI SDK does.

Law: parts fold into the same message as with `readUIMessageStream`. So a page that loads the message later shows the
same as a page that received the parts live.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from helix.core.json import JsonObject

_RESULT = ("output", "errorText")


class UIMessageFold:
    """Folds one message. Feed it every part of the message, from any number of responses."""

    def __init__(self) -> None:
        self._id, self._metadata = "", dict[str, Any]()
        self._parts: list[dict[str, Any]] = []
        self._open: dict[tuple[str, str], dict[str, Any]] = {}

    @property
    def message(self) -> JsonObject | None:
        """The message so far. None before its first part."""
        if not self._id:
            return None
        return {"id": self._id, "role": "assistant", "metadata": self._metadata, "parts": list(self._parts)}

    def feed(self, parts: Iterable[JsonObject]) -> None:
        for part in parts:
            self._add_part(dict(part))

    def _add_part(self, part: dict[str, Any]) -> None:
        kind = str(part["type"])
        name, _, what = kind.partition("-")
        if name in ("text", "reasoning"):
            self._text(name, what, part)
        elif name == "tool":
            self._tool(what, part)
        elif name == "data":
            self._data(part)
        elif kind == "start-step":
            self._parts.append({"type": "step-start"})
        elif kind == "reset-step":
            self._open = {}
            del self._parts[self._step_start() :]
        elif kind in ("file", "source-url", "source-document"):
            self._parts.append(part)
        elif kind == "start":
            self._id = str(part["messageId"])
        self._metadata |= part.get("messageMetadata") or {}

    def _text(self, kind: str, what: str, part: dict[str, Any]) -> None:
        key = (kind, str(part["id"]))
        if what == "start":
            named = {"id": part["id"]} if kind == "reasoning" else {}
            made: dict[str, Any] = {"type": kind, **named, "text": "", "state": "streaming"}
            self._parts.append(made)
            self._open[key] = made
        elif what == "delta":
            self._open[key]["text"] += part["delta"]
        else:
            self._open.pop(key)["state"] = "done"

    def _tool(self, what: str, part: dict[str, Any]) -> None:
        if what == "input-available":
            self._input(part)
            return
        if what == "approval-response":
            found = next(p for p in self._parts if p.get("approval", {}).get("id") == part["approvalId"])
            reason = {"reason": part["reason"]} if part.get("reason") is not None else {}
            found["approval"] |= {"approved": part["approved"], **reason}
            found["state"] = "approval-responded"
            return
        call = self._call(str(part["toolCallId"]))
        if what == "approval-request":
            call["approval"] = {"id": part["approvalId"]}
            if "approvalDescriptor" in part:
                call["approval"]["descriptor"] = part["approvalDescriptor"]
            call["state"] = "approval-requested"
            return
        call["state"] = what
        if what != "output-denied":
            self._set_result(call, {name: part[name] for name in _RESULT if name in part})

    def _input(self, part: dict[str, Any]) -> None:
        about = {"state": "input-available", "toolName": part["toolName"], "input": part["input"]}
        about |= {name: part[name] for name in ("toolMetadata", "providerExecuted") if name in part}
        step = self._parts[self._step_start() :]
        call = next((p for p in step if p.get("toolCallId") == part["toolCallId"]), None)
        if call is None:
            self._parts.append({"type": "dynamic-tool", "toolCallId": part["toolCallId"], **about})
        else:
            self._set_result(call, about)

    @staticmethod
    def _set_result(call: dict[str, Any], about: dict[str, Any]) -> None:
        for name in _RESULT:
            call.pop(name, None)
        call |= about

    def _call(self, call_id: str) -> dict[str, Any]:
        return next(p for p in reversed(self._parts) if p.get("toolCallId") == call_id)

    def _step_start(self) -> int:
        """Return the index of the first part of the current step."""
        places = (n for n in range(len(self._parts), 0, -1) if self._parts[n - 1]["type"] == "step-start")
        return next(places, 0)

    def _data(self, part: dict[str, Any]) -> None:
        if part.pop("transient", False):
            return
        same = (p for p in self._parts if "id" in part and (p["type"], p.get("id")) == (part["type"], part["id"]))
        known = next(same, None)
        if known is None:
            self._parts.append(part)
        else:
            known["data"] = part["data"]
