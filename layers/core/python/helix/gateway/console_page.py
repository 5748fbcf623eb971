"""The console's page: its files, its settings for a stage, and the headers of each response.

Law: the page loads nothing from other origins and runs no inline script. It connects only to its own server and to the
named addresses. Its settings for a stage are not secret: anyone who has the URL can read them.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

STATIC: Final = Path(__file__).parents[1] / "console" / "static"
"""The folder of the page's files, which are built from `clients/console`."""
KINDS: Final = {".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8"}
KINDS.update({".css": "text/css; charset=utf-8", ".svg": "image/svg+xml", ".json": "application/json"})
KINDS[".woff2"] = "font/woff2"
PAGE: Final = "index.html"
CONFIG: Final = "config.json"
"""A file next to the page that says how to sign in, and where to connect."""
HSTS_S: Final = 365 * 86_400
TLS_ONLY: Final = {"strict-transport-security": f"max-age={HSTS_S}"}

SiteConfig = dict[str, Any]


def page_files() -> dict[str, tuple[str, bytes]]:
    """Return the content type and the content of each file, by its name. Raises `FileNotFoundError` if the bundle was
    not built."""
    files = {path.name: (KINDS[path.suffix], path.read_bytes()) for path in STATIC.iterdir()} if STATIC.is_dir() else {}
    if PAGE not in files:
        raise FileNotFoundError(f"the console's bundle is not in {str(STATIC)!r}: build it in clients/console")
    return files


def content_policy(connect: Iterable[str], files: str = "") -> str:
    """Return the content security policy. `connect`: addresses to which the page may connect, in addition to its own
    server. `files`: the origin to which the page sends files, and from which it loads images; "" if the page's own server
    has the files. `blob:` is for images that the page has in memory."""
    given = [files] if files else []
    policy = {
        "default-src": "'none'",
        "script-src": "'self'",
        "style-src": "'self'",
        "font-src": "'self'",
        "img-src": " ".join(["'self'", "blob:", *given]),
        "connect-src": " ".join(["'self'", *connect, *given]),
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
    }
    return "; ".join(f"{name} {value}" for name, value in policy.items())


def page_headers(connect: Iterable[str], files: str = "") -> dict[str, str]:
    """Return the headers of each response, except those about its content. The arguments are those of
    `content_policy`."""
    return {
        "content-security-policy": content_policy(connect, files),
        "x-content-type-options": "nosniff",
        "referrer-policy": "no-referrer",
        "cross-origin-opener-policy": "same-origin",
        "cross-origin-resource-policy": "same-origin",
    }


def origin_of(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


def connections_of(config: SiteConfig) -> list[str]:
    """Return the addresses to which a stage's page connects: its WebSocket API, and those for signing in."""
    oidc = config.get("oidc")
    return [config["url"], *([origin_of(oidc["issuer"]), *oidc["origins"]] if oidc else [])]


def files_of(config: SiteConfig) -> str:
    """Return the origin of a stage's files, or "" if its page's settings do not name one."""
    return str(config.get("files", ""))
