"""The slash commands of a chat, such as `/help`, `/cost` and `/branch`, for both front ends.

Law: a command does I/O only through the client. It returns an outcome, and the front end shows it or acts on it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from helix.adapters.system import SystemClock
from helix.cli.output import RefusedError
from helix.cli.sessions.cost import COLUMNS, ledger_rows, usd_of
from helix.cli.sessions.listing import session_rows
from helix.cli.view import formats
from helix.client import HelixClient
from helix.core.inbox_chunks import WaitMode
from helix.core.ledger import NANOS, Line
from helix.core.reports import CostFound
from helix.core.request_fields import PAGE

SHOWN = ("service", "what", "step", "cost", "quantity", "how")
LEAVE = ("/exit", "/quit", "/q")
COMMANDS = {
    "/attach": "Send a file, and a text after it (/attach photo.png What is this?).",
    "/steer": "Send a message to the run that works (/steer TEXT), or the first message that waits.",
    "/withdraw": "Take back the last message that waits, or another one (/withdraw 1: the first).",
    "/branch": "Create a session from a step of this one (/branch 2: from step 2), and continue there.",
    "/back": "Return to the previous session.",
    "/sessions": "Continue another session of this agent.",
    "/new": "Begin a new session.",
    "/cost": "Show what this session cost, line by line, and its budgets.",
    "/resume": "Continue an interrupted run, or one whose process died.",
    "/retry": "Retry a failed run from its last checkpoint.",
    "/help": "Show this.",
    "/exit": "Leave. The session stays stored.",
}
KEYS = {
    "Enter": "Send. While a run continues, the message waits in the session for its own turn.",
    "Shift+Enter, Ctrl+J": "A new line.",
    "Escape, Ctrl+C": "Interrupt the run; the first message that waits gets the next turn. A second time: leave.",
    "Up, Down": "Earlier messages, at the first and the last line of the prompt.",
    "PageUp, PageDown": "Scroll.",
    "Tab": "Move to blocks that open, and to questions. Enter opens and closes.",
}


@dataclass(frozen=True)
class ShowTable:
    """A table to show."""

    title: str
    """The heading of the table."""
    columns: Sequence[str]
    """The headings of the columns."""
    rows: Sequence[Sequence[str]]
    """The cells of each row, one for each column."""
    note: str = ""
    """The line below the table."""
    right: Sequence[str] = ()
    """The headings of the right-aligned columns, which contain numbers."""


@dataclass(frozen=True)
class ChooseRow(ShowTable):
    """A table in which the user chooses a row."""

    take: Callable[[int], Coroutine[Any, Any, Outcome]] = field(kw_only=True)
    """A function that receives the index of the chosen row, acts on it and returns the outcome."""


@dataclass(frozen=True)
class OpenSession:
    """An outcome after which the chat continues in another session."""

    session_id: str | None
    """The session to continue in. None for a new one."""


@dataclass(frozen=True)
class ContinueRun:
    """An outcome after which the chat continues the session's run."""

    verb: str
    """The client verb that continues it: `resume` or `retry`."""


@dataclass(frozen=True)
class SendMessage:
    """An outcome after which the chat sends a message. Without a text and files, it steers with the first waiting one."""

    text: str
    """The text of the message. It may be empty."""
    files: Sequence[Path] = ()
    """Its files on this machine."""
    when_running: WaitMode = "queue"
    """How the message waits while a run works."""


@dataclass(frozen=True)
class ReturnText:
    """An outcome after which the prompt has the text of a withdrawn message."""

    text: str
    """The text of the message."""


@dataclass(frozen=True)
class LeaveChat:
    """An outcome after which the chat ends."""


Outcome = ShowTable | OpenSession | ContinueRun | SendMessage | ReturnText | LeaveChat


class Commands:
    """The commands of one chat. `agent` is the agent's name in the service."""

    def __init__(self, agent: str) -> None:
        self.agent = agent
        self._trail: list[str] = []

    async def execute(self, client: HelixClient, line: str, session_id: str | None) -> Outcome:
        """Execute a command line. Raises `RefusedError` if the command is unknown or has nothing to act on."""
        name, _, rest = line.strip().partition(" ")
        if name in LEAVE:
            return LeaveChat()
        if name == "/attach":
            return _read_attachment(rest)
        if name == "/help":
            rows = [[name, text] for name, text in {**COMMANDS, **KEYS}.items()]
            return ShowTable("Commands and keys", ("", ""), rows)
        if name == "/sessions":
            return await self._sessions(client, session_id)
        if name == "/back":
            if not self._trail:
                raise RefusedError("there is no session before this one")
            return OpenSession(self._trail.pop())
        if name not in COMMANDS:
            raise RefusedError(f"{name!r} is not a command: /help lists them")
        if session_id is None:
            raise RefusedError(f"{name} needs a session: send a message first")
        match name:
            case "/new":
                return self._open_session(session_id, None)
            case "/cost":
                return await _cost(client, session_id)
            case "/steer":
                return SendMessage(rest.strip(), when_running="steer")
            case "/withdraw":
                return await _withdraw(client, session_id, rest.strip())
            case "/branch":
                return await self._branch(client, session_id, rest.strip())
            case _:
                return ContinueRun(name.removeprefix("/"))

    def _open_session(self, session_id: str | None, to: str | None) -> OpenSession:
        if session_id is not None:
            self._trail.append(session_id)
        return OpenSession(to)

    async def _sessions(self, client: HelixClient, session_id: str | None) -> Outcome:
        found: Any = await client.list_sessions(limit=PAGE, agent=self.agent, titles=True)
        entries = [entry for entry in found["sessions"] if entry["session_id"] != session_id]
        if not entries:
            raise RefusedError(f"there is no other session of {self.agent!r}")
        columns, rows = session_rows(entries, SystemClock().now())
        agent = columns.index("agent")
        rows = [[*row[:agent], *row[agent + 1 :]] for row in rows]

        async def take(index: int) -> Outcome:
            return self._open_session(session_id, entries[index]["session_id"])

        note = f"There are more: helix sessions --agent {self.agent}" if found["cursor"] is not None else ""
        return ChooseRow("Sessions", [*columns[:agent], *columns[agent + 1 :]], rows, note, take=take)

    async def _branch(self, client: HelixClient, session_id: str, step: str) -> Outcome:
        found: Any = await client.list_checkpoints(session_id, limit=PAGE)
        points = found["checkpoints"]

        async def take(index: int) -> Outcome:
            return self._open_session(session_id, await client.branch(session_id, points[index]["id"]))

        if step:
            if not step.isdecimal():
                raise RefusedError(f"a step must be a whole number, not {step!r}")
            place = next((i for i, point in enumerate(points) if point["step"] == int(step)), None)
            if place is None:
                raise RefusedError(f"step {step} has no checkpoint among the newest {PAGE}")
            return await take(place)
        if not points:
            raise RefusedError("there is no checkpoint yet to branch from")
        now = SystemClock().now()
        rows = [
            [
                f"step {point['step']}",
                formats.count(point["count"], "message"),
                point["status"],
                formats.age(now - point["created_at"]),
            ]
            for point in points
        ]
        return ChooseRow("Branch from", ("step", "messages", "status", "when"), rows, take=take)


async def _withdraw(client: HelixClient, session_id: str, number: str) -> ReturnText:
    """Withdraw the waiting message with this number, in the order of their turns."""
    waiting = sorted((await client.get_session(session_id)).inbox, key=lambda message: message.mode == "queue")
    if number and not number.isdecimal():
        raise RefusedError(f"a waiting message must be a whole number, not {number!r}")
    if not waiting or (number and not 0 < int(number) <= len(waiting)):
        raise RefusedError(f"there is no waiting message {number}".rstrip())
    message = waiting[int(number) - 1 if number else -1]
    if await client.withdraw(session_id, message.id) != "withdrawn":
        raise RefusedError("the message has been delivered already")
    return ReturnText(message.content)


def _read_attachment(given: str) -> SendMessage:
    """Parse a file, whose name may be in double quotes, and the text after it."""
    found = re.fullmatch(r'(?:"([^"]+)"|(\S+))\s*(.*)', given.strip(), re.DOTALL)
    if found is None:
        raise RefusedError("name the file: /attach FILE, or /attach FILE MESSAGE")
    return SendMessage(found[3], [Path(found[1] or found[2]).expanduser()])


async def _cost(client: HelixClient, session_id: str) -> ShowTable:
    found = CostFound.model_validate(await client.get_cost(session_id))
    lines = [Line(**line.model_dump(exclude={"usd"}), nanos=round(line.usd * NANOS)) for line in found.lines]
    budgets: Any = await client.get_budgets(session_id)
    bounds = "; ".join(f"{each['budget']}: {budget(each)}" for each in budgets["budgets"])
    note = f"{usd_of(round(found.usd * NANOS))} in all" + (f". Budgets: {bounds}" if bounds else "")
    order = [COLUMNS.index(name) for name in SHOWN]  # the important columns first, because the screen may be narrow
    rows = [[row[place] for place in order] for row in ledger_rows(lines, session_id)]
    return ShowTable(f"Cost of {session_id}", SHOWN, rows, note, right=("cost", "quantity"))


def budget(of: dict[str, Any]) -> str:
    """Describe how much of a budget (`helix.core.reports.BudgetFound`) is used."""
    used, limit = of["used"] or 0, of["limit"] or 0
    if of["unit"] == "usd":
        return f"${used:.2f} of ${limit:.2f}"
    return f"{used:,.0f} of {limit:,.0f} tokens"
