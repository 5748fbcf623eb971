"""The TypeScript client as a user has it, installed, built and packed once for all tests, and a process that runs it."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from tests.support.chat_page import built
from tests.support.node_process import NodeProcess
from tests.support.offline_cloud import CloudForTests, deployed

ROOT = Path(__file__).parents[2]
CLIENT = ROOT / "clients" / "js"
DRIVER = Path(__file__).with_name("driver.mjs")


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "/tests/js/" in item.path.as_posix():
            in_browser = {"chat_page"} & set(getattr(item, "fixturenames", ()))
            item.add_marker(pytest.mark.xdist_group("browser" if in_browser else f"typescript {item.path.stem}"))
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(400))  # the first test installs and builds the client


class Npm:
    """`npm` in the client's folder, with the Node of its lock file."""

    def __init__(self) -> None:
        modules = CLIENT / "node_modules" / ".bin"
        self.variables = {**os.environ, "PATH": f"{modules}{os.pathsep}{os.environ['PATH']}"}

    def __call__(self, *arguments: str, cwd: Path = CLIENT) -> str:
        """Return the output of the command. If it fails, the error has all of it."""
        done = subprocess.run(["npm", *arguments], cwd=cwd, env=self.variables, capture_output=True, text=True)
        assert done.returncode == 0, f"npm {' '.join(arguments)}\n{done.stdout}\n{done.stderr}"
        return done.stdout


@contextmanager
def alone() -> Iterator[None]:
    """Hold a lock, so that no other worker installs or builds in the client's folder meanwhile."""
    (ROOT / "build").mkdir(exist_ok=True)
    with (ROOT / "build" / "clients-js.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@pytest.fixture(scope="session")
def npm() -> Npm:
    """`npm`, with the packages of the lock file installed."""
    npm, modules = Npm(), CLIENT / "node_modules"
    with alone():
        installed, wanted = modules / ".installed", (CLIENT / "package-lock.json").read_text()
        if not installed.exists() or installed.read_text() != wanted:
            npm("ci", "--no-audit", "--no-fund")
            installed.write_text(wanted)
    return npm


@pytest.fixture(scope="session")
def package(npm: Npm, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The packed client, unpacked: a folder with its package.json."""
    folder = tmp_path_factory.mktemp("package")
    with alone():
        (packed,) = json.loads(npm("pack", "--json", "--pack-destination", str(folder)))
    shutil.unpack_archive(folder / packed["filename"], folder)
    (folder / "node_modules").symlink_to(CLIENT / "node_modules")  # with its peer dependencies
    return folder / "package"


@pytest.fixture(scope="session")
def chat_page(npm: Npm, package: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of a page with `useChat`."""
    return built(package, tmp_path_factory.mktemp("page"))


@pytest.fixture(scope="session")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CloudForTests]:
    """The deployed app, offline."""
    with deployed(tmp_path_factory.mktemp("cloud")) as made:
        yield made


Ask = Callable[..., Any]


@pytest.fixture(scope="session")
def driver(npm: Npm, package: Path) -> Iterator[NodeProcess]:
    """`driver.mjs`, one process for all tests."""
    node = CLIENT / "node_modules" / ".bin" / "node"
    with contextlib.closing(NodeProcess(node, DRIVER, package / "dist", CLIENT, cwd=ROOT)) as made:
        yield made


@pytest_asyncio.fixture
async def typescript(driver: NodeProcess) -> AsyncIterator[Ask]:
    """A function that plays `driver.mjs`: `await typescript("play", url=..., ...)` returns its answer."""

    async def ask(name: str, **given: Any) -> Any:
        return await driver.ask({"name": name, **given})

    yield ask
    await ask("leave_all")
