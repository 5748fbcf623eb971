"""Reads the retry time and the rate limit from the headers of a provider's answers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from email.utils import parsedate_to_datetime
from typing import Any

from helix.core.model_limits import ReportedLimit, reported_limit


def limit_in(chain: Sequence[BaseException]) -> ReportedLimit | None:
    """Return the limit that the headers of an error, or of one of its causes, report. None: there is none."""
    return next((found for headers in _headers_of(chain) if (found := reported_limit(headers)) is not None), None)


def retry_after(chain: Sequence[BaseException], now: float) -> float | None:
    """Return the number of seconds after which the provider wants to be asked again. `now`, in Unix seconds, is used to
    read a date. None: the headers do not say."""
    for headers in _headers_of(chain):
        if (milliseconds := _number(headers.get("retry-after-ms"))) is not None:
            return milliseconds / 1000
        value = headers.get("retry-after")
        if (seconds := _number(value)) is not None:
            return seconds
        if value:
            try:
                return max(parsedate_to_datetime(str(value)).timestamp() - now, 0.0)
            except ValueError:
                continue
    return None


def _headers_of(chain: Sequence[BaseException]) -> Iterator[Any]:
    for error in chain:
        for headers in (_headers(error), _headers(getattr(error, "response", None))):
            if headers is not None:
                yield headers


def _headers(source: Any) -> Any:
    if isinstance(source, dict):  # botocore
        return {
            str(name).lower(): value
            for name, value in source.get("ResponseMetadata", {}).get("HTTPHeaders", {}).items()
        }
    headers = getattr(source, "headers", None) or getattr(source, "litellm_response_headers", None)
    return headers if hasattr(headers, "get") else None


def _number(value: Any) -> float | None:
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if 0 <= number < float("inf") else None
