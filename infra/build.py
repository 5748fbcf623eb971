"""Builds the folders that become layers: sources with their compiled files, and packages for Lambda's platform.

Law: the content of a folder depends only on its inputs, whose digest is part of its name. An existing folder is reused. A
build needs neither a container nor a compiler, because packages are installed from wheels for the target.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path

from packaging.utils import canonicalize_name

from helix._private_files import make_folder
from helix.gateway.console_page import STATIC
from helix.infra.config import HOST_PYTHON, Architecture
from helix.infra.packages import NO_LOCK, Lock, machine
from helix.runtime.project import PACKAGE, shipped

BUILDS = ".helix/layers"
"""The folder for the builds, within the project's folder."""
REQUIREMENTS = shipped("layers/deps/requirements.txt")
NOT_SOURCES = ("__pycache__", "*.pyc", "*.egg-info", ".DS_Store", "ruff.toml")
NOT_IN_FUNCTIONS = tuple(f"helix/{name}" for name in ("cli", "client", "console", "infra", "local", "mcp", "testing"))
"""The folders of the core layer's sources that no function imports. They are not deployed."""
OF_PROCESSES = ("helix/compat", "helix/workers")
"""The folders that are deployed only for agents that import them."""
MOST_BUILDS = 6
"""The number of builds to keep of each layer. The latest ones may still be in use, two of them at the same time."""

UNUSED = (
    "bin",  # command line tools
    "litellm/proxy/_experimental/out",  # the proxy server's console, 22 MB of web pages
    "litellm/proxy/swagger",  # its documentation
    "litellm/proxy/_lazy_openapi_snapshot.json",
    "litellm/rust_bridge/_native.abi3.so",  # 32 MB; litellm falls back to its Python code, which it uses by default
    "*/tests",  # those of fsspec, jsonschema, referencing, certifi, regex
)
NOT_COMPILED = r"[/\\]litellm[/\\]proxy[/\\]"
"""The files that are not compiled. Functions do not run litellm's proxy server. They import few of its modules, and the
compiled files of all its modules take up 17 MB."""
MODEL_PACKAGES = ("litellm", "openai", "anthropic")
"""The packages of requirements.in that call models. boto3 comes with the runtime."""
DATA_OF_LITELLM = ("model_prices_and_context_window_backup.json", "litellm_core_utils/tokenizers")
"""The parts of litellm that even a layer without it contains: prices, context windows, and the tables for counting
tokens."""
GLIBC = ("manylinux_2_28", "manylinux2014")
"""The platform tags of wheels that run on Amazon Linux 2023 (glibc 2.34), the newest first."""


class BuildError(RuntimeError):
    """A layer could not be built. The message contains the tool's output."""


def core_files(package: Path = PACKAGE, *, console: bool = False, processes: bool = False) -> dict[str, Path]:
    """Return the files of this package, without `NOT_IN_FUNCTIONS`, keyed by their path in the core layer. `console`:
    whether to include the console's page. `processes`: whether to include `OF_PROCESSES`."""
    page = [file for file in STATIC.iterdir() if file.is_file()] if console else []
    sources = _sources(package, NOT_IN_FUNCTIONS if processes else (*NOT_IN_FUNCTIONS, *OF_PROCESSES))
    return {file.relative_to(package.parent).as_posix(): file for file in [*sources, *sorted(page)]}


def source_layer(name: str, files: Mapping[str, Path], python: str, builds: Path) -> Path:
    """Return a layer with the files, compiled if this machine has an interpreter of that version. It is kept in
    `builds`."""
    interpreter = interpreter_of(python)
    digest = hashlib.sha256(f"{python} {interpreter is not None}".encode())
    for path, file in files.items():
        digest.update(f"\0{path}\0".encode())
        digest.update(file.read_bytes())

    def make(folder: Path) -> None:
        for path, file in files.items():
            target = folder / "python" / path
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, target)
        _compile(folder, interpreter)

    return build_once(builds, f"{name}-{_tag(python)}", digest.hexdigest(), make)


def deps_layer(
    architecture: Architecture,
    python: str,
    builds: Path,
    model_packages: Sequence[str] = ("litellm",),
    lock: Lock = NO_LOCK,
    name: str = "deps",
) -> Path:
    """Return a layer with the packages of layers/deps/requirements.txt and those of the project's lock, for Lambda.
    Packages that only other model packages need are left out. Raises `BuildError` if there is no Lambda wheel for a
    package.
    """
    interpreter = interpreter_of(python)
    ours = requirements_for(model_packages)
    lock = lock.beside({_name(pin) for pin in ours})
    wanted = [pin for pin in ours if _name(pin) not in lock.names]
    inputs = (architecture, python, interpreter is not None, wanted, UNUSED, NOT_COMPILED, DATA_OF_LITELLM)
    digest = hashlib.sha256(repr((*inputs, lock) if lock.pins else inputs).encode())

    def install(target: Path, *packages: str) -> None:
        _pip(
            "install",
            *pip_target(architecture, python),
            "--no-deps",
            "--no-compile",
            "--ignore-requires-python",  # pip checks its own Python; the wheel's tags decide
            "--target",
            str(target),
            *packages,
        )

    def make(folder: Path) -> None:
        target, aside = folder / "python", folder / "aside"
        install(target, *wanted)
        if "litellm" not in {*model_packages, *lock.names}:
            install(aside, next(pin for pin in requirements_for(MODEL_PACKAGES) if _name(pin) == "litellm"))
            keep_data(aside / "litellm", target / "litellm")
            shutil.rmtree(aside)
        if lock.pins:
            (folder / "lock.txt").write_text(lock.text, encoding="utf-8")
            install(aside, "--requirement", str(folder / "lock.txt"))
            shutil.copytree(aside, target, dirs_exist_ok=True)  # pip skips a namespace folder that exists already
            shutil.rmtree(aside)
            (folder / "lock.txt").unlink()
        for pattern in UNUSED:
            for found in target.glob(pattern):
                shutil.rmtree(found) if found.is_dir() else found.unlink()
        _compile(folder, interpreter)

    return build_once(builds, f"{name}-{architecture}-{_tag(python)}", digest.hexdigest(), make)


def _name(pin: str) -> str:
    return canonicalize_name(pin.partition("==")[0])


def requirements_for(model_packages: Sequence[str]) -> list[str]:
    """Return the pins of requirements.txt that these packages need. The comment after a pin lists the model packages
    that need it. A pin without a comment is always needed."""
    lines = [line for line in REQUIREMENTS.read_text("utf-8").splitlines() if not line.startswith("#")]
    pins = [(pin.strip(), why.split()) for pin, _, why in (line.partition("#") for line in lines)]
    return [pin for pin, why in pins if pin and (not why or set(why) & set(model_packages))]


def keep_data(litellm: Path, target: Path) -> None:
    """Copy `DATA_OF_LITELLM`. The target folder has no modules, so `import litellm` finds none there."""
    for name in DATA_OF_LITELLM:
        for file in [litellm / name] if (litellm / name).is_file() else (litellm / name).glob("*"):
            if file.suffix != ".py" and file.is_file():
                copy = target / file.relative_to(litellm)
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(file, copy)


def pip_target(architecture: Architecture, python: str) -> list[str]:
    """Return the options that make pip choose wheels for Lambda instead of this machine."""
    platforms = [word for glibc in GLIBC for word in ("--platform", f"{glibc}_{machine(architecture)}")]
    return [*platforms, "--implementation", "cp", "--python-version", python, "--only-binary=:all:"]


@lru_cache
def interpreter_of(python: str) -> str | None:
    """Return a CPython of that version on this machine: the current one, one on the path, or one of pyenv's. None if there
    is no such interpreter."""
    if python == HOST_PYTHON:
        return sys.executable
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    candidates = [shutil.which(f"python{python}"), *map(str, sorted(pyenv.glob(f"{python}*/bin/python{python}")))]
    say = ["-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
    for candidate in filter(None, candidates):
        said = subprocess.run([candidate, *say], capture_output=True, text=True, check=False)  # a shim may refuse
        if said.returncode == 0 and said.stdout.strip() == python:
            return candidate
    return None


# --- steps --------------------------------------------------------------------------------------------------------


def build_once(builds: Path, name: str, digest: str, make: Callable[[Path], None]) -> Path:
    """Return the folder with that name and digest. A new folder is built under a temporary name and then renamed, so no
    reader sees it half finished."""
    folder = builds / f"{name}-{digest[:16]}"
    if folder.is_dir():
        return folder
    make_folder(builds)  # its parent may also hold sessions
    with tempfile.TemporaryDirectory(dir=builds, prefix=".making-") as place:
        made = Path(place) / "layer"
        made.mkdir()
        make(made)
        try:
            made.rename(folder)
        except OSError:
            if not folder.is_dir():  # otherwise another process made the same folder
                raise
    _forget_old(builds, name)
    return folder


def _forget_old(builds: Path, name: str) -> None:
    alike = [folder for folder in builds.iterdir() if re.fullmatch(rf"{re.escape(name)}-[0-9a-f]{{16}}", folder.name)]
    for folder in sorted(alike, key=lambda folder: folder.stat().st_ctime, reverse=True)[MOST_BUILDS:]:
        shutil.rmtree(folder, ignore_errors=True)


def _tag(python: str) -> str:
    """Return the version as `py313`, without a dot, because CDK would treat the part after a dot in a folder's name as an
    extension."""
    return f"py{python.replace('.', '')}"


def _sources(package: Path, without: Sequence[str]) -> Iterator[Path]:
    ignored = shutil.ignore_patterns(*NOT_SOURCES)
    for path in sorted(package.rglob("*")):
        inside = path.relative_to(package.parent)
        left_out = any(inside.is_relative_to(name) for name in without)
        if path.is_file() and not left_out and not ignored("", list(inside.parts)):
            yield path


def _compile(folder: Path, interpreter: str | None) -> None:
    """Compile the sources in the folder, with paths as on Lambda. The compiled files are valid regardless of the sources'
    modification times, because zip and Lambda change those."""
    if interpreter is None:
        return
    options = ["-q", "-q", "--invalidation-mode", "unchecked-hash", "-s", str(folder), "-p", "/opt", "-x", NOT_COMPILED]
    # -j 0 uses every core. Files that do not compile (templates, syntax of other versions) stay uncompiled.
    subprocess.run(
        [interpreter, "-m", "compileall", "-j", "0", *options, str(folder)], check=False, capture_output=True
    )


def _pip(*arguments: str) -> None:
    command = [sys.executable, "-m", "pip", *arguments, "--disable-pip-version-check", "--no-input", "--quiet"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BuildError(f"pip {arguments[0]} failed:\n{done.stderr.strip()[-2000:]}")
