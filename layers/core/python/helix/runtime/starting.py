"""What every function does before it imports anything else, so that its process starts sooner.

Law: the garbage collector waits from `starting` to `started`, and never again looks at what was made meanwhile:
modules and classes stay. pydantic looks for no plugins among the installed packages, unless PYDANTIC_DISABLE_PLUGINS says
otherwise (empty: look for all).
"""

from __future__ import annotations

import gc
import os


def starting() -> None:
    gc.disable()


starting()
os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")


def started() -> None:
    gc.freeze()
    gc.enable()
