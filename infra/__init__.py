"""The infrastructure of a Helix deployment: one construct per capability. `Helix` composes them, for use in any stack.
`HelixStack` is a stack that contains a `Helix` construct."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from helix.local.node import NODE_NOTICES

if TYPE_CHECKING:
    from helix.infra.stack import Helix, HelixStack

__all__ = ["Helix", "HelixStack"]

for _name, _version in NODE_NOTICES.items():  # before CDK is imported
    os.environ.setdefault(_name, _version)


def __getattr__(name: str) -> Any:
    """Import the constructs on first use. CDK takes seconds to import, and most modules here do not need it."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from helix.infra import stack

    return getattr(stack, name)
