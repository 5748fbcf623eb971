"""The full-screen chat: the history, the form for a waiting call, the prompt, and a line with status and cost.

Law: the screen shows the data of `ChatSession` and the outcomes of `Commands`, and makes no decisions itself. It is
redrawn a few times per second, regardless of the speed of the stream.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from time import monotonic
from typing import Any, ClassVar

from rich.segment import Segment
from rich.style import Style
from textual import events, on, work
from textual.app import App
from textual.binding import Binding, BindingType
from textual.color import Color
from textual.containers import Vertical, VerticalScroll
from textual.filter import LineFilter
from textual.message import Message
from textual.widgets import Markdown, Static, TextArea

from helix.cli.chat import commands
from helix.cli.chat.answer_form import AnswerForm
from helix.cli.chat.blocks import CallBlock, ConversationBlock
from helix.cli.chat.chat_session import TRANSIENT, ChatSession
from helix.cli.chat.tables import RowPicker, TableDialog
from helix.cli.chat.texts import content
from helix.cli.output import COMPLETED, OF_STATUS, STOPPED, LogFormatter, one_line, write
from helix.cli.run.follow import on_signals
from helix.cli.run.partners import LocalAgent, Partner
from helix.cli.view import formats
from helix.cli.view.base import demonstration_notice
from helix.cli.where import StoreService, Where, link_to
from helix.client import HelixClient
from helix.client.polling import STARTS, PollingLink
from helix.core.conversation.items import Tone, User
from helix.core.json import JsonObject
from helix.core.printable import printable
from helix.runtime.local import LocalExecutor

DRAW_S, LOOK_S, TWICE_S = 0.06, 8.0, 2.0
HERE_S, QUIET_HERE_S, QUIET_S = 0.03, 0.5, 2.0
"""The pause between polls of a local store, and the longest pauses for a quiet stream, locally and elsewhere (seconds)."""

CSS = """
#history { height: 1fr; padding: 0 1; scrollbar-size-vertical: 1; }
#history Static, Fold, StepBlock, ConversationBlock { height: auto; }
.user { margin: 1 0 0 0; background: $boost; padding: 0 1; }
.body { margin: 0 0 1 2; padding: 0 0 0 1; border-left: solid $primary-muted; }
FoldHeading:focus { background: $primary-muted; }
ModelText { padding: 0; margin: 0; background: transparent; }
#waiting { height: auto; }
AnswerForm { height: auto; max-height: 60vh; border: round $warning; padding: 0 1; overflow-y: auto; }
AnswerForm TextArea { height: auto; min-height: 2; max-height: 8; border: round $primary-muted; }
AnswerForm TextArea { border-title-color: $text-muted; }
AnswerForm TextArea:focus { border: round $accent; }
AnswerForm Horizontal { height: auto; }
AnswerForm Button { margin: 0 2 0 0; min-width: 10; }
#problem { height: auto; display: none; }
#queued { height: auto; padding: 0 1; }
Prompt { height: auto; min-height: 3; max-height: 12; border: round $primary; &:focus { border: round $accent; } }
#status { height: 1; padding: 0 1; text-wrap: nowrap; text-overflow: ellipsis; }
TableDialog, RowPicker { align: center middle; background: $background 60%; }
.sheet { width: 92%; height: auto; max-height: 88%; border: round $accent; padding: 0 1; background: $surface; }
.sheet VerticalScroll, .sheet OptionList { height: auto; max-height: 70vh; border: none; background: transparent; }
.sheet Static { height: auto; }
"""


PLAIN_CSS = """
TextArea:nocolor .text-area--cursor, OptionList:nocolor > .option-list--option-highlighted { text-style: reverse; }
FoldHeading:focus:nocolor, Button:focus:nocolor { text-style: reverse; }
"""
"""Styles without colours. The focused element is shown in reverse video."""


class PrintableText(LineFilter):
    """A filter that passes the drawn text of every widget through `printable`, including earlier messages that the prompt
    recalls."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        return [Segment(printable(text), style, control) for text, style, control in segments]


class WithoutColour(LineFilter):
    """A filter for `NO_COLOR`. Textual's own filter still writes shades of grey."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        return [Segment(text, style and _uncoloured(style), control) for text, style, control in segments]


def _uncoloured(style: Style) -> Style:
    return style.without_color + Style.from_meta(style.meta) if style.meta else style.without_color


class Prompt(TextArea):
    class Sent(Message):
        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    def __init__(self) -> None:
        super().__init__(compact=True, tab_behavior="focus", placeholder="Message, or /help")
        self.earlier: list[str] = []
        self._place = 0

    async def _on_key(self, event: events.Key) -> None:
        row, last = self.cursor_location[0], self.document.line_count - 1
        match event.key:
            case "enter":
                self.post_message(self.Sent(self.text))
            case "shift+enter" | "ctrl+j":
                self.insert("\n")
            case "up" if row == 0 and self._place < len(self.earlier):
                self._recall(self._place + 1)
            case "down" if row == last and self._place > 0:
                self._recall(self._place - 1)
            case _:
                await super()._on_key(event)
                return
        event.stop()
        event.prevent_default()

    def _recall(self, place: int) -> None:
        self._place = place
        self.text = self.earlier[-place] if place else ""
        self.move_cursor(self.document.end)

    def clear_sent(self, text: str) -> None:
        """Clear the prompt after its text was sent, and add the text to the history."""
        if not self.earlier or self.earlier[-1] != text:
            self.earlier.append(text)
        self._place, self.text = 0, ""


class ChatScreen(App[None]):
    CSS = CSS + PLAIN_CSS
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+c", "stop(True)", priority=True, show=False),
        Binding("escape", "stop(False)", show=False),
        Binding("ctrl+d", "leave", priority=True, show=False),
        Binding("pageup", "scroll(-1)", show=False),
        Binding("pagedown", "scroll(1)", show=False),
    ]

    def __init__(self, connect: Callable[[], HelixClient], agent: str, session_id: str | None, first: str = "") -> None:
        """Create the screen. `first` is a line at the beginning of the history."""
        self._own_filters: list[LineFilter] = [PrintableText()]
        if os.environ.get("NO_COLOR"):
            self._own_filters.append(WithoutColour())
        super().__init__()
        self.session = ChatSession(connect, agent, self._mark_changed)
        self._commands, self._session_id = commands.Commands(agent), session_id
        self._dirty, self._pressed, self._printed = True, 0.0, ""
        self._conversation = ConversationBlock(self.session.conversation)
        beginning = Static(content((first, "dim")))
        self._history = VerticalScroll(beginning, self._conversation, id="history", can_focus=False)
        self._waiting, self._queued, self._status = Vertical(id="waiting"), Static(id="queued"), Static(id="status")
        self._form: AnswerForm | None = None
        self.prompt = Prompt()

    def get_line_filters(self) -> Sequence[LineFilter]:
        return [*super().get_line_filters(), *self._own_filters]

    def compose(self) -> Any:
        yield from (self._history, self._waiting, self._queued, self.prompt, self._status)

    async def on_mount(self) -> None:
        self.begin_capture_print(self)
        self._history.anchor()
        self.prompt.focus()
        self.session.show(self._session_id)
        self.set_interval(DRAW_S, lambda: self.call_later(self._draw))
        self.set_interval(LOOK_S, self._poll_status)

    def _mark_changed(self) -> None:
        self._dirty = True

    # --- drawing --------------------------------------------------------------------------------------------------------

    async def _draw(self) -> None:
        if not self._dirty:
            return
        self._dirty = False
        session = self.session
        if self._conversation.conversation is not session.conversation:
            await self._conversation.remove()
            self._conversation = ConversationBlock(session.conversation)
            await self._history.mount(self._conversation)
            said = [item.text for item in session.conversation.items if isinstance(item, User)]
            self.prompt.earlier = said or self.prompt.earlier
        await self._conversation.draw()
        await self._draw_question()
        waits = session.inbox_lines()
        self._queued.update(content(("\n".join(waits), "yellow")))
        self._queued.display = bool(waits)
        self._status.update(self._status_line())

    async def _draw_question(self) -> None:
        calls = list(self.session.conversation.waiting()) if self.session.status == "paused" else []
        focused = self.prompt.has_focus and not self.prompt.text  # do not interrupt a user who is typing
        if self._form is not None and not self._form.is_for_one_of(calls):
            focused = focused or self._form.has_focus_within
            await self._form.remove()
            self._form = None
            if focused:
                self.prompt.focus()
        if calls and self._form is None:
            self._form = AnswerForm(calls[0], len(calls) - 1, self.session.answer)
            await self._waiting.mount(self._form)
            if focused:
                self._form.focus_first()

    def _status_line(self) -> Any:
        session, state = self.session, self.session.state
        problem = "stopping, once more leaves" if session.stopping else "connection lost" if session.lost else None
        status = "its process is gone: /resume" if session.stalled else problem or session.status
        parts: list[str | tuple[str, str]] = [
            (session.agent, "bold"),
            " · ",
            (status, formats.status_style(status) or "dim"),
        ]
        if state is not None and state.usage.calls:
            parts.append((f" · {formats.cost(state.usage)} · {formats.tokens(state.usage)}", "dim"))
        bounds = [each for each in session.budgets if each["limit"]]
        if bounds:
            tightest = max(bounds, key=lambda each: (each["used"] or 0) / each["limit"])
            parts.append((f" · {commands.budget(tightest)}", "red" if tightest["exhausted"] else "dim"))
        return content(*parts, (f" · {session.session_id}" if session.session_id else "", "dim"))

    async def _poll_status(self) -> None:
        """Poll the status of a running session, because a worker that dies cannot report it."""
        if self.session.status == "running":
            with suppress(*TRANSIENT):
                await self.session.refresh()

    def note(self, text: str, tone: Tone = "plain") -> None:
        """Show a log line, a line of a tool's output, or a refusal."""
        self.session.conversation.note(text, tone)
        self._mark_changed()

    def on_print(self, event: events.Print) -> None:
        *lines, self._printed = (self._printed + event.text).split("\n")
        for line in lines:
            self.note(line)

    @on(CallBlock.ChildWanted)
    @work
    async def read_child(self, event: CallBlock.ChildWanted) -> None:
        with suppress(*TRANSIENT):
            await self.session.load_child(event.child)
            await event.called.draw()

    @on(Markdown.LinkClicked)
    def show_address(self, event: Markdown.LinkClicked) -> None:
        self.notify(one_line(event.href), title="Address", markup=False)

    # --- the user's actions -----------------------------------------------------------------------------------------------

    @on(Prompt.Sent)
    @work
    async def send(self, event: Prompt.Sent) -> None:
        """Send the text of the prompt. If it is refused, put it back, unless the user is typing another message."""
        text, prompt = event.text.strip(), self.prompt
        if not text:
            return
        prompt.clear_sent(text)
        try:
            if text.startswith("/"):
                await self._apply_outcome(
                    await self._commands.execute(self.session.client, text, self.session.session_id)
                )
            else:
                self._history.anchor()
                await self.session.send(text)
        except TRANSIENT as error:
            self.note(one_line(error), "bad")
            if not prompt.text and (not text.startswith("/") or text.startswith("/attach")):
                prompt.text = text

    async def _apply_outcome(self, outcome: commands.Outcome) -> None:
        match outcome:
            case commands.ChooseRow():
                chosen = await self.push_screen_wait(RowPicker(outcome))
                if chosen is not None:
                    await self._apply_outcome(await outcome.take(chosen))
            case commands.ShowTable():
                await self.push_screen_wait(TableDialog(outcome))
            case commands.OpenSession(session_id):
                self.session.show(session_id)
            case commands.ContinueRun(verb):
                await self.session.continue_run(verb)
            case commands.SendMessage(text, files, when_running):
                await (self.session.send(text, files, when_running) if text or files else self.session.steer())
            case commands.ReturnText(text):
                self.prompt.text = self.prompt.text or text
            case commands.LeaveChat():
                self.exit()

    async def action_stop(self, control: bool) -> None:
        """Interrupt the run or, if pressed again, leave the chat. If text is selected, Ctrl+C copies it instead. In a form,
        Escape leaves the form instead."""
        if control and (selected := self.screen.get_selected_text()):
            self.copy_to_clipboard(selected)
            self.screen.clear_selection()
        elif not control and not self.prompt.has_focus:
            self.prompt.focus()
        elif self.session.busy and not self.session.stopping:
            with suppress(*TRANSIENT):
                await self.session.interrupt()
        elif self.session.busy or (control and monotonic() - self._pressed < TWICE_S):
            self.exit()
        elif control:
            self._pressed = monotonic()
            self.notify("Press Ctrl+C again to leave.", markup=False)

    def action_leave(self) -> None:
        if not self.prompt.text:
            self.exit()
        elif self.prompt.has_focus:
            self.prompt.action_delete_right()

    def action_scroll(self, pages: int) -> None:
        (self._history.scroll_page_up if pages < 0 else self._history.scroll_page_down)()


class AgentService(StoreService):
    """The service for a store, with an agent that runs in this process."""

    def __init__(self, local: LocalAgent) -> None:
        super().__init__(local.db)
        self._local = local
        self._registry.register(local.agent)

    def executor(self) -> LocalExecutor:
        return self._local.executor(self._registry)

    async def act(self, action: str, fields: JsonObject) -> JsonObject:
        if action in STARTS and isinstance(session_id := fields.get("session_id"), str):
            await self._local.check_model(self._executor.store, session_id)
        return await super().act(action, fields)


def run_screen(partner: Partner, where: Where, session_id: str | None) -> int:
    """Run the full-screen chat until the user leaves. Return the exit code of the last run, or 0 if there was none."""

    def connect() -> HelixClient:
        if isinstance(partner, LocalAgent):
            return HelixClient.over(PollingLink(AgentService(partner), poll_s=HERE_S, slowest_s=QUIET_HERE_S))
        return HelixClient.over(link_to(where, quiet_s=QUIET_S))

    demonstration = isinstance(partner, LocalAgent) and partner.choice.is_demonstration
    first = demonstration_notice(partner.choice) if isinstance(partner, LocalAgent) and demonstration else str(where)
    app = ChatScreen(connect, partner.name, session_id, first)

    async def main() -> None:
        await app.session.open()
        try:
            with _log_to(app), on_signals(app.exit, signal.SIGTERM, signal.SIGHUP):
                await app.run_async()
        finally:
            await app.session.close()

    asyncio.run(main())
    session = app.session
    if session.session_id is None:
        return COMPLETED
    write(f"  go on       {partner.hint(session.session_id)}")
    code = OF_STATUS.get(session.status, STOPPED if session.state is not None else COMPLETED)
    if session.busy and isinstance(partner, LocalAgent):
        sys.stdout.flush()
        os._exit(STOPPED)  # a tool in a thread cannot be cancelled, and Python would wait for it
    return code


@contextmanager
def _log_to(app: ChatScreen) -> Iterator[None]:
    """Show log lines in the history. Written directly to the terminal, they would appear at random places on the screen."""
    root, loop = logging.getLogger(), asyncio.get_running_loop()

    class Lines(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            loop.call_soon_threadsafe(app.note, self.format(record))

    lines, before = Lines(), list(root.handlers)
    lines.setFormatter(LogFormatter("%(levelname)s %(name)s: %(message)s"))
    root.handlers[:] = [lines]
    try:
        yield
    finally:
        root.handlers[:] = before
