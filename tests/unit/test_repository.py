"""The repository's workflows, hooks and templates match the project, and its modules are short."""

from __future__ import annotations

import ast
import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.docs.documents import PACKAGE, ROOT

from helix.runtime.project import SHIPPED, shipped

GITHUB = ROOT / ".github"
MAKEFILE = (ROOT / "Makefile").read_text("utf-8")
WORKFLOWS = sorted((GITHUB / "workflows").glob("*.yml"))
MAX_LINES = 400
LINKS = {
    "layers/core/python/helix/infra": "the CDK app is a folder of the repository, and `helix.infra` in a checkout",
}
"""The symbolic links of the repository, each with its reason."""


def steps(path: Path) -> list[dict[str, Any]]:
    jobs = yaml.safe_load(path.read_text("utf-8"))["jobs"]
    return [step for job in jobs.values() for step in job["steps"]]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_runs_what_this_repository_has(path: Path) -> None:
    commands = [step["run"] for step in steps(path) if "run" in step]
    targets = {target for command in commands for target in re.findall(r"\bmake (\w+)", command)}
    assert targets <= set(re.findall(r"^(\w+):", MAKEFILE, flags=re.MULTILINE))
    for script in {word for command in commands for word in command.split() if word.startswith(".ci/")}:
        assert (ROOT / script).stat().st_mode & 0o111, f"{script} cannot be executed"


def test_ci_tests_each_python_that_the_package_takes() -> None:
    matrix = yaml.safe_load((GITHUB / "workflows" / "ci.yml").read_text("utf-8"))["jobs"]["test"]["strategy"]["matrix"]
    assert matrix == {"python": ["3.11", "3.12", "3.13", "3.14"]}
    assert 'requires-python = ">=3.11"' in (ROOT / "pyproject.toml").read_text("utf-8")


def test_hooks_run_what_make_check_runs() -> None:
    (repo,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text("utf-8"))["repos"]
    hooks = [" ".join(hook["entry"].split()[:2]).removeprefix(".venv/bin/") for hook in repo["hooks"]]
    parts = "".join(MAKEFILE.partition(f"\n{target}:")[2].partition("\n\n")[0] for target in ("style", "types"))
    checks = re.findall(r"^\t\$\(BIN\)/(.+)$", parts, re.MULTILINE)
    assert sorted(check.split(" .")[0].removesuffix(" --check") for check in checks) == sorted(hooks)
    for target in ("check", "test"):
        assert " types style" in MAKEFILE.partition(f"\n{target}: ")[2].partition("\n\n")[0]


def test_ci_needs_nothing_outside_of_the_repository() -> None:
    for script in (ROOT / ".ci").iterdir():
        assert "../" not in script.read_text("utf-8").replace('"$(dirname "$0")/.."', ""), script.name


@pytest.mark.parametrize("path", sorted((GITHUB / "ISSUE_TEMPLATE").glob("*.yml")), ids=lambda path: path.name)
def test_a_template_can_be_filled_in(path: Path) -> None:
    form = yaml.safe_load(path.read_text("utf-8"))
    if path.name != "config.yml":
        fields = [field["id"] for field in form["body"]]
        assert form["name"] and form["description"] and len(set(fields)) == len(fields)


def test_no_module_is_longer_than_the_limit() -> None:
    modules = [path for path in PACKAGE.rglob("*.py") if "templates" not in path.parts]
    lengths = {path.relative_to(PACKAGE).as_posix(): len(path.read_text("utf-8").splitlines()) for path in modules}
    too_long = {name: lines for name, lines in lengths.items() if lines > MAX_LINES}
    assert len(lengths) > 500 and too_long == {}, "divide these modules by topic"


def only_reexports(path: Path) -> bool:
    """Return whether a module defines nothing: its body is imports, texts and `__all__`."""

    def defines_nothing(node: ast.stmt) -> bool:
        match node:
            case ast.Import() | ast.ImportFrom() | ast.Expr(value=ast.Constant()):
                return True
            case ast.Assign(targets=[ast.Name(id="__all__")]) | ast.AnnAssign(target=ast.Name(id="__all__")):
                return True
            case ast.If(body=body, orelse=orelse) | ast.Try(body=body, orelse=orelse):
                return all(map(defines_nothing, [*body, *orelse]))
        return False

    return all(map(defines_nothing, ast.parse(path.read_text("utf-8")).body))


def test_a_module_with_only_imports_is_recognised(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text('"""Names."""\nfrom a import b\nif TYPE_CHECKING:\n    import c\n__all__ = ["b"]\n')
    assert only_reexports(module)
    module.write_text("from a import b\n\nhandler = b()\n")
    assert not only_reexports(module)


def test_no_module_only_reexports_other_modules() -> None:
    """Each name has one module. The `__init__.py` of a package may name what its modules define."""
    listed = subprocess.run(["git", "ls-files", "*.py"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    modules = [ROOT / name for name in listed.splitlines() if not name.endswith("__init__.py")]
    names = [path.relative_to(ROOT).as_posix() for path in modules if only_reexports(path)]
    assert len(modules) > 1000 and names == [], "import from the module that defines the names"


def test_each_symbolic_link_has_a_reason() -> None:
    listed = subprocess.run(["git", "ls-files", "--stage"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    links = {line.partition("\t")[2] for line in listed.splitlines() if line.startswith("120000 ")}
    assert links == set(LINKS), "pyproject.toml copies files into the wheel, and `shipped` finds them in a checkout"


def test_the_wheel_has_the_files_that_the_package_looks_for() -> None:
    build = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert build["force-include"] == {path: f"helix/{copy}" for path, copy in SHIPPED.items()}
    assert [shipped(path) for path in SHIPPED] == [ROOT / path for path in SHIPPED]
    assert all(shipped(path).exists() for path in SHIPPED)
