"""`helix keys`: API keys of a stage, or of a service for a store on this machine.

Law: a key is shown only once, when it is created. Only a hash of its secret is stored. A revoked key cannot open new
connections, and the connections that it has already opened end within two hours.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Annotated, TypeVar

import typer

from helix.adapters.system import SystemClock, SystemIds
from helix.cli.options import Json, Store
from helix.cli.output import RefusedError, say, write, write_json
from helix.cli.stores import with_new_store, with_store
from helix.cli.view.formats import print_table
from helix.core.errors import NotAuthenticatedError
from helix.gateway.authoriser import KEY, ApiKey, ApiKeys, Principal
from helix.ports.state_store import StateStore

T = TypeVar("T")
PAGE = 100
DAY_S = 86_400


def create(
    store: Store,
    user: Annotated[str, typer.Option("--user", help="User of the key, who owns the sessions that are made with it")],
    tenant: Annotated[str | None, typer.Option("--tenant", help="Tenant of the user")] = None,
    name: Annotated[str, typer.Option("--name", help="Label in the list of keys")] = "",
    days: Annotated[int | None, typer.Option("--days", min=1, help="Days until it expires [default: never]")] = None,
    operator: Annotated[
        bool, typer.Option("--operator", help="Let the key read the fleet and change the limits of budgets")
    ] = False,
    json: Json = False,
) -> None:
    try:
        principal = Principal(user, tenant)
    except NotAuthenticatedError as error:
        raise RefusedError(f"--user and --tenant: {error}") from None
    clock = SystemClock()
    expires = None if days is None else clock.now() + days * DAY_S

    async def make(rows: StateStore) -> str:
        keys = ApiKeys(rows, clock)
        return await keys.create(SystemIds(), principal, name=name, expires_at=expires, operator=operator)

    key = with_new_store(store, make)
    ident = key.split("_")[1]
    if json:
        made = {"key_id": ident, "key": key, "principal": str(principal), "expires_at": expires}
        write_json({**made, "operator": operator})
        return
    write(key)
    say(f"key {ident} of user {str(principal)!r}; it is shown only now")


def list(store: Store, json: Json = False) -> None:  # the name of the command
    found = _with_keys(store, _list_all)
    if json:
        for key in found:
            write_json({**_fields(key), "state": _state(key)})
    elif found:
        rows = [[key.key_id, _user(key), key.name, _day(key.created_at), _state(key)] for key in found]
        print_table(["key", "user", "name", "made", "state"], rows)
    else:
        say("there are no keys: helix keys create --user NAME")


def revoke(
    store: Store,
    key: Annotated[str, typer.Argument(metavar="KEY", help="Id of the key (helix keys list), or the key itself")],
) -> None:
    match = KEY.fullmatch(key)
    ident = match[1] if match is not None else key
    if not _with_keys(store, lambda keys: keys.revoke(ident)):
        raise RefusedError(f"there is no key {ident!r} (see helix keys list)")
    say(
        f"key {ident} is revoked: it opens no connection from now on, and those that it has opened end within two hours"
    )


def _with_keys(store: Store, act: Callable[[ApiKeys], Awaitable[T]]) -> T:
    return with_store(store, lambda rows: act(ApiKeys(rows, SystemClock())))


async def _list_all(keys: ApiKeys) -> tuple[ApiKey, ...]:
    found: tuple[ApiKey, ...] = ()
    while page := await keys.list(limit=PAGE, after=found[-1].key_id if found else None):
        found += tuple(page)
    return found


def _user(key: ApiKey) -> str:
    return f"{key.principal}, operator" if key.operator else str(key.principal)


def _fields(key: ApiKey) -> dict[str, str | float | None]:
    times = {"created_at": key.created_at, "expires_at": key.expires_at, "revoked_at": key.revoked_at}
    return {"key_id": key.key_id, "principal": str(key.principal), "name": key.name, "operator": key.operator, **times}


def _state(key: ApiKey) -> str:
    if key.revoked_at is not None:
        return f"revoked {_day(key.revoked_at)}"
    if key.expires_at is None:
        return "valid"
    return f"{'expired' if key.expires_at <= SystemClock().now() else 'valid until'} {_day(key.expires_at)}"


def _day(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d")
