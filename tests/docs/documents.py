"""Run the marked blocks of documents, compare their output, and check names and links.

The words after a block's language mark it:

    python                  runs, in the namespace of the blocks above it in the same file; `await` works at top level
    python fresh            the same, in a new namespace
    python file=NAME        the same, and the text is saved as NAME first, for the commands below it
    text output             what the python block above printed, exactly; `...` matches anything in a line, and a line
                            of `...` matches any lines
    console run             each `$ command` runs; the lines under it are its output, compared in the same way
    console running         one command that keeps running during the blocks below. The runner waits until it has printed
                            the lines under it. The next such block, or the end of the document, ends it with Ctrl-C
    text running            the next output of that command; the runner waits for it
    console not-run: WHY    is only shown
    bash run, bash not-run: WHY
    text, json, toml        is only shown; json and toml must parse
    ts, tsx                 `tests/js/test_guide.py` runs `ts` and checks the types of both

All other marks are refused.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import dataclasses
import importlib
import inspect
import io
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from helix import LocalExecutor

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "layers" / "core" / "python" / "helix"
TOP = ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md")
DOCUMENTS = sorted([*(ROOT / name for name in TOP), *ROOT.glob("docs/**/*.md")])
SHOWN = ("text", "json", "toml", "ts", "tsx")
COMMAND_S = 180
DOCUMENTED_PORT = re.compile(r"helix dev .*--port (\d+)")
PROJECT_GUIDES = ("offline.md", "deploy.md")
"""Guides whose blocks run in a project's folder. All others run in an empty folder."""
SLOW = (*PROJECT_GUIDES, "bucket.md", "cdk.md", "cli.md", "fleet.md", "http.md", "nightly.md")
"""Documents that run the offline app, a synthesis or many processes."""
PROJECT_PARTS = ("layers", "pyproject.toml", "cdk.json", "package.json", "package-lock.json")
PROVIDERS = re.compile(r"^(OPENAI|ANTHROPIC|GEMINI|GOOGLE|AZURE|AWS|HELIX)_")


@dataclasses.dataclass(frozen=True)
class Block:
    """A code block. `line` is the line of its opening fence, and `words` are the text after the language."""

    path: Path
    line: int
    language: str
    words: str
    text: str

    @property
    def where(self) -> str:
        return f"{self.path.name}:{self.line}"

    @property
    def wanted(self) -> str | None:
        """Return `run`, `running`, `shown` or `output`, or None if the block is not marked by the rules above."""
        if self.language == "python":
            return "run" if re.fullmatch(r"(fresh ?)?(file=[\w.]+)?", self.words) else None
        if (self.language, self.words) in (("console", "running"), ("text", "running")):
            return "running"
        if self.language in ("console", "bash"):
            return "run" if self.words == "run" else "shown" if re.fullmatch(r"not-run: \S.*", self.words) else None
        if self.language in SHOWN:
            return {"": "shown", "output": "output"}.get(self.words)
        return None


def blocks_of(path: Path) -> list[Block]:
    found: list[Block] = []
    opened: tuple[int, str, list[str]] | None = None
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        fence = re.fullmatch(r" {0,3}```(.*)", line)
        if opened is None and fence:
            opened = (number, fence[1].strip(), [])
        elif opened is not None and fence and not fence[1].strip():
            language, _, words = opened[1].partition(" ")
            found.append(Block(path, opened[0], language, words.strip(), "\n".join(opened[2]) + "\n"))
            opened = None
        elif opened is not None:
            opened[2].append(line)
    assert opened is None, f"{path.name}:{opened[0]}: this block does not end"
    return found


# --- running ---------------------------------------------------------------------------------------------------------


async def run_document(path: Path, directory: Path) -> None:
    """Run all blocks of a document in `directory`, in order. The first block that fails raises `AssertionError`."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    printed: str | None = None
    running: Running | None = None
    try:
        for block in on_free_ports(path):
            match (block.language, block.wanted):
                case (_, None):
                    raise AssertionError(f"{block.where}: {block.language!r} {block.words!r} is not a marked block")
                case ("python", "run"):
                    if block.words.startswith("fresh"):
                        await close(namespace)
                        namespace = {"__name__": "__main__"}
                    printed = await run_python(block, namespace, directory)
                case (_, "output"):
                    assert printed is not None, f"{block.where}: there is no python block above this output"
                    same(block.where, printed, block.text)
                case ("console", "running"):
                    if running is not None:
                        await asyncio.to_thread(running.end)
                    running = Running(block, directory)
                    await asyncio.to_thread(running.wait_for, block.where, block.text.partition("\n")[2])
                case ("text", "running"):
                    assert running is not None, f"{block.where}: nothing is running"
                    await asyncio.to_thread(running.wait_for, block.where, block.text)
                case ("console", "run"):
                    await asyncio.to_thread(run_console, block, directory)
                case ("bash", "run"):
                    await asyncio.to_thread(run_command, block.where, block.text, directory)
                case ("json", _):
                    json.loads(block.text)
                case ("toml", _):
                    tomllib.loads(block.text)
        if running is not None:
            await asyncio.to_thread(running.end)
    finally:
        if running is not None:
            running.kill()
        await close(namespace)


def on_free_ports(path: Path) -> Iterator[Block]:
    """Yield the document's blocks with free ports of this machine in place of the documented ones.

    This applies to each `helix dev` and to its console, which listens one port above.
    """
    blocks, moved = blocks_of(path), dict[str, str]()
    for shown in {port for block in blocks for port in DOCUMENTED_PORT.findall(block.text)}:
        for above, free in enumerate(free_pair()):
            moved[str(int(shown) + above)] = str(free)
    for block in blocks:
        text = re.sub(r"\b\d+\b", lambda number: moved.get(number[0], number[0]), block.text)
        yield dataclasses.replace(block, text=text)


def free_pair() -> tuple[int, int]:
    """Return two consecutive free ports, for the app and its console."""
    while True:
        with socket.socket() as first, socket.socket() as second, contextlib.suppress(OSError):
            first.bind(("127.0.0.1", 0))
            port: int = first.getsockname()[1]
            second.bind(("127.0.0.1", port + 1))
            return port, port + 1


def lay_out(path: Path, directory: Path) -> None:
    """Put the files into `directory` that readers of the document have there."""
    (directory / "examples").symlink_to(ROOT / "examples")
    if path.name in PROJECT_GUIDES:
        for name in PROJECT_PARTS:
            source, ignored = ROOT / name, shutil.ignore_patterns("__pycache__")
            if source.is_dir():
                shutil.copytree(source, directory / name, ignore=ignored)
            else:
                shutil.copy(source, directory)


async def run_python(block: Block, namespace: dict[str, Any], directory: Path) -> str:
    if name := re.search(r"file=([\w.]+)", block.words):
        (directory / name[1]).write_text(block.text, encoding="utf-8")
    printed = io.StringIO()
    try:
        source = "\n" * block.line + block.text  # so that line numbers in tracebacks are those of the document
        code = compile(source, str(block.path), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        with contextlib.redirect_stdout(printed):
            if code.co_flags & inspect.CO_COROUTINE:
                async with asyncio.timeout(COMMAND_S):
                    await eval(code, namespace)
            else:  # in a thread, because the code may start an event loop of its own
                await asyncio.to_thread(exec, code, namespace)
    except Exception as error:
        raise AssertionError(f"{block.where}: {type(error).__name__}: {error}\n{printed.getvalue()}") from error
    return printed.getvalue()


def run_console(block: Block, directory: Path) -> None:
    parts = re.split(r"^\$ ", block.text, flags=re.MULTILINE)
    assert len(parts) > 1 and not parts[0].strip(), f"{block.where}: a console block begins with '$ '"
    for part in parts[1:]:
        command, _, output = part.partition("\n")
        same(f"{block.where}: $ {command}", run_command(block.where, command, directory), output)


class Running:
    """A command that runs until Ctrl-C."""

    def __init__(self, block: Block, directory: Path) -> None:
        command = re.fullmatch(r"\$ (.*)", block.text.partition("\n")[0])
        assert command is not None, f"{block.where}: a console block begins with '$ '"
        self._where, self._seen, self._lines = block.where, 0, list[str]()
        self._process = subprocess.Popen(
            ["bash", "-c", f"exec {command[1]}"],
            cwd=directory,
            env=shell_environment() | {"PYTHONUNBUFFERED": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as printed:
            self._lines.extend(iter(printed.readline, ""))

    def wait_for(self, where: str, expected: str) -> None:
        """Wait until these lines are printed after those that were waited for before."""
        ends = time.monotonic() + COMMAND_S
        while True:
            gone = self._process.poll() is not None
            printed = "".join(line.rstrip() + "\n" for line in list(self._lines))
            if found := re.search(f"^{pattern_of(expected)}", printed[self._seen :], re.MULTILINE):
                self._seen += found.end()
                return
            late = time.monotonic() > ends
            assert not (gone or late), f"{where}: printed\n{printed[self._seen :]}\n-- and not\n{expected}"
            time.sleep(0.05)

    def end(self) -> None:
        os.killpg(self._process.pid, signal.SIGINT)
        code = self._process.wait(COMMAND_S)
        self._reader.join(COMMAND_S)
        assert code == 0, f"{self._where}: it ended with {code}\n{''.join(self._lines)}"

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._reader.join(COMMAND_S)


def shell_environment() -> dict[str, str]:
    """Return the environment of commands. CDK validates the same templates in tests/infra, which takes seven seconds."""
    environment = {key: value for key, value in os.environ.items() if not PROVIDERS.match(key)}
    environment |= {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}", "COLUMNS": "110"}
    return environment | {"NO_COLOR": "1", "TERM": "dumb", "CDK_VALIDATION": "false"}


def run_command(where: str, command: str, directory: Path) -> str:
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", command],
        cwd=directory,
        env=shell_environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=COMMAND_S,
    )
    assert done.returncode == 0, f"{where}: {command!r} ended with {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def same(where: str, printed: str, expected: str) -> None:
    """Compare output with the document. If the document shows no output, the command may print anything."""
    if not expected.strip():
        return
    clean = "\n".join(line.rstrip() for line in printed.strip("\n").splitlines())
    if not re.fullmatch(pattern_of(expected), clean + "\n"):
        raise AssertionError(f"{where}: printed\n{clean}\n-- and not\n{expected}")


def pattern_of(expected: str) -> str:
    lines = [line.rstrip() for line in expected.strip("\n").splitlines()]
    inside = [re.escape(line).replace(r"\.\.\.", ".*") + r"\n" for line in lines]
    return "".join(r"(?:.*\n)*?" if line == "..." else part for line, part in zip(lines, inside, strict=True))


async def close(namespace: dict[str, Any]) -> None:
    for value in list(namespace.values()):
        if isinstance(value, LocalExecutor):
            await value.close()


# --- names and links -------------------------------------------------------------------------------------------------


def resolve(dotted: str) -> Any:
    """Return the module, attribute or field of that name. Raises `AssertionError` naming what is missing."""
    parts = dotted.split(".")
    thing: Any = None
    rest: list[str] = []
    for end in range(len(parts), 0, -1):
        with contextlib.suppress(ModuleNotFoundError):
            thing, rest = importlib.import_module(".".join(parts[:end])), parts[end:]
            break
    for name in rest:
        fields = {**getattr(thing, "__dataclass_fields__", {}), **getattr(thing, "model_fields", {})}
        assert hasattr(thing, name) or name in fields, f"{dotted}: there is no {name!r}"
        thing = getattr(thing, name, None)
    return thing


def claimed_names(text: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the dotted name and the parameters of each `helix.a.b` and `helix.a.b(c=, d=)` in backticks."""
    for name, _, arguments in re.findall(r"`(helix(?:\.\w+)*)(\(([^`]*)\))?`", text):
        if not name.endswith((".db", ".py", ".toml")):
            yield name, re.findall(r"(\w+)=", arguments)


def check_names(text: str) -> None:
    for name, parameters in claimed_names(text):
        thing = resolve(name)
        if parameters:
            known = inspect.signature(thing).parameters
            missing = [p for p in parameters if p not in known]
            assert not missing, f"{name} has no parameter {', '.join(missing)}"


def anchors_of(path: Path) -> set[str]:
    text = path.read_text(encoding="utf-8")
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    slugs = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
    return slugs | set(re.findall(r'<a id="([\w-]+)"></a>', text))


def check_links(path: Path) -> None:
    text = re.sub(r"^```.*?^```", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", target):
            continue
        file, _, anchor = target.partition("#")
        there = (path.parent / file).resolve() if file else path
        assert there.exists(), f"{path.name}: the link {target!r} leads nowhere"
        assert not anchor or anchor in anchors_of(there), f"{path.name}: {target!r}: no such heading"


def check_paths(path: Path) -> None:
    """Check that files named in backticks exist in the project's root or in the package. Helix itself creates `.helix/`."""
    for name in re.findall(r"`((?:[\w.-]+/)+[\w.-]*)`", path.read_text(encoding="utf-8")):
        assert name.startswith(".helix/") or any((base / name).exists() for base in (ROOT, PACKAGE, PACKAGE.parent)), (
            f"{path.name}: there is no file {name!r}"
        )
