"""Decides which part of the history the model sees at a step (`core.context_policy`).

Law: the decision is a pure function of the rows and the agent, so a takeover makes the same decision. A view that code
creates is written with the claim of its step. A summary first needs a model call of its own (`engine.steps.summary`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from helix.core.agents import AnyAgent
from helix.core.config import LLMConfig
from helix.core.context_policy import OVERFLOW, Change, Clear, Context, Hide, ShownContext, Summary
from helix.core.entries import AssistantRow
from helix.core.estimating import PER_MESSAGE, estimate_text
from helix.core.file_tokens import file_tokens
from helix.core.messages import AnyMessage, AssistantMessage, ToolResultMessage, UserMessage, files_of
from helix.core.rows import ErrorInfo
from helix.core.session_row import SessionRow
from helix.core.view_row import ContextMark, ViewCause, ViewRow
from helix.core.views import RECALL, show_history
from helix.engine.context import RunContext
from helix.engine.engine import Engine
from helix.engine.facts import ContextChanged
from helix.engine.observers import show
from helix.engine.writing import view_put
from helix.ports.model import LLMGenerateInput
from helix.ports.state_store import Operation
from helix.services.request_heads import CallHead

TOO_LONG = "context_too_long"
"""The error code for a prompt that the provider refuses as too long."""
MOST_OVERFLOWS = 2
"""The number of times that one step's prompt may be shortened after a refusal as too long. After that, the run
fails."""
STEPS_BETWEEN = 4
"""The number of steps to wait before a failed summary is tried again."""
LEAST_FREED = 0.3
"""The fraction of a refused prompt that clearing must free. If it frees less, a summary is written."""


@dataclass(frozen=True, slots=True)
class ViewPlan:
    """The view of a step's prompt."""

    view: ViewRow | None
    """The view that the model is shown. None: the model is shown the whole history."""
    new: bool = False
    """Whether `view` is new, so that the claim of the step writes it."""
    summary: Summary | None = None
    """The summary to write before the step is bought. None: the step can be bought."""
    cause: ViewCause = "policy"
    """Why the summary is written."""

    def recalls(self, agent: AnyAgent) -> bool:
        """Return whether the model is offered the tool `recall`. It is offered once something is cleared or hidden,
        unless the agent has a tool of that name."""
        return self.view is not None and agent.find_tool(RECALL) is None


@dataclass(frozen=True, slots=True)
class Prepared:
    """A request for the next step, and the view of history that it shows."""

    request: LLMGenerateInput
    """The request, for an answer or for a summary."""
    plan: ViewPlan
    """The view, and the summary that the request asks for, if any."""
    head: CallHead
    """The head of the request, and its rows."""
    user_messages: list[UserMessage]
    """The user's messages in history, also those that the view hides. Notes of the framework are not among them."""
    tokens: int = 0
    """The estimated length of the prompt in tokens, if a summary shortens it."""


def window_of(engine: Engine, agent: AnyAgent, config: LLMConfig) -> int | None:
    """Return the size of the context window in tokens: the agent's setting, or the largest known window of the models
    that may be called. None if neither is known."""
    if agent.context.window is not None:
        return agent.context.window
    route = config.route.models if config.route is not None else ()
    windows = [option.window or _known_window(engine, option.model) for option in route]
    known = [window for window in windows or [_known_window(engine, config.model)] if window is not None]
    return max(known, default=None)


def _known_window(engine: Engine, model: str) -> int | None:
    return engine.catalog.info(model).max_input_tokens if engine.catalog is not None else None


def plan_view(
    run: RunContext,
    view: ViewRow | None,
    new: SessionRow,
    history: Sequence[AnyMessage],
    config: LLMConfig,
    measure: Callable[[Sequence[AnyMessage]], int],
) -> ViewPlan | ErrorInfo:
    """Plan the view of the next step. `view` is the current view, and `measure` estimates the tokens of a prompt with
    given messages. Returns an error if the provider refused the prompt as too long and nothing more can be omitted. Any
    exception that a policy raises is propagated."""
    context, mark, step = run.agent.context, new.context, new.step + 1
    if view is not None and view.step == step:  # this step's view, which its worker may not have recorded
        show(run, ContextChanged(view, mark.view))
    window = window_of(run.engine, run.agent, config)
    overflows = mark.overflows if mark.step == step else 0
    if run.agent.function is not None or (
        window is None and not overflows and mark.asked is None and context.policies is None
    ):
        return ViewPlan(view)
    tokens = _counted(mark, history)
    if not tokens and (window is not None or overflows):
        tokens = measure(show_history(view, history))
    state = ShownContext(history, view.hidden if view else 0, view.cleared if view else 0, tokens, window)
    if (asked := _requested(context, mark, state)) is not None:
        return ViewPlan(view, summary=asked, cause="request")
    may_summarise = not mark.failed or step >= mark.failed + STEPS_BETWEEN
    cause, changes = _changes(context, state, overflows)
    if not may_summarise:
        changes = [*changes, *(SHORTEST if overflows else (partial(_if_above, choose) for choose in SHORTEST))]
    after = state
    for choose in changes:
        change = _valid(choose(after), after)
        if isinstance(change, Summary):
            if may_summarise:
                return ViewPlan(view, summary=change, cause=cause)
        elif change is not None:
            after = _after(change, after)
    if (after.hidden, after.cleared) != (state.hidden, state.cleared):
        return ViewPlan(_row(run, step, view, after, cause, tokens), new=True)
    if overflows:
        text = f"the provider refuses the prompt of step {step} as too long, and nothing more of it can be left out"
        return ErrorInfo(code=TOO_LONG, message=f"{text}: shorten the message, the system prompt or the tools")
    return ViewPlan(view)


def _counted(mark: ContextMark, history: Sequence[AnyMessage]) -> int:
    """Return the number of tokens that the provider counted, plus an estimate for the messages after its last answer. 0
    if the provider has not counted this view."""
    if not mark.tokens:
        return 0
    added = 0
    for message in reversed(history):
        if isinstance(message, AssistantMessage):
            break
        added += PER_MESSAGE + estimate_text(message.content or "") + sum(map(file_tokens, files_of([message])))
    return mark.tokens + added


Choice = Callable[[ShownContext], Change | None]
SHORTEST: Sequence[Choice] = (lambda now: Hide(now.before(1)), lambda now: Clear(len(now.messages)))
"""The changes that yield the shortest prompt: only the last step is shown, and its long results are cleared."""


def _requested(context: Context, mark: ContextMark, state: ShownContext) -> Summary | None:
    """Return the summary that a person requested. None if none was requested, or if there is nothing to summarise."""
    if mark.asked is None:
        return None
    upto = state.before(context.keep_steps) or state.before(1)
    summary = _valid(Summary(upto, _summariser(context), mark.asked), state)
    return summary if isinstance(summary, Summary) else None


def _changes(context: Context, state: ShownContext, overflows: int) -> tuple[ViewCause, Sequence[Choice]]:
    """Return the cause and the changes to try in order."""
    if not overflows:
        return "policy", context.in_order()
    if overflows > 1:
        return "overflow", SHORTEST
    upto = state.before(context.keep_steps)
    clear: list[Choice] = [lambda _: Clear(upto)]
    if state.freed(upto) < LEAST_FREED * state.tokens:
        clear.append(lambda now: Summary(upto, _summariser(context)) if upto > now.hidden else Clear(len(now.messages)))
    return "overflow", clear


def _if_above(choose: Choice, state: ShownContext) -> Change | None:
    return choose(state) if state.is_above(OVERFLOW) else None


def _summariser(context: Context) -> str | None:
    return None if context.summariser == "same" else context.summariser


def _valid(change: Change | None, state: ShownContext) -> Change | None:
    """Return the change, moved back to the nearest point where a step or a user's message begins. None if it would have
    no effect."""
    if change is None:
        return None
    upto = min(change.upto, len(state.messages))
    while 0 < upto < len(state.messages) and isinstance(state.messages[upto], ToolResultMessage):
        upto -= 1
    if isinstance(change, Clear):
        return Clear(upto) if state.freed(upto) else None
    return replace(change, upto=upto) if state.hidden < upto < len(state.messages) else None


def _after(change: Clear | Hide, state: ShownContext) -> ShownContext:
    """Return the conversation after a change that code makes."""
    if isinstance(change, Clear):
        left = max(0, state.tokens - state.freed(change.upto))
        return replace(state, cleared=max(state.cleared, change.upto), tokens=left)
    left = max(0, state.tokens - state.length(change.upto))
    return replace(state, hidden=change.upto, cleared=max(state.cleared, change.upto), tokens=left)


def _row(
    run: RunContext, step: int, before: ViewRow | None, after: ShownContext, cause: ViewCause, tokens: int
) -> ViewRow:
    return ViewRow(
        run_id=run.run_id,
        step=step,
        count=len(after.messages),
        hidden=after.hidden,
        cleared=after.cleared,
        summary=before.summary if before is not None else "",
        cause=cause,
        tokens=tokens,
        created_at=run.now(),
    )


def write_view(new: SessionRow, plan: ViewPlan) -> list[Operation]:
    """Return the operations by which the claim writes the plan's view, and record the view in `new`."""
    if plan.new and plan.view is not None:
        new.context = new.context.model_copy(update={"view": new.version, "tokens": 0, "asked": None})
        return [view_put(new, plan.view)]
    if new.context.asked is not None:  # nothing is left to summarise
        new.context = new.context.model_copy(update={"asked": None})
    return []


def show_view(run: RunContext, new: SessionRow, plan: ViewPlan) -> None:
    """Cache and record the view that the claim wrote."""
    if plan.new and plan.view is not None:
        run.engine.history.cache.put_view(new, new.context.view, plan.view)
        show(run, ContextChanged(plan.view, new.context.view))


def context_after(run: RunContext, session: SessionRow, row: AssistantRow) -> ContextMark:
    """Return the session's context after an answer, with the token counts of the prompt and the answer. The counts are
    0 if they include several attempts or what the provider's own tools read, or if there is no known window to compare
    them with."""
    usage, context = row.usage, session.context
    known = run.agent.context.window is not None or (row.model is not None and _known_window(run.engine, row.model))
    tokens = usage.total_tokens if known and usage.calls == 1 and not row.server_blocks else 0
    return context if tokens == context.tokens else context.model_copy(update={"tokens": tokens})
