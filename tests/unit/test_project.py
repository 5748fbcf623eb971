"""`[tool.helix]` of a project's pyproject.toml: its settings, and the files of the project that are deployed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from helix.runtime.project import NoProjectError, ProjectError, find_project, read_project


def write(root: Path, table: str, *files: str) -> Path:
    (root / "pyproject.toml").write_text(f'[project]\nname = "shop"\n{table}')
    for name in files:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("")
    return root


def test_a_project_is_found_from_its_folders(tmp_path: Path) -> None:
    root = write(tmp_path, "[tool.helix]\n", "agents/deep/__init__.py")
    assert find_project(root / "agents" / "deep") == root
    write(root / "agents", "")
    assert find_project(root / "agents") == root, "a pyproject.toml without the table belongs to another tool"


def test_outside_of_a_project_the_error_names_init(tmp_path: Path) -> None:
    with pytest.raises(NoProjectError, match="`helix init` makes one"):
        find_project(tmp_path)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("pyproject.toml", f"x = {'[' * 5_000}{']' * 5_000}"),
        ("pyproject.toml", f"x = {'{a = ' * 5_000}1{'}' * 5_000}"),
        ("cdk.json", f"{'[' * 100_000}{']' * 100_000}"),
        ("cdk.json", "[]"),
        ("cdk.json", "{"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.helix]\n")
    (tmp_path / name).write_text(text)
    with pytest.raises(ProjectError, match=name):
        _ = read_project(find_project(tmp_path)).context


@pytest.mark.parametrize(
    ("table", "told"),
    [
        (
            "[tool.helix]\nagnets = []",
            r"has the unknown key 'agnets'; the keys are .*agents, .*; did you mean 'agents'\?",
        ),
        ("[tool.helix]\nagents = 'desk'", r"agents is 'desk'"),
        ("[tool.helix]\nagents = []", r"agents is \[\]"),
        ("[tool.helix.settings]\nmodel = {a = 1}", r"settings"),
        ("[tool.helix", "cannot be read"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, table: str, told: str) -> None:
    with pytest.raises(ProjectError, match=told):
        read_project(write(tmp_path, table))


def test_files_and_modules_are_names_below_source(tmp_path: Path) -> None:
    agents = 'agents = ["desk", "src/shop/agents.py", "src/shop/till/__init__.py"]'
    project = read_project(write(tmp_path, f'[tool.helix]\nsource = "src"\n{agents}\n'))
    assert project.modules == ("desk", "shop.agents", "shop.till")
    with pytest.raises(ProjectError, match=r"'desk\.py', which is not below source = 'src'"):
        _ = read_project(write(tmp_path, '[tool.helix]\nsource = "src"\nagents = ["desk.py"]\n')).modules


def test_what_is_deployed_is_what_is_named(tmp_path: Path) -> None:
    files = (
        "desk.py",
        "shop/__init__.py",
        "shop/prices.json",
        "shop/__pycache__/x.pyc",
        "tests/test_desk.py",
        "other.py",
    )
    project = read_project(write(tmp_path, '[tool.helix]\nagents = ["desk"]\ninclude = ["shop"]\n', *files))
    assert set(project.files()) == {"desk.py", "shop/__init__.py", "shop/prices.json"}
    assert "other.py" in project.files("desk,other,installed_elsewhere")
    with pytest.raises(ProjectError, match="'shop', which is not in"):
        read_project(write(tmp_path, '[tool.helix]\nsource = "tests"\nagents = ["test_desk", "shop"]\n')).files()


def test_settings_are_the_stages_over_the_projects(tmp_path: Path) -> None:
    table = '[tool.helix.settings]\nauth = "jwt"\nshards = 2\n[tool.helix.stages.prod]\nshards = 4\n'
    project = read_project(write(tmp_path, table, "agents.py"))
    assert project.settings("dev").items() >= {"agents": "agents", "auth": "jwt", "shards": 2}.items()
    assert project.settings("prod")["shards"] == 4
    (tmp_path / "cdk.json").write_text('{"context": {"shards": "8"}}')
    assert read_project(tmp_path).settings("prod")["shards"] == "8"


def test_an_import_that_is_not_deployed_is_named_before_anything_starts(tmp_path: Path) -> None:
    root = write(tmp_path, '[tool.helix]\nagents = ["desk"]\n', "prices.py")
    (root / "desk.py").write_text("import prices\n")
    command = [sys.executable, "-m", "helix.local.code_check", "desk"]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    told = (
        "the agents import 'prices', which is not deployed: add 'prices' to include of [tool.helix] in pyproject.toml"
    )
    assert told in done.stdout
    write(root, '[tool.helix]\nagents = ["desk"]\ninclude = ["prices"]\n')
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    assert '"agents": []' in done.stdout


@pytest.mark.parametrize(
    ("command", "files"),
    [
        ("python app.py", ["app.py"]),
        ("python -m deploy.app --fast", ["deploy"]),
        ("python -m app", ["app.py"]),
        ("run .", []),
        ("python -m helix.infra.app", []),
    ],
)
def test_the_files_of_an_own_app_are_those_that_its_command_names(
    tmp_path: Path, command: str, files: list[str]
) -> None:
    root = write(tmp_path, f'[tool.helix]\napp = "{command}"\n', "app.py", "deploy/app.py")
    assert [path.relative_to(root).as_posix() for path in read_project(root).app_files] == files
