"""Context policies: which part of a history a model is shown when the history outgrows the model's window.

Law: a policy is a pure function of the conversation and returns one change, or None. Policies are applied in order;
each sees the conversation as the earlier ones leave it. Every index that a policy returns is a place where a step or a
user's message begins.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from helix.core.checks import is_int, is_number, require
from helix.core.estimating import PER_MESSAGE, estimate_text
from helix.core.file_tokens import file_tokens
from helix.core.json import dumps
from helix.core.messages import AnyMessage, AssistantMessage, UserMessage, files_of
from helix.core.views import is_clearable

LEAST_SHARE = 0.1
"""The minimum share of the window that clearing must free. Each change of a view makes the provider's prompt cache cold,
so small ones cost more than they save."""


@dataclass(frozen=True, slots=True)
class Clear:
    """A change: show a note in place of long tool results before this index of the history."""

    upto: int


@dataclass(frozen=True, slots=True)
class Hide:
    """A change: do not show the messages before this index of the history."""

    upto: int


@dataclass(frozen=True, slots=True)
class Summary:
    """A change: show a summary in place of the messages before this index of the history."""

    upto: int
    model: str | None = None
    """The model that writes the summary. None: the agent's own model."""
    focus: str = ""
    """The topic that the summary should pay attention to. Empty for no particular focus."""


Change: TypeAlias = Clear | Hide | Summary


@dataclass(frozen=True, slots=True)
class ShownContext:
    """A conversation as the model is shown it, for policies."""

    messages: Sequence[AnyMessage]
    """The whole history."""
    hidden: int
    """The number of messages at the beginning that are not shown."""
    cleared: int
    """The index before which long tool results are cleared."""
    tokens: int
    """The length of the prompt in tokens: as the provider counted it, with an estimate of what was added since."""
    window: int | None
    """The size of the model's context window in tokens. None if it is not known."""

    def is_above(self, share: float) -> bool:
        """Return whether the prompt is longer than this share of the window. False if the window is not known."""
        return self.window is not None and self.tokens >= share * self.window

    def before(self, steps: int) -> int:
        """Return the index where the last `steps` steps begin, with the user's message before them. 0 if there are no
        more steps than that."""
        answers = [i for i, message in enumerate(self.messages) if isinstance(message, AssistantMessage)]
        if len(answers) <= steps:
            return 0
        place = answers[-steps]
        return place - 1 if isinstance(self.messages[place - 1], UserMessage) else place

    def steps(self) -> int:
        """Return the number of steps that are shown."""
        return sum(isinstance(message, AssistantMessage) for message in self.messages[self.hidden :])

    def freed(self, upto: int) -> int:
        """Return the estimated tokens that clearing the results before this index would save."""
        cleared = self.messages[max(self.hidden, self.cleared) : upto]
        return self._files(upto) + sum(estimate_text(m.content) for m in cleared if is_clearable(m))

    def length(self, upto: int) -> int:
        """Return the estimated tokens of the messages that are shown before this index, with their files."""
        shown = self.messages[self.hidden : upto]
        texts = sum(PER_MESSAGE + estimate_text(m.content or "") for m in shown)
        served = [block.raw for m in shown if isinstance(m, AssistantMessage) for block in m.server_blocks]
        return texts + sum(estimate_text(dumps(raw)) for raw in served) + self._files(upto)

    def _files(self, upto: int) -> int:
        """Return the estimated tokens of the files that are shown before this index. Clearing leaves out files, too."""
        shown = files_of(self.messages[max(self.hidden, self.cleared) : upto])
        return sum(file_tokens(file) for file in shown)


Policy: TypeAlias = Callable[[ShownContext], Change | None]


@dataclass(frozen=True, slots=True)
class ClearResults:
    """Clears old tool results. The model can read them again with the tool `recall`."""

    at: float = 0.6
    """The share of the window from which results are cleared."""
    keep_steps: int = 4
    """The number of steps at the end whose results stay."""

    def __call__(self, context: ShownContext) -> Change | None:
        if not context.is_above(self.at) or context.window is None:
            return None
        upto = context.before(self.keep_steps)
        return Clear(upto) if context.freed(upto) >= LEAST_SHARE * context.window else None


@dataclass(frozen=True, slots=True)
class Summarise:
    """Replaces the beginning of the conversation with a summary, which a model writes."""

    at: float = 0.8
    """The share of the window from which the conversation is summarised."""
    keep_steps: int = 4
    """The number of steps at the end that do not change."""
    model: str | None = None
    """The model that writes the summary. None: the agent's own model, whose prompt cache is warm."""

    def __call__(self, context: ShownContext) -> Change | None:
        upto = context.before(self.keep_steps)
        return Summary(upto, self.model) if context.is_above(self.at) and upto > context.hidden else None


@dataclass(frozen=True, slots=True)
class KeepLast:
    """Shows only the last steps, without a summary of the others."""

    steps: int
    """The minimum number of steps to show. Up to half as many more are shown before the next change."""

    def __call__(self, context: ShownContext) -> Change | None:
        if context.steps() <= self.steps + self.steps // 2:
            return None
        return Hide(context.before(self.steps))


@dataclass(frozen=True, kw_only=True)
class Context:
    """The policy that fits an agent's conversations into its model's window: `Agent(context=Context(...))`."""

    window: int | None = None
    """The size of the window in tokens. None: the catalog's, for a model that it knows. Without either, only a refusal
    by the provider changes what the model is shown."""
    clear_at: float | None = 0.6
    """The share of the window from which old tool results are cleared. None: never."""
    summarise_at: float = 0.8
    """The share of the window from which the conversation is summarised, if there is a `summariser`. Without one, the
    agent's own model writes a summary only if the prompt would not fit otherwise."""
    keep_steps: int = 4
    """The number of steps at the end that do not change, 1 or more."""
    summariser: str | None = None
    """The model that writes summaries. `same` for the agent's own."""
    policies: Sequence[Policy] | None = None
    """Policies in place of those that the fields above describe: `ClearResults`, `Summarise`, `KeepLast`, and plain
    functions of a `ShownContext`. None: use the fields."""

    def check(self, owner: str) -> None:
        """Raise `DefinitionError` for a field that is not valid."""
        valid = self.window is None or (is_int(self.window) and self.window > 0)
        require(valid, owner, "context.window", "must be a number of tokens above 0, or None")
        for name in ("clear_at", "summarise_at"):
            share = getattr(self, name)
            valid = (share is None and name == "clear_at") or (is_number(share) and 0 < share <= 1)
            require(valid, owner, f"context.{name}", "must be a share of the window, above 0 and up to 1")
        valid = is_int(self.keep_steps) and self.keep_steps >= 1
        require(valid, owner, "context.keep_steps", "must be 1 or more")
        valid = self.summariser is None or (isinstance(self.summariser, str) and bool(self.summariser.strip()))
        require(valid, owner, "context.summariser", "must be a model's name, 'same', or None")
        valid = self.policies is None or all(callable(policy) for policy in self.policies)
        require(valid, owner, "context.policies", "must be a list of policies: functions of a ShownContext")

    @property
    def models(self) -> Sequence[str]:
        """The models that write summaries, apart from the agent's own. A policy of the user's own may name others."""
        named = [None if self.summariser == "same" else self.summariser]
        named += [policy.model for policy in self.policies or () if isinstance(policy, Summarise)]
        return list(dict.fromkeys(model for model in named if model is not None))

    def with_own_model(self) -> Context:
        """Return the same context, with all summaries written by the agent's own model."""
        policies = self.policies
        if policies is not None:
            policies = [replace(each, model=None) if isinstance(each, Summarise) else each for each in policies]
        summariser = None if self.summariser is None else "same"
        return replace(self, summariser=summariser, policies=policies)

    def in_order(self) -> Sequence[Policy]:
        """Return the policies in the order in which they apply."""
        if self.policies is not None:
            return self.policies
        found: list[Policy] = []
        if self.clear_at is not None:
            found.append(ClearResults(self.clear_at, self.keep_steps))
        model = None if self.summariser == "same" else self.summariser
        at = OVERFLOW if self.summariser is None else self.summarise_at
        return [*found, Summarise(at, self.keep_steps, model)]


OVERFLOW = 0.95
"""The share of the window above which a prompt may not fit, since lengths are estimates."""
