"""The emulator ends with the process that starts it, at whatever moment a signal comes."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from helix.local.process import Emulator


def test_a_signal_before_the_reader_starts_is_the_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cleanup must not join a thread that was not started, since that error would hide the signal."""

    def signalled(self: threading.Thread) -> None:
        raise KeyboardInterrupt

    emulator = Emulator(tmp_path / "emulator", environment=os.environ)
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", signalled)
        with pytest.raises(KeyboardInterrupt):
            emulator.start()
