"""Who asks: a user, perhaps of a tenant, as one text that sessions and connections carry.

Law: different (tenant, user) pairs have different texts, and no principal's prefix begins another's.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Final

from helix.core.errors import NotAuthenticatedError

logger = logging.getLogger("helix.gateway")
MAX_PRINCIPAL_BYTES: Final = 256
_PLAIN: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.@+-")


@dataclass(frozen=True, slots=True)
class Principal:
    """`str(principal)` is `user`, or `tenant/user`, with what is neither a letter, a digit nor one of `_.@+-` as `=XX`."""

    user_id: str
    tenant: str | None = None

    def __post_init__(self) -> None:
        if not self.user_id or self.tenant == "" or len(str(self)) > MAX_PRINCIPAL_BYTES:
            raise NotAuthenticatedError(
                f"a user needs an id, and it and its tenant at most {MAX_PRINCIPAL_BYTES} bytes"
            )

    def __str__(self) -> str:
        user = _encode(self.user_id)
        return user if self.tenant is None else f"{_encode(self.tenant)}/{user}"


def prefix_of(principal: str | None) -> str:
    """How the session ids begin that this principal may choose: `user:` or `:tenant:user:`. Nothing is reserved for
    nobody: where nobody is asked who they are, all ids are everybody's."""
    if principal is None:
        return ""
    tenant, slash, user = principal.rpartition("/")
    return f":{tenant}:{user}:" if slash else f"{user}:"


def _encode(text: str) -> str:
    return "".join(
        char if char in _PLAIN else "".join(f"={byte:02X}" for byte in char.encode("utf-8", "surrogatepass"))
        for char in text
    )


def refused(why: str) -> NotAuthenticatedError:
    """What is wrong is for the log: whoever sent the token need not learn it."""
    logger.info("a token was refused: %s", why)
    return NotAuthenticatedError("the token is not valid here, or has expired")
