"""Guards that compare a value with a fixed rule: hosts, sizes and schemas."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import unquote, urlsplit

from pydantic import TypeAdapter, ValidationError

from helix.core.damage import every_problem
from helix.core.errors import DefinitionError
from helix.core.guards import GuardContext, GuardFunction
from helix.core.json import dumps
from helix.core.verdicts import Allow, AnyVerdict, Block
from helix.guards.secret_patterns import texts

_URL = re.compile(
    r"(?:\b(?:https?|wss?|ftp):[/\\]*|\b[a-z][a-z0-9+.\-]{0,30}://+|(?<![\w:/\\])[/\\]{2,}"
    r"|(?<![\w.@/\\\-])(?=www\d{0,3}\.))"
    r"((?:[^\s\"'<>`()\[\]{}|^/\\?#]|\[[0-9a-f:.]+\])+)",
    re.IGNORECASE,
)
"""A URL up to the end of its authority, with or without a scheme, in the forms that browsers take. Names that begin with
`www.` are among them, because chat and mail programs turn them into links."""
_HOST = re.compile(r"(?:[a-z0-9_](?:[a-z0-9_-]*[a-z0-9_])?\.)*[a-z0-9_](?:[a-z0-9_-]*[a-z0-9_])?")


def allowed_hosts(*hosts: str) -> GuardFunction:
    """Return a guard that blocks a value with a URL of another host. `hosts` are exact names, and `*.example.com` for
    all names below `example.com`. Raises `DefinitionError` for a host that is not a name."""
    for host in hosts:
        if not isinstance(host, str) or not _HOST.fullmatch(host.lower().removeprefix("*.")):
            raise DefinitionError("guard 'allowed_hosts'", "hosts", f"{host!r} is not the name of a host")
    exact = {host.lower() for host in hosts if not host.startswith("*.")}
    suffixes = tuple(host.lower()[1:] for host in hosts if host.startswith("*."))

    def allowed_hosts(value: Any, context: GuardContext) -> AnyVerdict:
        found = {host for text in texts(value) for host in _hosts_in(text)}
        other = sorted(host for host in found if host not in exact and not (suffixes and host.endswith(suffixes)))
        return Block(f"it contains URLs of hosts that are not allowed: {', '.join(other[:5])}") if other else Allow()

    return allowed_hosts


def _hosts_in(text: str) -> set[str]:
    """Return the hosts of all URLs in the text. A host that cannot be read is returned as it is written, so that it is
    not allowed."""
    found = set()
    for authority in _URL.findall(text):
        try:
            host = unquote(urlsplit(f"//{authority}").hostname or authority)
            host = host if host.isascii() else host.encode("idna").decode()
        except ValueError:
            host = authority
        found.add(host.lower().rstrip("."))
    return found


def max_size(size: int) -> GuardFunction:
    """Return a guard that blocks a value of more than `size` bytes: a text in UTF-8, and any other value as JSON."""

    def max_size(value: Any, context: GuardContext) -> AnyVerdict:
        found = len((value if isinstance(value, str) else dumps(value)).encode())
        return Allow() if found <= size else Block(f"it has {found} bytes; {size} are allowed")

    return max_size


def fits_schema(schema: Any) -> GuardFunction:
    """Return a guard that blocks a value which does not fit a pydantic model or another type."""
    adapter = TypeAdapter(schema)

    def fits_schema(value: Any, context: GuardContext) -> AnyVerdict:
        try:
            adapter.validate_python(value)
        except ValidationError as error:
            return Block(every_problem(error, "value"))
        return Allow()

    return fits_schema
