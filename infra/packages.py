"""The packages of a project's lock that are deployed, and a check of the unzipped size of a function with its layers.

Law: no dependencies are resolved. Each package has the version that the lock pins, even if Helix also needs the package.
Packages of Lambda's runtime, and those that only the development machine needs, are omitted.
"""

from __future__ import annotations

import importlib.metadata
import re
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from helix.infra.config import Architecture

LIMIT = 250 * 2**20
"""The limit on the unzipped size of a function with its layers, in bytes:
https://docs.aws.amazon.com/lambda/latest/dg/gettingstarted-limits.html"""
SHOWN = 6
OF_THE_RUNTIME = frozenset({"boto3", "botocore", "s3transfer"})
ELSEWHERE = re.compile(
    r"helix-agents|aws-cdk[\w-]*|cdk-nag|constructs|jsii|ministack|pytest[\w-]*|hypothesis|pip|setuptools|wheel"
)
"""The packages that are not deployed. Helix itself has its own layer; the others are for deploying, emulating or
testing."""
LOCK = "uv lock, or pip freeze > requirements.txt"


class LockError(ValueError):
    """The lock cannot be used. The message names the line."""


ROOT = ""
"""The key of the project itself in `Lock.needs`."""


@dataclass(frozen=True, slots=True)
class Lock:
    """The pins of a project for Lambda's platform. A pin is a package's name and its requirement line for pip."""

    pins: tuple[tuple[str, str], ...] = ()
    """The packages that the project needs."""
    options: tuple[str, ...] = ()
    """Options for pip, such as an index."""
    spare: tuple[tuple[str, str], ...] = ()
    """The packages that only Helix needs. If one of them is deployed, it gets this version."""
    needs: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """The names of each package's dependencies, by package; `ROOT` is the project. Empty if the lock does not have
    them."""

    @property
    def names(self) -> frozenset[str]:
        return frozenset(name for name, _ in self.pins)

    @property
    def text(self) -> str:
        return "\n".join([*self.options, *(line for _, line in self.pins), ""])

    def beside(self, names: Collection[str]) -> Lock:
        """Return the lock with the spare pins whose packages are in `names`, the packages that Helix needs."""
        return Lock(tuple(sorted([*self.pins, *(pin for pin in self.spare if pin[0] in names)])), self.options)

    def without(self, names: Collection[str]) -> Lock:
        """Return the lock without these packages. If the lock contains dependencies, those that only these packages need
        are removed too."""
        needs = dict(self.needs)
        left, waiting = set[str](), [ROOT]
        while needs and waiting:
            new = [name for name in needs.get(waiting.pop(), ()) if name not in left and name not in names]
            left.update(new)
            waiting += new
        stays = left if needs else self.names - set(names)
        return replace(self, pins=tuple(pin for pin in self.pins if pin[0] in stays))


NO_LOCK = Lock()


def read_requirements(file: Path, architecture: Architecture, python: str) -> Lock:
    """Read a pip requirements file. Raises `LockError` for a line that does not pin a version."""
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise LockError(
            f"pyproject.toml: [tool.helix] requirements: {file.name!r} cannot be read: {error.strerror}"
        ) from error
    pins, options = dict[str, str](), list[str]()
    for line in re.sub(r"\\\n", " ", text).splitlines():
        line = re.sub(r"(^|\s)#.*", "", line).strip()
        if not line or line in ("-e .", "."):
            continue
        if line.startswith(("--index-url", "--extra-index-url", "--find-links")):
            options.append(line)
            continue
        pinned, *hashes = re.split(r"\s+(?=--hash)", line)
        wanted = _requirement(file, pinned)
        name = canonicalize_name(wanted.name)
        if is_left_out(name):
            continue
        if wanted.marker is None or wanted.marker.evaluate(target(architecture, python)):
            wanted.marker = None
            pins[name] = " ".join([str(wanted), *hashes])
    return Lock(tuple(sorted(pins.items())), tuple(options))


def is_left_out(name: str) -> bool:
    """Return whether the package is not deployed, because Lambda's runtime provides it or only the development machine
    needs it."""
    return name in OF_THE_RUNTIME or ELSEWHERE.fullmatch(name) is not None


def _requirement(file: Path, text: str) -> Requirement:
    try:
        wanted = Requirement(text)
    except InvalidRequirement:
        raise LockError(f"{file.name}: {text!r} is not a pinned package; write a lock: {LOCK}") from None
    if wanted.url or not re.fullmatch(r"===?[^,*]+", str(wanted.specifier)):
        raise LockError(f"{file.name}: {text!r} does not pin a version, as in name==1.2.3; write a lock: {LOCK}")
    return wanted


def machine(architecture: Architecture) -> str:
    """Return the Linux name of the architecture."""
    return "aarch64" if architecture == "arm64" else "x86_64"


def target(architecture: Architecture, python: str) -> dict[str, str]:
    """Return the values of environment markers on Lambda."""
    return {
        "implementation_name": "cpython",
        "os_name": "posix",
        "platform_machine": machine(architecture),
        "platform_python_implementation": "CPython",
        "platform_system": "Linux",
        "python_full_version": f"{python}.0",
        "python_version": python,
        "sys_platform": "linux",
    }


def check_size(verb: str, folders: Sequence[Path], lock: str, names: Collection[str] = (), limit: int = LIMIT) -> None:
    """Check the unzipped size of a function with these layers. `names`: the packages of the lock; the largest of them
    may go into a container image. Raises `LockError`, which lists the largest packages, if Lambda's limit is
    exceeded."""
    sizes: Counter[str] = Counter()
    for folder in folders:
        for file in folder.rglob("*"):
            if file.is_file():
                parts = file.relative_to(folder).parts
                sizes[parts[1] if parts[0] == "python" and len(parts) > 1 else parts[0]] += file.stat().st_size
    if (whole := sum(sizes.values())) > limit:
        largest = ", ".join(f"{name} {size / 2**20:.0f} MB" for name, size in sizes.most_common(SHOWN))
        takes = (
            f"{verb} takes {whole / 2**20:.0f} MB unzipped with its layers, and Lambda allows {limit / 2**20:.0f} MB"
        )
        where = f" of {lock}" if lock else ""
        advice = "the setting model_packages leaves out litellm"
        if largest_own := _largest(folders, names):
            advice += f'; or let a container image have the largest: image = ["{largest_own}"] in [tool.helix]'
        raise LockError(f"{takes}. The largest: {largest}. Leave out{where} what the agents do not import; {advice}")


def _largest(folders: Sequence[Path], names: Collection[str]) -> str:
    """Return the name of the largest package among `names` that is installed in the folders, or "" if none is."""
    sizes: Counter[str] = Counter()
    for folder in folders:
        for found in importlib.metadata.distributions(path=[str(folder / "python")]):
            files = [Path(str(file.locate())) for file in found.files or ()]
            sizes[canonicalize_name(found.name)] += sum(file.stat().st_size for file in files if file.is_file())
    return max((name for name in names if name in sizes), key=lambda name: sizes[name], default="")
