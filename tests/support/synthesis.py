"""One warm process for many syntheses: it runs `python -m helix.infra.app`, a script or a piece of code.

Loading the CDK's kernel costs eight seconds of CPU. A synthesis in a process that has loaded it costs one or two. After
each program the process restores its modules, agents, folder, environment and path. `tests/infra/test_app.py` compares
such a template with that of the real command.
"""

from __future__ import annotations

import contextlib
import json
import os
import runpy
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PROGRAMS_EACH = 25
"""The number of programs after which the kernel is replaced, because it keeps every construct that it made."""


class Synthesiser:
    """A process for syntheses. Close it at the end."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._left = 0

    def __call__(
        self, *words: str, cwd: Path = ROOT, variables: Mapping[str, str] | None = None, path: str = ""
    ) -> subprocess.CompletedProcess[str]:
        """Run `python words...`. The words begin with `-m MODULE`, `-c CODE` or a script; `path` is PYTHONPATH."""
        if self._process is None or not self._left:
            self._restart()
        assert self._process is not None and self._process.stdin is not None and self._process.stdout is not None
        self._left -= 1
        asked = {"words": words, "cwd": str(cwd), "variables": {**os.environ, **(variables or {})}, "path": path}
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, f"the process died in {words}"
        done = json.loads(line)
        return subprocess.CompletedProcess(words, done["code"], done["out"], done["err"])

    def close(self) -> None:
        if self._process is not None:
            assert self._process.stdin is not None and self._process.stdout is not None
            self._process.stdin.close()
            self._process.wait()
            self._process.stdout.close()
            self._process = None

    def _restart(self) -> None:
        self.close()
        self._left = PROGRAMS_EACH
        command = [sys.executable, "-m", "tests.support.synthesis"]
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self._process = subprocess.Popen(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, **pipes)


# --- in the process ----------------------------------------------------------------------------------------------------


def main() -> None:
    sys.path.remove(str(ROOT))  # the folder of the tests, which no program has on its path
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as answers:
        for line in sys.stdin:
            answers.write(json.dumps(_play(**json.loads(line))) + "\n")
            answers.flush()


def _play(words: list[str], cwd: str, variables: dict[str, str], path: str) -> dict[str, Any]:
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err, _as_found():
        with _redirected(1, out.fileno()), _redirected(2, err.fileno()):
            os.chdir(cwd)
            os.environ.clear()
            os.environ.update(variables)
            sys.path[:0] = [part for part in path.split(os.pathsep) if part]
            code = _run(words)
            sys.stdout.flush()
            sys.stderr.flush()
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read().decode())
    return {"code": code, "out": texts[0], "err": texts[1]}


def _run(words: list[str]) -> int:
    try:
        if words[0] == "-m":
            sys.argv = words[1:]
            runpy.run_module(words[1], run_name="__main__")
        elif words[0] == "-c":
            sys.argv = ["-c", *words[2:]]
            exec(compile(words[1], "<string>", "exec"), {"__name__": "__main__"})
        else:
            sys.argv = words
            runpy.run_path(words[0], run_name="__main__")
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
            return 1
        return end.code or 0
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


@contextlib.contextmanager
def _redirected(number: int, target: int) -> Iterator[None]:
    kept = os.dup(number)
    os.dup2(target, number)
    try:
        yield
    finally:
        os.dup2(kept, number)
        os.close(kept)


@contextlib.contextmanager
def _as_found() -> Iterator[None]:
    from helix.core.registry import default_registry

    modules, path, folder, variables = set(sys.modules), list(sys.path), Path.cwd(), dict(os.environ)
    names = [name for name, value in vars(default_registry).items() if isinstance(value, dict)]
    registered = {name: dict(getattr(default_registry, name)) for name in names}
    try:
        yield
    finally:
        for name, found in registered.items():
            setattr(default_registry, name, found)
        for name in set(sys.modules) - modules:
            file = getattr(sys.modules[name], "__file__", None) or ""
            if not file.startswith((sys.prefix, sys.base_prefix, str(ROOT / "infra"), str(ROOT / "layers" / "core"))):
                del sys.modules[name]
        sys.path[:] = path
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(variables)


if __name__ == "__main__":
    main()
