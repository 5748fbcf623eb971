"""The first import of every function, which makes its process start sooner.

Law: the garbage collector is off from `starting` to `started`. It never scans the objects that were created in that
time, because modules and classes stay in memory. pydantic does not look for plugins among the installed packages,
unless PYDANTIC_DISABLE_PLUGINS is set (if it is empty, pydantic looks for all).
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
