"""Requests of people that are a value in the session's row: a summary of the conversation (docs/protocol.md#views), and
the session's title and tags.

Law: a request starts no run, needs no claim and calls no model. It bumps the version, so the next write of a worker that
is buying a step is refused. That worker reads the row again. If only requests were added, it writes its answer on top. A
request never causes an answer to be bought twice.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from helix.core.errors import InvalidInputError, SessionNotFoundError
from helix.core.json import check_text
from helix.core.session_row import MAX_TITLE, SessionRow
from helix.engine.claims.liveness import DEAD
from helix.engine.engine import Engine
from helix.engine.history import DELETING, session_key
from helix.engine.writing import as_claimed, commit, no_outcome_check
from helix.ports.state_store import Operation, Update
from helix.services.session_index import moved_put

MOST_FOCUS = 1_000
"""The maximum length of a summary's focus, in characters."""
MOST_TAGS, LONGEST_TAG = 50, 256
"""The maximum number of tags of a session, and the maximum length of one in characters."""


def check_focus(focus: str) -> None:
    """Raise `InvalidInputError` if the focus cannot be stored, or is too long."""
    check_text(focus, "focus")
    if len(focus) > MOST_FOCUS:
        raise InvalidInputError(f"focus has {len(focus)} characters; the limit is {MOST_FOCUS}")


async def ask_for_summary(engine: Engine, session_id: str, focus: str) -> None:
    """Request that the session's next step write a summary first. The last focus wins. Raises
    `SessionNotFoundError`."""
    check_focus(focus)

    def change(session: SessionRow) -> Mapping[str, Any] | None:
        context = session.context.model_copy(update={"asked": focus})
        asked = {"context": context.model_dump(mode="json", exclude_defaults=True)}
        return None if session.context == context else asked

    await _request(engine, "ask_for_summary", session_id, change)


def clean_title(title: str) -> str:
    """Return the title on one line, without spaces at its ends. Raises `InvalidInputError` if it cannot be stored, or is
    too long."""
    check_text(title, "title")
    title = " ".join(title.split())
    if len(title) > MAX_TITLE:
        raise InvalidInputError(f"title has {len(title)} characters; the limit is {MAX_TITLE}")
    return title


async def rename(engine: Engine, session_id: str, title: str) -> str:
    """Give the session a title, and return it as stored. An empty title removes it. Raises `SessionNotFoundError`."""
    title = clean_title(title)

    def change(session: SessionRow) -> Mapping[str, Any] | None:
        return None if session.title == title else {"title": title}

    await _request(engine, "rename", session_id, change)
    return title


def _clean_tag(tag: str) -> str:
    check_text(tag, "a tag")
    tag = " ".join(tag.split())
    if not 0 < len(tag) <= LONGEST_TAG:
        raise InvalidInputError(f"a tag must have 1 to {LONGEST_TAG} characters; {tag[:40]!r} has {len(tag)}")
    return tag


async def change_tags(engine: Engine, session_id: str, add: Collection[str], remove: Collection[str]) -> list[str]:
    """Remove tags of the session and add others, and return its tags as stored. A tag in both is kept. Raises
    `SessionNotFoundError`, and `InvalidInputError` if the session would have too many."""
    added, tags = [_clean_tag(tag) for tag in add], list[str]()

    def change(session: SessionRow) -> Mapping[str, Any] | None:
        tags[:] = [tag for tag in session.tags if tag not in remove]
        tags.extend(tag for tag in dict.fromkeys(added) if tag not in tags)
        if len(tags) > max(MOST_TAGS, len(session.tags)):
            raise InvalidInputError(
                f"session {session_id!r} would have {len(tags)} tags; the limit is {MOST_TAGS}: remove some of its tags"
            )
        return None if session.tags == tags else {"tags": tags}

    await _request(engine, "change_tags", session_id, change)
    return tags


async def _request(
    engine: Engine, name: str, session_id: str, change: Callable[[SessionRow], Mapping[str, Any] | None]
) -> None:
    """Write the fields that `change` returns for the session as read. None: nothing changes. The update keeps deadlines,
    which move without a bump."""
    while True:
        session = await engine.history.existing(session_id)
        if session.status == DELETING:
            raise SessionNotFoundError(session_id)
        fields = change(session)
        if fields is None:
            return
        changes = {**fields, "version": session.version + 1, "updated_at": engine.clock.now()}
        writes: list[Operation] = [Update(session_key(session_id), set=changes, when=as_claimed(session))]
        if not fields.keys().isdisjoint(("title", "tags")) and session.parent is None:
            writes.append(moved_put(session.model_copy(update=changes)))
        if await commit(engine, name, writes, no_outcome_check):
            return


async def read_request(engine: Engine, session: SessionRow) -> SessionRow | None:
    """Return the stored session if, apart from deadlines, only requests have changed it since it was read. Otherwise
    return None."""
    now = await engine.history.session(session.session_id)
    if now is None or now.version == session.version or now.claim is None or now.claim.deadline == DEAD:
        return None
    return now if _without_request(now) == _without_request(session) else None


def _without_request(session: SessionRow) -> dict[str, object]:
    context = session.context.model_copy(update={"asked": None})
    claim = None if session.claim is None else session.claim.model_copy(update={"deadline": DEAD})
    changes = {"version": 0, "updated_at": 0, "lease_expires": 0, "context": context, "claim": claim, "title": ""}
    return session.model_copy(update={**changes, "tags": []}).dump()
