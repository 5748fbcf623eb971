"""The usage of model calls, in tokens and in integer micro-dollars, so that sums are exact."""

from __future__ import annotations

from pydantic import Field

from helix.core.messages import Record


class Usage(Record, frozen=True):
    """The tokens and cost of one call, or the total of several calls."""

    prompt_tokens: int = Field(default=0, ge=0)
    """The prompt tokens, including `cached_tokens`."""
    completion_tokens: int = Field(default=0, ge=0)
    """The answer tokens, including `reasoning_tokens`."""
    reasoning_tokens: int = Field(default=0, ge=0)
    """The answer tokens spent on reasoning."""
    cached_tokens: int = Field(default=0, ge=0)
    """The prompt tokens that the provider read from its cache."""
    written_tokens: int = Field(default=0, ge=0)
    """The prompt tokens that the provider wrote to its cache. 0 if it does not report them."""
    lost_tokens: int = Field(default=0, ge=0)
    """The prompt tokens that the provider's cache should have had, and that were not read from it
    (`core.lost_caches`)."""
    cost_micros: int = Field(default=0, ge=0)
    """The cost in millionths of a US dollar. A call without a known price adds 0."""
    calls: int = Field(default=0, ge=0)
    """The number of calls. Every attempt that the provider may bill counts."""
    unknown_calls: int = Field(default=0, ge=0)
    """The number of calls that may have used more than was reported, because they were cut off or their answer had no
    usage."""
    priced: bool = True
    """Whether all prices were known."""

    @property
    def total_tokens(self) -> int:
        return self.prompt_tokens + self.completion_tokens

    @property
    def cost_usd(self) -> float:
        return self.cost_micros / 1_000_000

    def __eq__(self, other: object) -> bool:
        """Compare like pydantic, but ten times faster, because every written row is compared with its defaults."""
        return isinstance(other, Usage) and self.__dict__ == other.__dict__

    def __add__(self, other: Usage) -> Usage:
        if other.__dict__ == _NOTHING.__dict__:
            return self
        return Usage(
            prompt_tokens=self.prompt_tokens + other.prompt_tokens,
            completion_tokens=self.completion_tokens + other.completion_tokens,
            reasoning_tokens=self.reasoning_tokens + other.reasoning_tokens,
            cached_tokens=self.cached_tokens + other.cached_tokens,
            written_tokens=self.written_tokens + other.written_tokens,
            lost_tokens=self.lost_tokens + other.lost_tokens,
            cost_micros=self.cost_micros + other.cost_micros,
            calls=self.calls + other.calls,
            unknown_calls=self.unknown_calls + other.unknown_calls,
            priced=self.priced and other.priced,
        )


_NOTHING = Usage()
