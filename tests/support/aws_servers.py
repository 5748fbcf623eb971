"""MiniStack and moto as separate processes, on a free port of 127.0.0.1, without saved state."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import botocore.session
from botocore.config import Config
from tests.support.redis_server import free_port

ROOT = Path(__file__).parents[2]
PATIENCE_S = 60.0
RUN = """
import os, runpy, sys, threading
threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
runpy.run_module("hypercorn", run_name="__main__", alter_sys=True)
"""
KEYS = {"aws_access_key_id": "test", "aws_secret_access_key": "test", "region_name": "us-east-1"}


class MiniStack:
    """A MiniStack process. It ends with the block, and with this process, because it waits for the end of its standard
    input."""

    health = "/_ministack/health"

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._more: Mapping[str, str] = {}
        self._process: subprocess.Popen[bytes] | None = None

    def client(self, service: str, **options: Any) -> Any:
        """Return a botocore client of it."""
        config = Config(max_pool_connections=32, retries={"mode": "standard", "max_attempts": 3})
        given = {"endpoint_url": self.url, "config": config} | KEYS | options
        return botocore.session.get_session().create_client(service, **given)

    def __enter__(self) -> Self:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "MINISTACK_"))}
        own = {
            "GATEWAY_PORT": str(self.port),
            "MINISTACK_HOST": "127.0.0.1",
            "NO_PROXY": "127.0.0.1",
            "no_proxy": "127.0.0.1",
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "DOCKER_HOST": f"unix://{self._folder / 'no-docker'}",
            "LOG_LEVEL": "WARNING",
            "SFTP_ENABLED": "0",
            "IOT_MTLS_ENABLED": "0",
            "STATE_DIR": str(self._folder / "state"),
            "S3_DATA_DIR": str(self._folder / "objects"),
            "TMPDIR": str(self._folder),
        }
        log = self._folder / "log"
        with log.open("wb") as out:
            self._process = subprocess.Popen(
                self._command(),
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=out,
                env={**kept, **own, **self._more},
                cwd=self._folder,
            )
        deadline = time.monotonic() + PATIENCE_S
        while not self._answers():
            assert self._process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, f"the server did not start: {log.read_text()}"
            time.sleep(0.05)
        return self

    def _command(self) -> list[str]:
        bind = ["--workers", "0", "--bind", f"127.0.0.1:{self.port}"]
        return [sys.executable, "-c", RUN, "ministack.app:app", *bind]

    def _answers(self) -> bool:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(f"{self.url}{self.health}", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self._process.kill()  # nothing to save
            self._process.communicate()


class MotoServer(MiniStack):
    """A moto process. `functions` says where the Lambda calls of its state machines go, by the names of
    `tests/support/moto_process.py`."""

    health = "/moto-api/"

    def __init__(self, folder: Path, functions: Mapping[str, str]) -> None:
        super().__init__(folder)
        self._more = {"PYTHONPATH": str(ROOT), **functions}

    def _command(self) -> list[str]:
        return [sys.executable, "-m", "tests.support.moto_process", str(self.port)]
