"""The session that a chat shows: its stored rows, its stream, and the user's actions on it.

Law: the stored session is read once. Afterwards its stream is followed across runs, including those that other clients
start. A refusal or a lost connection never loses the user's text. The text is sent, waits in the session's inbox, or is
shown again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from helix.adapters.system import SystemClock
from helix.cli.output import RefusedError
from helix.cli.view import formats
from helix.client import HelixClient
from helix.core.claim_plan import lapsed
from helix.core.conversation.changes import MessageQueued, Resynced, RunBegan, RunEnded
from helix.core.conversation.conversation import Conversation
from helix.core.conversation.items import Call, User
from helix.core.errors import CallerError, HelixError, SessionNotFoundError
from helix.core.files import Content
from helix.core.handles import AgentExecutionHandle, SessionState
from helix.core.inbox import WaitingMessage
from helix.core.inbox_chunks import WaitMode
from helix.core.json import JsonObject
from helix.core.messages import AnyMessage, Message, UserMessage
from helix.core.wire import StreamMessage
from helix.services.file_inputs import read_content

AGAIN_S = 2.0
RUNS, RECENT = 10, 20
TRANSIENT = (HelixError, RefusedError, OSError, TimeoutError)
_MESSAGES: TypeAdapter[list[AnyMessage]] = TypeAdapter(list[Message])


def describe_waiting(message: WaitingMessage, width: int | None = None) -> str:
    """Return the text of the message and the names of its files, on one line of at most `width` characters if given."""
    files = [file.name or file.media_type for file in message.files]
    text = " ".join([*([message.content] if message.content else []), *files])
    return text if width is None else formats.cut(text, width)


class ChatSession:
    """A chat's session. `connect` creates a client; it is called again when a client has given up. `changed` is called when
    the screen must be redrawn."""

    def __init__(self, connect: Callable[[], HelixClient], agent: str, changed: Callable[[], None]) -> None:
        self._connect, self.agent, self.changed = connect, agent, changed
        self.client = connect()
        self.session_id: str | None = None
        self.conversation = Conversation("")
        self.state: SessionState | None = None
        self.budgets: list[dict[str, Any]] = []
        self.lost = self.stopping = self._starting = False
        self._base = 0
        self._reading: asyncio.Task[None] | None = None
        self._drains: set[asyncio.Task[None]] = set()
        self._sending = asyncio.Lock()

    async def open(self) -> None:
        await self.client.__aenter__()

    async def close(self) -> None:
        tasks = [*self._drains, *([self._reading] if self._reading is not None else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.client.close()

    def show(self, session_id: str | None) -> None:
        """Switch to another session. None: a new one, which the first message creates."""
        if self._reading is not None:
            self._reading.cancel()
        self._reading, self.session_id, self.state = None, session_id, None
        self.conversation, self.budgets = Conversation(session_id or "", self.agent), []
        self._base, self.lost, self.stopping = 0, False, False
        if session_id is not None:
            self._reading = asyncio.create_task(self._follow(session_id, None))
        self.changed()

    @property
    def status(self) -> str:
        return self.state.status if self.state is not None else "new"

    @property
    def busy(self) -> bool:
        """Whether a live process is executing a run, or a run is being started."""
        return self._starting or (self.status == "running" and not self.stalled)

    @property
    def stalled(self) -> bool:
        """Whether the run's process has died. If so, /resume or the next message takes over the run."""
        return self.state is not None and lapsed(self.state, SystemClock().now())

    # --- the user's actions ---------------------------------------------------------------------------------------------

    @property
    def inbox(self) -> list[WaitingMessage]:
        """The messages that wait in the session's inbox, in the order of their turns."""
        delivered = {item.queued_id for item in self.conversation.items if isinstance(item, User)}
        waiting = [message for message in self.state.inbox if message.id not in delivered] if self.state else []
        return sorted(waiting, key=lambda message: message.mode == "queue")

    def inbox_lines(self) -> list[str]:
        """Return a line for each waiting message, with its text and the names of its files, and a line about the keys."""
        lines = [f"⧗ {describe_waiting(message, 60)}" for message in self.inbox]
        hint = "  /steer sends it to this run, /withdraw takes it back, Escape interrupts the run and sends it"
        return (
            [*lines, hint if self.busy else "  sent before the next message; /withdraw takes it back"] if lines else []
        )

    async def send(self, text: str, files: Sequence[Path] = (), when_running: WaitMode = "queue") -> None:
        """Start a run with the message. If a run is active, the message waits in the inbox. Raises the service's errors,
        and `InvalidFileError`."""
        message: Content = [*([text] if text else []), *files] if files else text
        read = await read_content(message)
        async with self._sending:  # a second message needs the session of the first one
            if self.busy or self.inbox:
                await self._leave(message, when_running)
                return
            user, conversation = User(read.text, None, [file.part for file in read.files]), self.conversation
            conversation.items.append(user)
            try:
                if self.session_id is not None and self.status in ("paused", "interrupted"):
                    await self._start(self.client.resume(self.session_id, mode="with_message", message=message), user)
                else:
                    await self._start(self.client.run(self.agent, message, session_id=self.session_id), user)
            except BaseException:
                conversation.items.remove(user)
                raise
            finally:
                self.changed()

    async def steer(self) -> None:
        """Give the first waiting message to the run that works. Raises `RefusedError` if there is none."""
        if not self.busy or not (waiting := [message for message in self.inbox if message.mode == "queue"]):
            raise RefusedError("no message waits for the end of a run: /steer MESSAGE sends one to the run that works")
        await self._send_again(waiting[0], "steer")

    async def _leave(self, message: Any, when_running: WaitMode) -> None:
        handle = await self.client.run(self.agent, message, session_id=str(self.session_id), when_running=when_running)
        self._drain(handle)
        await self.refresh()

    async def _send_again(self, waiting: WaitingMessage, when_running: WaitMode) -> bool:
        """Withdraw the message and send it in another way. If it is not accepted, it is shown. Return whether it was still
        waiting."""
        async with self._sending:
            withdrawn = await self.client.withdraw(str(self.session_id), waiting.id) == "withdrawn"
            if withdrawn:
                try:
                    await self._leave({"message": waiting.content, "files": waiting.files}, when_running)
                except BaseException:
                    self.conversation.note(f"This message was not sent: {describe_waiting(waiting)}", "bad")
                    raise
            await self.refresh()
        return withdrawn

    async def continue_run(self, verb: str) -> None:
        """Continue the session's run. `verb` is `resume` or `retry`."""
        if self.session_id is None:
            raise SessionNotFoundError("(none yet)")
        await self._start(
            self.client.resume(self.session_id) if verb == "resume" else self.client.retry(self.session_id)
        )

    async def answer(self, call: Call, **verdict: Any) -> None:
        """Answer a waiting call. `verdict` contains the arguments of `HelixClient.answer`."""
        self._drain(await self.client.answer(str(self.session_id), call.id, **verdict))
        call.state = "open"
        await self.refresh()

    async def interrupt(self) -> None:
        """Interrupt the run. The first waiting message gets the next turn."""
        if self.session_id is not None and self.busy:
            self.stopping = True
            self.changed()
            waiting = self.inbox
            if not waiting or not await self._send_again(waiting[0], "interrupt"):
                await self.client.interrupt(self.session_id, "interrupted at the terminal")

    async def _start(self, starting: Any, user: User | None = None) -> None:
        self._starting = True
        self.changed()
        try:
            handle = await starting
            self._drain(handle)
            if user is not None:
                self.conversation.confirm(user, handle.run_id)
            if self._reading is None or self._reading.done():
                self.session_id = handle.session_id
                self.conversation.named(handle.session_id)
                self._reading = asyncio.create_task(self._follow(handle.session_id, handle.after))
            await self.refresh()
        finally:
            self._starting = False

    def _drain(self, handle: AgentExecutionHandle[Any]) -> None:
        """Drain the handle's own feed, so that its buffer does not fill up."""

        async def read() -> None:
            with suppress(*TRANSIENT):
                async for _ in await handle.messages():
                    pass

        self._drains.add(task := asyncio.create_task(read()))
        task.add_done_callback(self._drains.discard)

    # --- the stored session, and its stream
    # ---------------------------------------------------------------------------------

    async def refresh(self) -> None:
        """Reload the session's status and budgets."""
        if (session_id := self.session_id) is None:
            return
        state = await self.client.get_session(session_id)
        if session_id != self.session_id:
            return
        self.state = state
        self.stopping = self.stopping and state.status == "running"
        if state.status == "paused":
            self.conversation.expect(state.pending)
        self.changed()
        with suppress(CallerError):  # an older service does not have `get_budgets`
            found: Any = await self.client.get_budgets(session_id)
            self.budgets = found["budgets"]
        self.changed()

    async def _follow(self, session_id: str, after: int | None) -> None:
        while True:
            try:
                if after is None:
                    after = await self._load(session_id)
                self.lost = False
                async for message in await self.client.follow(session_id, after=after):
                    again = await self._process_message(message)
                    after = None if again else message.sequence
                    if again:
                        break
            except SessionNotFoundError:
                return  # the first message creates the session
            except CallerError as error:
                self.conversation.note(str(error), "bad")
                self.changed()
                return
            except TRANSIENT as error:
                await self._reconnect(error)

    async def _reconnect(self, error: Exception) -> None:
        """Replace a client that has given up. The new one continues the stream at the same position."""
        self.lost = True
        self.conversation.note(f"{error}. It is tried again.")
        self.changed()
        with suppress(*TRANSIENT):
            await self.client.close()
            await asyncio.sleep(AGAIN_S)
            self.client = self._connect()
            await self.client.__aenter__()

    async def _load(self, session_id: str) -> int:
        conversation = Conversation(session_id, self.agent)
        found = await self._read_stored(conversation)
        self.conversation, self._base = conversation, found["snapshot"]["sequence"]
        await self.refresh()
        if self.status != "paused":
            return self._base
        begin = self._base
        for run in found["runs"]:  # the waiting call is in the run that asked for it, or in an earlier one
            begin = min(begin, run["start_sequence"])
            if run["status"] != "superseded" and run["run_id"] != found["runs"][0]["run_id"]:
                break
        return begin

    async def _read_stored(self, into: Conversation) -> dict[str, Any]:
        asked: JsonObject = {"session_id": into.id, "snapshot": True, "sub_sessions": True, "runs": RUNS}
        found: dict[str, Any] = dict(await self.client.ask("get_session", asked))
        snapshot, below = found["snapshot"], found["sub_sessions"]
        children = {each["parent_tool_call_id"]: (each["session_id"], each["agent_type"]) for each in below}
        into.load(_MESSAGES.validate_python(snapshot["messages"]), children, snapshot["sequence"])
        for each in below:
            if each["status"] in formats.MISSING and (child := into.below.get(each["session_id"])) is not None:
                child.note(f"The sub-agent's session {formats.MISSING[each['status']]}.")
        return found

    async def load_child(self, child: Conversation) -> None:
        """Load the conversation of a sub-agent that ended before the chat began. It is called when the user opens it."""
        await self._read_stored(child)

    async def _process_message(self, message: StreamMessage) -> bool:
        """Process a message from the stream. Return whether the session must be reloaded from its beginning."""
        own, replayed = message.session_id == self.session_id, message.sequence <= self._base
        if own and message.kind == "chunk" and message.run_id and message.run_id not in self.conversation.runs:
            self.conversation.runs.add(message.run_id)
            await self._insert_user_message(message.run_id)
        changes = self.conversation.take(message)
        if not replayed and any(isinstance(change, Resynced) for change in changes):
            return True
        ended = any(isinstance(change, RunEnded) for change in changes)
        self.stopping = self.stopping and not (own and ended)
        if own and not replayed and any(isinstance(change, RunBegan | RunEnded | MessageQueued) for change in changes):
            await self.refresh()
        self.changed()
        return False

    async def _insert_user_message(self, run_id: str) -> None:
        """Insert the user message that started a run, unless the conversation already contains it. Another client may have
        started the run, or the message may have just been sent."""
        found = await self.client.get_messages(str(self.session_id), limit=RECENT)
        for message in _MESSAGES.validate_python(found["messages"]):
            if isinstance(message, UserMessage) and message.run_id == run_id and not self.conversation.has(run_id):
                self.conversation.insert(User(message.content, run_id, message.files))
