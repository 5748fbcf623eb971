"""A process that starts makes modules and classes, all of which stay: looking for garbage among them only takes time.

Law: the collector waits from this module's import to `started`, and never again looks at what was made meanwhile.
"""

from __future__ import annotations

import gc

gc.disable()


def started() -> None:
    gc.freeze()
    gc.enable()
