"""A tap on litellm's stream for data that it drops: the provider's own stop reason, OpenAI's refusal text, and whether
usage was reported.

litellm translates every stop reason into OpenAI's five words ("model_context_window_exceeded" and
"MALFORMED_FUNCTION_CALL" become "stop", as if the answer were complete). It invents "stop" for a stream that ended
early and usage where none was reported, and drops refusal deltas. The tap reads the same events as they arrive. Law:
the tap only reads. It passes on events that it cannot read, and leaves unknown providers alone.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator, Callable
from typing import Any


class StreamTap:
    """The tap on one stream. `native` is the provider's stop reason if one was seen. `refusal` is the refusal text so
    far. `reported_usage` says whether the provider reported its token counts, or could not be observed."""

    def __init__(self, stream: Any) -> None:
        self.native: str | None = None
        self.refusal = ""
        self._usage_seen = False
        self._stream = stream
        self._tee: _Tee | None = None
        source, connect = getattr(stream, "completion_stream", None), getattr(stream, "make_call", None)
        if source is not None:
            stream.completion_stream = self._attach_to(source)
        elif connect is not None:  # litellm connects only when the first chunk is requested

            async def tapped(*arguments: Any, **named: Any) -> Any:
                return self._attach_to(await connect(*arguments, **named))

            stream.make_call = tapped

    @property
    def finish_reason(self) -> str | None:
        """The reason that was received. None means that the stream was cut off, even if litellm reports a reason."""
        reported = getattr(self._stream, "received_finish_reason", None)
        return self.native or reported or getattr(self._stream, "intermittent_finish_reason", None)

    @property
    def reported_usage(self) -> bool:
        return self._usage_seen or self._tee is None

    async def close(self) -> None:
        """Close the connection. litellm's own `aclose` skips sources that do not have such a method themselves."""
        await self._stream.aclose()
        if self._tee is not None:
            await self._tee.aclose()

    def _attach_to(self, source: Any) -> Any:
        """Return `source`, or the tap in its place. The tap reads lines if there are any, otherwise parsed chunks."""
        lines = getattr(source, "streaming_response", None)
        if hasattr(lines, "__anext__"):
            source.streaming_response = self._tee = _Tee(lines, self._read_line)
        elif hasattr(source, "__anext__"):
            self._tee = _Tee(source, self._read_chunk)
            return self._tee
        return source

    def _read_chunk(self, chunk: Any) -> None:
        reported = chunk.get("usage") if isinstance(chunk, dict) else getattr(chunk, "usage", None)
        self._usage_seen = self._usage_seen or bool(reported)
        choices = getattr(chunk, "choices", None)
        text = getattr(getattr(choices[0], "delta", None), "refusal", None) if choices else None
        if isinstance(text, str):
            self.refusal += text

    def _read_line(self, line: Any) -> None:
        text = line.decode("utf-8", "replace") if isinstance(line, bytes) else str(line)
        self._usage_seen = self._usage_seen or '"usage"' in text or '"usageMetadata"' in text
        if '"stop_reason"' not in text and '"finishReason"' not in text:
            return
        event = json.loads(text[text.find("{") :])
        delta = event.get("delta") or {}
        candidates = event.get("candidates") or [{}]
        reason = delta.get("stop_reason") or candidates[0].get("finishReason")
        self.native = reason if isinstance(reason, str) else self.native


class _Tee:
    """An async iterator that shows each item before it passes it on. Iterating over it again iterates over its source
    again."""

    def __init__(self, source: Any, see: Callable[[Any], None]) -> None:
        self._source, self._see = source, see
        self._items = source

    def __aiter__(self) -> AsyncIterator[Any]:
        self._items = aiter(self._source)
        return self

    async def __anext__(self) -> Any:
        item = await anext(self._items)
        # Reading is optional: an event of another form is passed on.
        with contextlib.suppress(Exception):
            self._see(item)
        return item

    async def aclose(self) -> None:
        close = getattr(self._source, "aclose", None) or getattr(self._source, "close", None)
        if close is not None:
            await close()
