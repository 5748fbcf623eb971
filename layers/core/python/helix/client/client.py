"""A WebSocket client for deployed agents.

Law: the service acts on a request once, whatever happens to the connection. A caller reads each message once, without
gaps. A client needs an address and a token, and stores nothing: any process with the same user's token can create a handle.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Self

from helix.adapters.system import SystemClock, SystemIds
from helix.client.call_reports import CallReports
from helix.client.feed import Feed, Following, whole_stream
from helix.client.link import ClientSettings, Link, Token, fields_of
from helix.client.messages import ANSWER_FIELDS, declared, message_of, session_of_key
from helix.client.remote_handle import RemoteHandle
from helix.client.uploads import download, upload_files
from helix.core.chunks import StreamChunk
from helix.core.errors import InvalidInputError, SessionNotFoundError
from helix.core.files import Content, FilePart
from helix.core.frontend_tools import GivenTool
from helix.core.handles import CanResumeResult, Confirmation, ResumeMode, RetryMode, SessionState
from helix.core.inbox import WhenRunning, Withdrawn
from helix.core.initial import AgentInput
from helix.core.json import JsonObject, JsonValue
from helix.core.replies import WithdrawnReply
from helix.core.run_settings import GivenSettings
from helix.core.wire import Judge, StreamMessage, one_run
from helix.ports.clock import Clock
from helix.ports.ids import Ids
from helix.services.file_inputs import read_message


class HelixClient(CallReports):
    """A client for deployed agents, used as `async with HelixClient(url, token) as client: ...`.

    The service's errors are raised as the classes of `helix.core.errors`, chosen by their code.

    url: the URL of the WebSocket API, `wss://...`. token: an API key, a JSON Web Token, or a function that returns one. The
    function may be async, and is called for each connection.
    """

    def __init__(
        self,
        url: str,
        token: Token = None,
        *,
        settings: ClientSettings | None = None,
        clock: Clock | None = None,
        ids: Ids | None = None,
    ) -> None:
        from helix.client.socket import SocketLink  # only this link needs websockets

        settings, ids, clock = settings or ClientSettings(), ids or SystemIds(), clock or SystemClock()
        self._set_up(SocketLink(url, token, settings, clock, ids), settings, clock, ids)

    def _set_up(self, link: Link, settings: ClientSettings, clock: Clock, ids: Ids) -> None:
        self.settings, self._ids, self._link = settings, ids, link
        link.following = self.following = Following(link.ask, link.spawn, clock, settings)
        self.ask = link.ask  # handles also use it, along with `following` and `settings`

    @classmethod
    def over(cls, link: Link) -> Self:
        """Create a client over a link other than a WebSocket, for example `helix.client.polling.PollingLink`."""
        client = cls.__new__(cls)
        client._set_up(link, ClientSettings(), SystemClock(), SystemIds())
        return client

    @classmethod
    async def connect(cls, url: str, token: Token = None, **options: Any) -> Self:
        """Return a connected client. The caller must close it."""
        return await cls(url, token, **options).__aenter__()

    async def __aenter__(self) -> Self:
        try:
            await self._link.open()
        except BaseException:
            await self._link.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connection. Runs continue. May be called repeatedly."""
        await self._link.close()

    @property
    def connections(self) -> int:
        """The number of connections opened so far."""
        return self._link.connections

    # --- starting runs ------------------------------------------------------------------------------------------------

    async def run(
        self,
        agent: str,
        message: Content | Mapping[str, Any],
        *,
        session_id: str | None = None,
        state: JsonObject | None = None,
        tags: list[str] | None = None,
        metadata: JsonObject | None = None,
        priority: int | None = None,
        key: str | None = None,
        when_running: WhenRunning = "refuse",
        tools: Sequence[GivenTool] | None = None,
        settings: GivenSettings | None = None,
    ) -> RemoteHandle:
        """Start a run: a new session, or the next message of one that is not running.

        message: a string, a list of strings and files (see `LocalExecutor.execute`; the client uploads the files first),
        `{"message": ..., "state": {...}, "files": [...]}` with `FilePart` objects or their JSON, or a function agent's
        parameters. session_id: an existing session, or a new id that begins with the caller's prefix (see `whoami`).
        key: the idempotency key. For at least a day, a request with the same key returns the same run, even from another
        process. The default is a new key. If the client uploads files, and there is no user and no session id, the id is
        `ses_` and the first 32 hexadecimal digits of the key's SHA-256 hash.
        priority: the place of this run and of the session's later runs in the queue for slots, from -999 to 0. Runs with a
        lower number yield to others. Only the service assigns priorities above 0.
        when_running, tools, settings: see `LocalExecutor.execute`. `answer` has the result of a call of such a tool.

        Raises `AgentAlreadyRunningError` if the session is running; of several callers exactly one wins. Raises
        `QueueFullError` if the agent's queue for slots is full, and `InboxFullError` if too many messages wait.
        """
        fields = declared(tools, settings) | {"agent": agent, "session_id": session_id, "state": state}
        fields |= {"metadata": metadata, "priority": priority, "tags": None if tags is None else [*tags]}
        fields |= {} if when_running == "refuse" else {"when_running": when_running}  # unknown to an older service
        if not isinstance(message, Mapping):
            return await self._start("run", await self._with_message(fields, message, key), key)
        if "message" not in message:
            return await self._start("run", {**fields, "input": dict(message)}, key)
        fields |= {"state": message.get("state") or state}
        return await self._start("run", await self._with_message(fields, message_of(message), key), key)

    async def stream(
        self, agent: str, message: Content | Mapping[str, Any], **options: Any
    ) -> AsyncIterator[StreamChunk]:
        """Start a run as `run` does, and return its chunks."""
        return await (await self.run(agent, message, **options)).stream()

    async def resume(
        self,
        session_id: str,
        *,
        mode: ResumeMode = "continue",
        message: Content | None = None,
        checkpoint_id: str | None = None,
        confirmation: Confirmation | None = None,
        key: str | None = None,
        tools: Sequence[GivenTool] | None = None,
        settings: GivenSettings | None = None,
    ) -> RemoteHandle:
        """Resume an interrupted or paused session, or rewind it to a checkpoint. See `LocalExecutor.resume`."""
        if confirmation is not None:
            given: dict[str, Any] = {name: getattr(confirmation, name) for name in ANSWER_FIELDS}
            return await self.answer(session_id, confirmation.tool_call_id, **given)
        if mode == "with_confirmation":
            raise InvalidInputError("with_confirmation needs a confirmation: which call, approved or not")
        fields = declared(tools, settings) | {"session_id": session_id, "mode": mode, "checkpoint_id": checkpoint_id}
        return await self._start("resume", await self._with_message(fields, message), key)

    async def retry(
        self,
        session_id: str,
        *,
        mode: RetryMode = "from_checkpoint",
        message: Content | None = None,
        key: str | None = None,
        tools: Sequence[GivenTool] | None = None,
        settings: GivenSettings | None = None,
    ) -> RemoteHandle:
        """Retry a failed session. See `LocalExecutor.retry`."""
        fields = declared(tools, settings) | {"session_id": session_id, "mode": mode}
        return await self._start("retry", await self._with_message(fields, message), key)

    async def answer(
        self,
        session_id: str,
        tool_call_id: str,
        *,
        approved: bool = True,
        data: JsonValue = None,
        reason: str | None = None,
        arguments: JsonObject | None = None,
        round: int | None = None,
    ) -> RemoteHandle:
        """Answer a call that is waiting in the session or in one of its sub-agents. Return a handle of the session's
        current run.

        The first answer wins. A later one, even a repeat after a lost connection, raises `CallNotPendingError`.

        arguments: for an approval, the arguments that replace the model's. Raises `InvalidInputError` if they do not fit
        the tool's schema.
        round: for questions, the `Pending.round` that `data` answers, so that a repeated answer never reaches a later
        question. Raises `InvalidInputError` if the answer does not fit the question's schema.
        """
        fields: JsonObject = {"session_id": session_id, "tool_call_id": tool_call_id, "approved": approved}
        if round is not None:  # an older service does not know it
            fields["round"] = round
        return await self._request_run("answer", fields | {"data": data, "reason": reason, "arguments": arguments})

    async def handle(self, session_id: str, run_id: str | None = None) -> RemoteHandle:
        """Return a handle of a run by its ids (default: the session's current run)."""
        if run_id is None:
            run_id = (await self.get_session(session_id)).current_run_id
        found = await self.ask("get_session", {"session_id": session_id, "run_id": run_id})
        run, session = fields_of(found["run"]), fields_of(found["session"])
        place = {"session_id": session_id, "run_id": run_id, "turn": run["turn"], "after": run["start_sequence"]}
        return RemoteHandle(self, {**place, "stream_id": session["stream_id"]})

    async def _with_message(
        self, fields: JsonObject, message: Content | AgentInput | None, key: str | None = None
    ) -> JsonObject:
        """Return the fields of a request with this message, whose files have been uploaded."""
        text, files = await read_message(message)
        if not files:
            return {**fields, "message": text}
        session_id = fields.get("session_id")
        uploads = any(file.data is not None for file in files)
        if uploads and session_id is None and (await self.whoami())["principal"] is None:
            # It owns the files, because there is no user. A repeat with the key must name it too.
            session_id = self._ids.new("ses") if key is None else session_of_key(key)
        parts = await upload_files(self.ask, files, None if session_id is None else str(session_id))
        described: list[JsonValue] = [part.model_dump(mode="json") for part in parts]
        return {**fields, "session_id": session_id, "message": text or None, "files": described}

    async def _start(self, action: str, fields: JsonObject, key: str | None) -> RemoteHandle:
        return await self._request_run(action, {**fields, "key": self._ids.new("key") if key is None else key})

    async def _request_run(self, action: str, fields: JsonObject) -> RemoteHandle:
        await self.following.make_room()
        with self.following.starting():
            handle = RemoteHandle(self, place := await self.ask(action, fields))
            judge = one_run(handle.session_id, handle.turn, run_id=handle.run_id)
            handle.first = self.following.add(handle.stream_id, handle.after, judge, subscribed=not place.get("replay"))
        return handle

    # --- controlling --------------------------------------------------------------------------------------------------

    async def interrupt(self, session_id: str, reason: str | None = None, *, run_id: str | None = None) -> bool:
        """Ask the run (default: the current one) to stop. Return False if it is not running."""
        fields: JsonObject = {"session_id": session_id, "reason": reason, "run_id": run_id}
        return bool((await self.ask("interrupt", fields))["interrupted"])

    async def withdraw(self, session_id: str, queued_id: str) -> Withdrawn:
        """Take back a message that waits in the session's inbox. See `LocalExecutor.withdraw`."""
        found = await self.ask("withdraw", {"session_id": session_id, "queued_id": queued_id})
        return WithdrawnReply.model_validate(found).withdrawn

    async def abort(self, session_id: str, reason: str | None = None, *, run_id: str | None = None) -> None:
        """End the session's run and its sub-agents' runs permanently, with the status failed."""
        await self.ask("abort", {"session_id": session_id, "reason": reason, "run_id": run_id})

    async def compact(self, session_id: str, focus: str = "") -> None:
        """Request a summary of the conversation's beginning at the next step. See `LocalExecutor.compact`."""
        await self.ask("compact", {"session_id": session_id, "focus": focus})

    async def rename(self, session_id: str, title: str) -> str:
        """Give the session a title, and return it as stored. See `LocalExecutor.rename`."""
        return str((await self.ask("rename", {"session_id": session_id, "title": title}))["title"])

    async def authenticate(self, token: str | None = None) -> JsonObject:
        """Authenticate the same user again with a new token. Return `{"principal", "expires_at", "operator", "prefix"}`."""
        return await self.ask("authenticate", {"token": token})

    async def whoami(self) -> JsonObject:
        """Return this connection's user, the expiry of its token (Unix seconds), and the prefix of its session ids."""
        return await self.authenticate()

    async def ping(self) -> float:
        """Return the service's time, in Unix seconds."""
        return float(str((await self.ask("ping", {}))["now"]))

    # --- sessions -----------------------------------------------------------------------------------------------------

    async def get_session(self, session_id: str) -> SessionState:
        """Return the session's committed state. Raises `SessionNotFoundError`."""
        return SessionState.model_validate((await self.ask("get_session", {"session_id": session_id}))["session"])

    async def can_resume(self, session_id: str) -> CanResumeResult:
        found = await self.ask("get_session", {"session_id": session_id})
        return CanResumeResult.model_validate(found["can_resume"])

    async def get_messages(self, session_id: str, *, limit: int = 50, before: int | None = None) -> JsonObject:
        """Return the newest `limit` (at most 100) messages before the index `before`, as `{"messages", "offset"}`."""
        found = await self.ask("get_session", {"session_id": session_id, "messages": limit, "before": before})
        return {"messages": found["messages"], "offset": found["offset"]}

    async def get_snapshot(self, session_id: str) -> JsonObject:
        """Return the conversation at its newest checkpoint. Its `sequence` is where the stream continues from there."""
        return fields_of((await self.ask("get_session", {"session_id": session_id, "snapshot": True}))["snapshot"])

    async def list_sessions(self, *, limit: int = 20, after: str | None = None, **filters: JsonValue) -> JsonObject:
        """Return a page of the caller's own root sessions, newest first, as `{"sessions", "cursor", "damaged"}`.

        limit: the maximum number of sessions on a page. after: the `cursor` of the previous page. filters: `status`,
        `agent`, `tag`, `since`, `waiting`, `text`, `titles` (docs/guide/websocket.md). A filtered page may be short.
        Only a page without a `cursor` is the last one.
        """
        return await self.ask("list_sessions", {"limit": limit, "after": after, **filters})

    async def list_agents(self, *, limit: int = 20, after: str | None = None) -> JsonObject:
        """Return the agents that `run` accepts, with the JSON schemas of their inputs and outputs
        (`helix.core.agent_reports.AgentList`)."""
        return await self.ask("list_agents", {"limit": limit, "after": after})

    async def read_file(self, session_id: str, file: FilePart) -> bytes:
        """Return the bytes of a stored file that the session holds. Raises `FileMissingError`, and `TransferError`."""
        found = await self.ask("get_file", {"session_id": session_id, "sha256": file.sha256, "name": file.name})
        return await download(str(found["url"]), file)

    async def get_cost(self, session_id: str) -> JsonObject:
        """Return the cost of the session and its sub-agents' sessions, line by line (`helix.core.reports.CostFound`)."""
        return await self.ask("get_cost", {"session_id": session_id})

    async def get_budgets(self, session_id: str) -> JsonObject:
        """Return the budgets that apply to the session: `{"session_id", "budgets"}` (`helix.core.reports.BudgetFound`)."""
        return await self.ask("get_budgets", {"session_id": session_id})

    async def get_usage(self, *, user: str | None = None, hours: int | None = None) -> JsonObject:
        """Return the usage of this user (`UsageFound`). user: another user, for operators only. hours: the number of most
        recent hours to count, by default all."""
        return await self.ask("get_usage", {"user": user, "hours": hours})

    async def change_budget(self, budget: str, limit: float) -> JsonObject:
        """Change the limit of a budget that `get_budgets` lists. Raises `NotAllowedError` except for operators."""
        return await self.ask("change_budget", {"budget": budget, "limit": limit})

    async def get_fleet(self, **asked: JsonValue) -> JsonObject:
        """Return limits, queues, health and scaling decisions (`helix.core.reports.FleetFound`). Raises
        `NotAllowedError` unless the caller is an operator."""
        return await self.ask("get_fleet", asked)

    async def get_step(self, session_id: str, step: int, *, run_id: str | None = None) -> JsonObject:
        """Return a step's attempts and calls: `{"attempts", "calls", "complete", ...}` (`helix.core.reports.StepFound`)."""
        return await self.ask("get_step", {"session_id": session_id, "step": step, "run_id": run_id})

    async def get_context(self, session_id: str, step: int | None = None, *, run_id: str | None = None) -> JsonObject:
        """Return the `messages` that the model was shown at a step (default: the next one), and which messages of the
        history were hidden or cleared (`helix.core.context_replies.ContextFound`)."""
        return await self.ask("get_context", {"session_id": session_id, "step": step, "run_id": run_id})

    async def get_checkpoint(self, session_id: str, checkpoint_id: str | None = None) -> JsonObject:
        """Return a checkpoint (default: the latest) with its `custom_state`. Raises `CheckpointNotFoundError`."""
        found = await self.ask("get_checkpoint", {"session_id": session_id, "checkpoint_id": checkpoint_id})
        return fields_of(found["checkpoint"])

    async def diff_checkpoints(
        self, session_id: str, before: str, checkpoint_id: str | None = None, *, offset: int = 0, limit: int = 20
    ) -> JsonObject:
        """Return the changes from `before` to a checkpoint (default: the latest). They are `patches` (RFC 6902) and a page
        of the `messages` that were `added` (`helix.core.session_replies.CheckpointDiff`)."""
        points: JsonObject = {"session_id": session_id, "before": before, "checkpoint_id": checkpoint_id}
        return await self.ask("diff_checkpoints", {**points, "offset": offset, "limit": limit})

    async def list_checkpoints(self, session_id: str, *, limit: int = 20, after: str | None = None) -> JsonObject:
        """Return a page of the session's checkpoints, newest first, as `{"checkpoints", "cursor"}`."""
        return await self.ask("list_checkpoints", {"session_id": session_id, "limit": limit, "after": after})

    async def branch(self, session_id: str, checkpoint_id: str | None = None, *, target: str | None = None) -> str:
        """Create a session with another's messages and state up to a checkpoint (default: its latest). Return its id."""
        fields: JsonObject = {"session_id": session_id, "checkpoint_id": checkpoint_id, "target": target}
        return str((await self.ask("branch", fields | {"key": self._ids.new("key")}))["session_id"])

    async def clone(
        self,
        session_id: str,
        target: str | None = None,
        *,
        checkpoint_id: str | None = None,
        message_index: int | None = None,
    ) -> str:
        """Copy a session up to a checkpoint, or its first messages. Return the id of the copy."""
        fields: JsonObject = {"session_id": session_id, "target": target, "checkpoint_id": checkpoint_id}
        fields |= {"message_index": message_index, "key": self._ids.new("key")}
        return str((await self.ask("clone", fields))["session_id"])

    async def delete(self, session_id: str) -> bool:
        """Delete the session, its sub-agents' sessions and its stream. Return False if it does not exist.
        Raises `AgentAlreadyRunningError` while it runs."""
        try:
            return bool((await self.ask("delete", {"session_id": session_id}))["deleted"])
        except SessionNotFoundError:
            return False

    # --- following ----------------------------------------------------------------------------------------------------

    async def follow(self, session_id: str, *, after: int = 0) -> AsyncIterator[StreamMessage]:
        """Return the session's stream after the sequence `after`, across its runs. It does not end on its own; the
        reader has to stop reading."""
        stream_id = (await self.get_session(session_id)).stream_id
        return self.following.read(await self.follow_feed(stream_id, after, whole_stream))

    async def follow_feed(self, stream_id: str, after: int, judge: Judge) -> Feed:
        """Return a feed of the stream after the sequence `after`, for handles."""
        await self.following.make_room()
        return self.following.add(stream_id, after, judge, subscribed=False)
