"""`uv.lock` and `pylock.toml`: which packages are deployed, for which machine, and the errors for those that cannot be."""

from __future__ import annotations

from pathlib import Path

import pytest

from helix.infra import build
from helix.infra.build import deps_layer
from helix.infra.config import HOST_PYTHON, read_settings
from helix.infra.locks import lock_of, read_lock
from helix.infra.packages import Lock, LockError
from helix.runtime.project import read_project

PROJECT = """\
[project]
name = "Staff.App"
dependencies = ["httpx[http2]", "pandas", "numpy<3; python_version < '3.12'", "helix-agents[models]", "boto3"]
[tool.helix]
agents = ["staff"]
"""
WHEELS = {
    "pure": "-py3-none-any.whl",
    "built": "-cp313-cp313-manylinux_2_27_aarch64.manylinux_2_28_aarch64.whl",
    "old": "-cp312-cp312-manylinux_2_17_aarch64.manylinux2014_aarch64.whl",
    "stable": "-cp39-abi3-manylinux_2_17_aarch64.manylinux2014_aarch64.whl",
    "intel": "-cp313-cp313-manylinux_2_28_x86_64.whl",
    "mac": "-cp313-cp313-macosx_11_0_arm64.whl",
}


def entry(name: str, version: str, *kinds: str, needs: str = "", source: str = "", more: str = "") -> str:
    """Return a package of a uv.lock, in its format."""
    place = source or 'registry = "https://pypi.org/simple"'
    wheels = "".join(
        f'    {{ url = "https://files.example/ab/{name.replace("-", "_")}-{version}{WHEELS[kind]}", '
        f'hash = "sha256:{name}-{kind}", size = 1 }},\n'
        for kind in kinds
    )
    listed = f"dependencies = [\n{needs}\n]\n" if needs else ""
    head = f'[[package]]\nname = "{name}"\nversion = "{version}"\nsource = {{ {place} }}\n'
    return f"{head}{listed}wheels = [\n{wheels}]\n{more}\n"


def needs(*names: str) -> str:
    return "\n".join(f'{{ name = "{name}" }},' for name in names)


NUMPY = '{ name = "numpy", version = "%s", source = { registry = "https://pypi.org/simple" }, marker = "%s" },'
BOTH = NUMPY % ("2.4.6", "python_full_version < '3.12'") + NUMPY % ("2.5.5", "python_full_version >= '3.12'")
LOCKED = "version = 1\nrevision = 3\n" + "".join(
    [
        entry(
            "staff-app",
            "0.1.0",
            source='virtual = "."',
            needs='{ name = "httpx", extra = ["http2"] },\n'
            + needs("pandas", "boto3")
            + '{ name = "helix-agents", extra = ["models"] }, { name = "colorama", marker = "sys_platform == \'win32\'" },'
            + BOTH,
            more='[package.metadata]\nrequires-dist = [{ name = "httpx" }, { name = "pandas" }, { name = "numpy" },'
            '{ name = "helix-agents" }, { name = "boto3" }]\n',
        ),
        entry(
            "httpx",
            "0.28.1",
            "pure",
            needs=needs("certifi"),
            more="[package.optional-dependencies]\nhttp2 = [\n"
            + needs("h2")
            + "\n]\nbrotli = [\n"
            + needs("brotli")
            + "\n]",
        ),
        entry("certifi", "2026.1", "pure"),
        entry("h2", "4.4.1", "pure"),
        entry("brotli", "1.0", "pure"),
        entry("colorama", "0.4.6", "pure"),
        entry("pandas", "3.0.0", "intel", "built", needs=needs("python-dateutil") + BOTH),
        entry("python-dateutil", "2.9", "pure"),
        entry("numpy", "2.4.6", "old"),
        entry("numpy", "2.5.5", "mac", "built"),
        entry("boto3", "1.40.0", "pure", needs=needs("jmespath")),
        entry("jmespath", "1.0", "pure"),
        entry(
            "helix-agents",
            "0.1.0",
            "pure",
            needs=needs("pydantic", "maconly"),
            more="[package.optional-dependencies]\nmodels = [\n" + needs("litellm") + "\n]",
        ),
        entry("pydantic", "2.99.0", "pure"),
        entry("litellm", "1.99.0", "pure"),
        entry("maconly", "1.0", "mac"),
        entry("pytest", "9.0", "pure"),
    ]
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "pyproject.toml").write_text(PROJECT)
    (tmp_path / "uv.lock").write_text(LOCKED)
    (tmp_path / "staff.py").write_text("")
    return tmp_path


def test_a_uv_lock_beside_the_project_is_read_without_a_setting(root: Path) -> None:
    lock = lock_of(read_project(root), read_settings({}))
    assert dict(lock.pins) == {
        "certifi": "certifi==2026.1 --hash=sha256:certifi-pure",
        "h2": "h2==4.4.1 --hash=sha256:h2-pure",
        "httpx": "httpx==0.28.1 --hash=sha256:httpx-pure",
        "numpy": "numpy==2.5.5 --hash=sha256:numpy-mac --hash=sha256:numpy-built",
        "pandas": "pandas==3.0.0 --hash=sha256:pandas-intel --hash=sha256:pandas-built",
        "python-dateutil": "python-dateutil==2.9 --hash=sha256:python-dateutil-pure",
    }
    assert lock.options == ()


def test_what_helix_needs_has_the_locked_version_where_it_is_needed_at_all(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = lock_of(read_project(root), read_settings({}))
    assert {name for name, _ in lock.spare} == {"jmespath", "litellm", "pydantic"}, (
        "and no package is refused because of its wheels"
    )
    asked: list[str] = []

    def pip(*words: str) -> None:
        rest = words[words.index("--target") + 2 :]
        lines = Path(rest[1]).read_text().splitlines() if rest[0] == "--requirement" else rest
        asked.extend(line.split()[0] for line in lines)
        Path(words[words.index("--target") + 1]).mkdir(parents=True, exist_ok=True)

    monkeypatch.setattr(build, "_pip", pip)
    monkeypatch.setattr(build, "keep_data", lambda litellm, target: None)
    deps_layer("arm64", HOST_PYTHON, root / "layers", ("litellm",), lock)
    assert {"pydantic==2.99.0", "litellm==1.99.0", "pandas==3.0.0"} <= set(asked)
    assert len(asked) == len({pin.partition("==")[0] for pin in asked}), "no package in two versions"
    asked.clear()
    deps_layer("arm64", HOST_PYTHON, root / "layers", (), lock)
    assert "pydantic==2.99.0" in asked and "litellm==1.99.0" not in asked, "only call_model has litellm"


def test_the_machine_decides(root: Path) -> None:
    with pytest.raises(
        LockError, match=r"^uv\.lock: 'numpy' 2\.5\.5 has no wheel for Lambda \(Linux, x86_64, Python 3\.13\)"
    ):
        read_lock(root / "uv.lock", "x86_64", "3.13", root)
    with pytest.raises(LockError, match=r"'numpy' 2\.4\.6 has no wheel for Lambda \(Linux, aarch64, Python 3\.11\)"):
        read_lock(root / "uv.lock", "arm64", "3.11", root)


def test_what_only_a_package_needs_goes_with_it(root: Path) -> None:
    lock = lock_of(read_project(root), read_settings({}))
    assert lock.names - lock.without({"pandas"}).names == {"pandas", "python-dateutil"}, "the project needs numpy too"
    assert lock.names - lock.without({"httpx"}).names == {"httpx", "certifi", "h2"}
    plain = Lock(lock.pins)
    assert plain.names - plain.without({"httpx"}).names == {"httpx"}, "a requirements file does not record it"


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        (
            '"pandas", "numpy',
            '"pandas", "polars", "numpy',
            "older than pyproject.toml, which needs 'polars': run `uv lock`",
        ),
        ('name = "Staff.App"', 'name = "other"', "does not have the project 'other': run `uv lock`"),
    ],
)
def test_a_lock_that_is_not_the_projects_is_refused(root: Path, old: str, new: str, told: str) -> None:
    (root / "pyproject.toml").write_text(PROJECT.replace(old, new))
    with pytest.raises(LockError, match=told):
        lock_of(read_project(root), read_settings({}))


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("version = 1\n", "version = 2\n", "version 2 is not known; write another lock: uv lock"),
        ("[[package]]", "[[package", "requirements: 'uv.lock' cannot be read"),
        ('name = "h2"\nversion', 'name = "h3"\nversion', "'h2' is needed and not locked: run `uv lock`"),
        ('[[package]]\nname = "certifi"\n', "[[package]]\n", "it is not of a form that Helix reads"),
    ],
)
def test_a_broken_lock_is_named(root: Path, old: str, new: str, told: str) -> None:
    (root / "uv.lock").write_text(LOCKED.replace(old, new))
    with pytest.raises(LockError, match=told):
        lock_of(read_project(root), read_settings({}))


@pytest.mark.parametrize("place", ['editable = "../h2"', 'git = "https://git.example/h2?rev=1#1"'])
def test_a_package_of_no_index_is_named(root: Path, place: str) -> None:
    text = LOCKED.replace(entry("h2", "4.4.1", "pure"), entry("h2", "4.4.1", source=place))
    (root / "uv.lock").write_text(text)
    with pytest.raises(
        LockError, match=r"'h2' comes from .*h2.*, and Lambda needs a wheel of an index: publish it, or put"
    ):
        lock_of(read_project(root), read_settings({}))
    (root / "pyproject.toml").write_text(PROJECT + 'include = ["h2"]\n')
    assert "h2" not in lock_of(read_project(root), read_settings({})).names, "its code is deployed with the project's"


def test_an_index_is_named_to_pip_and_hashes_are_all_or_none(root: Path) -> None:
    own = entry("h2", "4.4.1", "pure", source='registry = "https://packages.example/simple"').replace(
        "sha256:h2-pure", ""
    )
    (root / "uv.lock").write_text(LOCKED.replace(entry("h2", "4.4.1", "pure"), own))
    lock = lock_of(read_project(root), read_settings({}))
    assert lock.options == ("--extra-index-url https://packages.example/simple",)
    assert "--hash" not in lock.text and lock.text.startswith(lock.options[0])


PYLOCK = """\
lock-version = "1.0"
[[packages]]
name = "staff-app"
directory = { path = "." }
[[packages]]
name = "orjson"
version = "3.11"
index = "https://pypi.org/simple"
wheels = [{ url = "https://files.example/orjson-3.11-cp313-cp313-manylinux_2_17_aarch64.whl", hashes = { sha256 = "aa" } }]
[[packages]]
name = "colorama"
version = "0.4.6"
marker = "sys_platform == 'win32'"
wheels = []
[[packages]]
name = "pytest"
version = "9.0"
"""


def test_a_pylock_is_read_too(root: Path) -> None:
    (root / "uv.lock").unlink()
    (root / "pylock.toml").write_text(PYLOCK)
    lock = lock_of(read_project(root), read_settings({}))
    assert dict(lock.pins) == {"orjson": "orjson==3.11 --hash=sha256:aa"}
    (root / "pylock.toml").write_text(PYLOCK.replace("aarch64.whl", "x86_64.whl"))
    with pytest.raises(LockError, match=r"^pylock\.toml: 'orjson' 3\.11 has no wheel for Lambda"):
        lock_of(read_project(root), read_settings({}))


def test_a_named_file_goes_first(root: Path) -> None:
    (root / "pyproject.toml").write_text(PROJECT + 'requirements = "pins.txt"\n')
    (root / "pins.txt").write_text("numpy==2.0.0\n")
    assert dict(lock_of(read_project(root), read_settings({})).pins) == {"numpy": "numpy==2.0.0"}
