"""Checks requests to a server on loopback. A request is accepted if it names the server's own host and was not made by
a foreign web page.

Law: a page on another site cannot reach the server through a name that resolves to it (DNS rebinding), because `Host`
then contains that name.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from urllib.parse import urlsplit

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")


def hosts_of(port: int, more: Iterable[str] = ()) -> frozenset[str]:
    """Return the accepted values of `Host`."""
    names = [*LOOPBACK, *more]
    return frozenset([f"{name}:{port}" for name in names] + (names if port == 80 else []))


def why_foreign(headers: Sequence[tuple[str, str]], hosts: Collection[str], *, any_port: bool = False) -> str | None:
    """Return why a request must be refused, or None. A request is accepted if it comes from a page of this server, or
    does not come from a web page. `any_port` also accepts pages of other servers on loopback.

    A browser sends the page's origin (`Origin`) if it matters. Otherwise it sends how the two sites are related
    (`Sec-Fetch-Site`).
    """
    given = {name: [v for n, v in headers if n == name] for name in ("host", "origin", "sec-fetch-site")}
    if len(given["host"]) != 1 or given["host"][0].lower() not in hosts:
        return f"the host is {', '.join(given['host']) or 'missing'!r}; use {min(hosts)}"
    if not given["origin"]:
        site = given["sec-fetch-site"]
        return None if site in ([], ["none"], ["same-origin"]) else f"it comes from a web page ({', '.join(site)})"
    origin = given["origin"][0]
    known = origin.lower() in {f"http://{host}" for host in hosts} or (any_port and _is_loopback(origin))
    return None if known and len(given["origin"]) == 1 else f"it comes from a web page of {origin!r}"


def _is_loopback(origin: str) -> bool:
    """Whether the page is served on this machine."""
    try:
        parts = urlsplit(origin)
        name = (parts.hostname or "").lower()
    except ValueError:
        return False
    known = name in ("127.0.0.1", "localhost", "::1") or name.endswith(".localhost")
    return known and parts.scheme in ("http", "https") and not parts.path
