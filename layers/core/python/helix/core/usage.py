"""What a model call used: tokens, and integer micro-dollars so that sums are exact."""

from __future__ import annotations

from pydantic import Field

from helix.core.messages import Record


class Usage(Record, frozen=True):
    """Tokens of one call or a sum of calls. `prompt_tokens` includes `cached_tokens`; `completion_tokens` includes
    `reasoning_tokens`. `cost_micros` is in millionths of a US dollar; `priced` is false where no price was known.
    `unknown_calls`: those that may have used more than was reported: cut off, or answered without their usage."""

    prompt_tokens: int = Field(default=0, ge=0)
    completion_tokens: int = Field(default=0, ge=0)
    reasoning_tokens: int = Field(default=0, ge=0)
    cached_tokens: int = Field(default=0, ge=0)
    cost_micros: int = Field(default=0, ge=0)
    calls: int = Field(default=0, ge=0)
    unknown_calls: int = Field(default=0, ge=0)
    priced: bool = True

    @property
    def total_tokens(self) -> int:
        return self.prompt_tokens + self.completion_tokens

    @property
    def cost_usd(self) -> float:
        return self.cost_micros / 1_000_000

    def __eq__(self, other: object) -> bool:
        """As pydantic compares, in a tenth of its time: every row that is written is compared with its defaults."""
        return isinstance(other, Usage) and self.__dict__ == other.__dict__

    def __add__(self, other: Usage) -> Usage:
        if other.__dict__ == _NOTHING.__dict__:
            return self
        return Usage(
            prompt_tokens=self.prompt_tokens + other.prompt_tokens,
            completion_tokens=self.completion_tokens + other.completion_tokens,
            reasoning_tokens=self.reasoning_tokens + other.reasoning_tokens,
            cached_tokens=self.cached_tokens + other.cached_tokens,
            cost_micros=self.cost_micros + other.cost_micros,
            calls=self.calls + other.calls,
            unknown_calls=self.unknown_calls + other.unknown_calls,
            priced=self.priced and other.priced,
        )


_NOTHING = Usage()
