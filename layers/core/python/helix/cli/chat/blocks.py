"""The chat history on the screen. Each item of a conversation has a block, which is redrawn when the item changes.

Law: text from models, tools and users is content, never markup, and goes through `to_printable`. Markdown is cleaned
again after parsing, because the parser decodes entities. HTML is shown as text.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.message import Message
from textual.widget import Widget
from textual.widgets import Static

from helix.cli.chat.texts import ModelText, content, text_of_step
from helix.cli.view import formats
from helix.core.conversation.conversation import Conversation
from helix.core.conversation.items import Call, Item, Notice, Step, Tone, User
from helix.core.conversation.pieces import describe_notice
from helix.core.partial_output import read_partial
from helix.core.printable import json_text
from helix.core.tools import SUBAGENT_TOOL_PREFIX

MOST_ITEMS, MOST_CHARS, SHORT = 60, 20_000, 100
_MARKS = {"open": ("○", "dim"), "running": ("●", "cyan"), "waiting": ("?", "bold yellow")}
_TONES: dict[Tone, str] = {"plain": "dim", "warn": "yellow", "bad": "red"}
_MARKS.update({"done": ("✓", "green"), "failed": ("✗", "red")})


class FoldHeading(Static, can_focus=True):
    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter,space", "open", "Open or close", show=False)]

    def action_open(self) -> None:
        if isinstance(self.parent, Fold):
            self.parent.toggle()

    def on_click(self, event: events.Click) -> None:
        event.stop()
        self.action_open()


class Fold(Vertical):
    """A collapsible line. `make` creates the widget below it when the user first expands the line."""

    def __init__(self, make: Callable[[], Widget]) -> None:
        super().__init__()
        self._head, self._make = FoldHeading(), make
        self.body: Widget | None = None
        self.is_open = self.chosen = False

    def compose(self) -> Any:
        yield self._head

    def title(self, line: Content) -> None:
        self._head.update(Content.assemble("▾ " if self.is_open else "▸ ", line))

    def toggle(self) -> None:
        self.chosen = True
        self.run_worker(self.open(not self.is_open))

    async def open(self, is_open: bool) -> None:
        self.is_open = is_open
        if is_open and self.body is None:
            self.body = self._make()
            self.body.add_class("body")
            await self.mount(self.body)
        if self.body is not None:
            self.body.display = is_open
        await self.draw()

    async def draw(self) -> None:
        """Redraw the widget with its current state."""


class ReasoningBlock(Fold):
    def __init__(self, step: Step) -> None:
        super().__init__(Static)
        self._step = step
        self._drawn: object = None

    async def draw(self) -> None:
        now = (len(self._step.thinking), self.is_open)
        if now == self._drawn:
            return
        self._drawn = now
        self.title(content((f"Reasoning · {len(self._step.thinking):,} characters", "dim italic")))
        if isinstance(self.body, Static) and self.is_open:
            self.body.update(content((self._step.thinking[-MOST_CHARS:], "dim italic")))


class OutputBlock(Static):
    """The structured output of an attempt, while it arrives."""

    def __init__(self, step: Step) -> None:
        super().__init__()
        self._step = step
        self._drawn = 0

    async def draw(self) -> None:
        text = self._step.output
        if len(text) == self._drawn:
            return
        self._drawn = len(text)
        value = read_partial(text)
        shown = text if value is None else json_text(value)
        self.update(content(("output\n", "dim"), shown[:MOST_CHARS]))


class CallBlock(Fold):
    """A call. Its line expands to the arguments and the result, or to the conversation of its sub-agent."""

    class ChildWanted(Message):
        """A request to read the stored conversation of a sub-agent."""

        def __init__(self, called: CallBlock, child: Conversation) -> None:
            super().__init__()
            self.called, self.child = called, child

    def __init__(self, call: Call) -> None:
        super().__init__(lambda: ConversationBlock(call.child) if call.child is not None else Static())
        self._call, self._asked = call, False
        self._drawn: object = None

    async def draw(self) -> None:
        call = self._call
        if call.child is not None and not self.chosen and not self.is_open and call.state in ("running", "waiting"):
            return await self.open(True)
        now = (call.state, call.attempt, id(call.arguments), id(call.questions), call.edited, call.error, self.is_open)
        if now != self._drawn:
            self._drawn = now
            self.title(self._line())
            if isinstance(self.body, Static):
                self.body.update(self._details())
        if isinstance(self.body, ConversationBlock) and self.is_open and call.child is not None:
            if not self._asked and not call.child.items and call.state in ("done", "failed"):
                self._asked = True
                self.post_message(self.ChildWanted(self, call.child))
            await self.body.draw()
        return None

    def _line(self) -> Content:
        call = self._call
        mark, style = _MARKS[call.state]
        name = call.name.removeprefix(SUBAGENT_TOOL_PREFIX)
        parts = [(f"{mark} ", style), (formats.cut(formats.call(name, call.arguments), SHORT), "")]
        parts += [(" edited", "yellow")] if call.edited else []
        parts += [(f" attempt {call.attempt}", "yellow")] if call.attempt > 1 else []
        if call.state == "waiting":
            parts.append((" waits for another system" if call.kind == "elsewhere" else " waits for you", "bold yellow"))
        elif call.error is not None:
            parts.append((f" {formats.short(call.error, SHORT)}", "red"))
        elif call.result is not None:
            parts.append((f" → {formats.short(call.result, SHORT)}", "dim"))
        if call.files:
            parts.append((f" + {formats.count(len(call.files), 'file')}", "dim"))
        return content(*parts)

    def _details(self) -> Content:
        call = self._call
        parts: list[str | tuple[str, str]] = [("arguments\n", "dim"), json_text(call.arguments)]
        if call.edited is not None and call.asked is not None:
            who = call.edited.by or "an operator"
            parts = [("the model asked for\n", "dim"), json_text(call.asked), (f"\nchanged by {who}\n", "dim"), *parts]
        asked = call.questions if call.state != "waiting" else ()
        parts += [text for q in asked for text in ((f"\n{q.text}\n", "dim"), formats.asked(q))]
        parts += [(f"\n{formats.response(given)}", "dim") for given in call.responses]
        if call.error is not None:
            parts += [("\nerror\n", "dim"), (call.error, "red")]
        elif call.result is not None:
            parts += [("\nresult\n", "dim"), _format_result(call.result)[:MOST_CHARS]]
        parts += [(f"\n+ {formats.file(file)}", "dim") for file in call.files]
        return content(*parts)


def _format_result(value: Any) -> str:
    if not isinstance(value, str):
        return json_text(value)
    try:
        return json_text(json.loads(value))  # a stored result is JSON or plain text
    except ValueError:
        return value


class StepBlock(Vertical):
    """The block of one attempt at a step."""

    def __init__(self, step: Step) -> None:
        super().__init__()
        self._step, self._struck = step, False
        self._thought: ReasoningBlock | None = None
        self._said: ModelText | None = None
        self._output: OutputBlock | None = None
        self._served: dict[str, CallBlock] = {}
        self._called: dict[str, CallBlock] = {}

    def compose(self) -> Any:
        """Create all existing parts at once. Adding them one by one would be slow for a stored session with many steps."""
        step = self._step
        if step.state == "discarded":
            return
        if step.thinking:
            self._thought = ReasoningBlock(step)
            yield self._thought
        self._served = {call.id: CallBlock(call) for call in step.served.values()}
        yield from self._served.values()
        if step.text:
            self._said = ModelText(text_of_step(step))
            yield self._said
        self._called = {call.id: CallBlock(call) for call in step.calls}
        yield from self._called.values()

    async def draw(self) -> None:
        step = self._step
        if step.state == "discarded":
            if not self._struck:
                await self._strike_through()
            return
        if step.thinking:
            if self._thought is None:
                await self.mount(thought := ReasoningBlock(step), before=0 if self.children else None)
                self._thought = thought
            await self._thought.draw()
        for call in step.served.values():
            if call.id not in self._served:
                self._served[call.id] = CallBlock(call)
                await self.mount(self._served[call.id], before=self._said or next(iter(self._called.values()), None))
            await self._served[call.id].draw()
        if step.text:
            if self._said is None:
                first = next(iter(self._called.values()), None)
                await self.mount(said := ModelText(text_of_step(step)), before=first)
                self._said = said
            await self._said.draw(text_of_step(step))
        if step.output:
            if self._output is None:
                self._output = OutputBlock(step)
                await self.mount(self._output, before=next(iter(self._called.values()), None))
            await self._output.draw()
        for call in step.calls:
            if call.id not in self._called:
                await self.mount(called := CallBlock(call))
                self._called[call.id] = called
            await self._called[call.id].draw()

    async def _strike_through(self) -> None:
        """Strike through a discarded attempt. It stays visible but cannot be mistaken for a valid one."""
        step, self._struck = self._step, True
        await self.remove_children()
        why = f": {step.why}" if step.why else ""
        if said := step.text + step.output:
            await self.mount(Static(content((said[:MOST_CHARS], "strike dim"))))
        await self.mount(
            Static(content((f"✗ attempt {step.attempt} of step {step.step} was discarded{why}", "yellow")))
        )


class Summarised(Fold):
    """A notice about a summary. Expanding its line shows the summary."""

    def __init__(self, notice: Notice) -> None:
        super().__init__(lambda: Static(content((notice.text[:MOST_CHARS], "dim"))))
        self._notice = notice
        self._drawn: bool | None = None

    async def draw(self) -> None:
        if self.is_open != self._drawn:
            self._drawn = self.is_open
            self.title(content((_describe_notice(self._notice), _TONES[self._notice.tone])))


class LineBlock(Static):
    """A message from the user, or a notice."""

    def __init__(self, item: User | Notice) -> None:
        super().__init__(classes="user" if isinstance(item, User) else "notice")
        self._item = item
        self._drawn: object = None

    async def draw(self) -> None:
        item = self._item
        now = (item.text, isinstance(item, User) and item.run_id is None)
        if now == self._drawn:
            return
        self._drawn = now
        if isinstance(item, Notice):
            self.update(content((_describe_notice(item), _TONES[item.tone])))
        else:
            lines = [*([item.text] if item.text else []), *map(formats.file, item.files)]
            self.update(content(("› ", "bold cyan"), ("\n".join(lines), "dim" if item.run_id is None else "bold")))


def _describe_notice(notice: Notice) -> str:
    match notice.kind:
        case "budget":
            return "The budget is used up. Raise it (helix fleet set-budget), then /resume."
        case "interrupted":
            return "Interrupted. A message continues it; so does /resume."
        case _:
            return describe_notice(notice)


class ConversationBlock(Vertical):
    """A conversation. If it is long, only the newest items are shown."""

    def __init__(self, conversation: Conversation) -> None:
        super().__init__()
        self.conversation = conversation
        self._blocks: dict[Item, LineBlock | StepBlock | Summarised] = {}
        self._hidden = Notice("note", tone="plain")

    async def draw(self) -> None:
        items = self.conversation.items[-MOST_ITEMS:]
        if (hidden := len(self.conversation.items) - len(items)) > 0:
            self._hidden.text = f"{hidden:,} earlier: helix show {self.conversation.id} --all"
            items = [self._hidden, *items]
        for gone in self._blocks.keys() - set(items):
            await self._blocks.pop(gone).remove()
        if not self._blocks:
            self._blocks = {item: _make_block(item) for item in items}
            await self.mount_all(self._blocks.values())
        for place, item in enumerate(items):
            block = self._blocks.get(item)
            if block is None:
                block = _make_block(item)
                await self.mount(block, before=place if place < len(self.children) else None)
                self._blocks[item] = block
            if not block.is_attached:
                return  # the screen is closing
            if self.children[place] is not block:
                self.move_child(block, before=place)
            await block.draw()


def _make_block(item: Item) -> LineBlock | StepBlock | Summarised:
    if isinstance(item, Step):
        return StepBlock(item)
    return Summarised(item) if isinstance(item, Notice) and item.kind == "context" and item.text else LineBlock(item)
