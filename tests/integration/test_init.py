"""`helix init`: new projects run at once, and existing projects stay unchanged."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from helix.cli.environment import explain_missing_package, load_environment
from helix.cli.init.commands import TEMPLATES, Template
from helix.cli.main import invoke
from helix.infra.config import Settings
from helix.infra.imports import check_imports
from helix.infra.locks import lock_of
from helix.infra.packages import LockError
from helix.runtime.project import read_project

ROOT = Path(__file__).parents[2]
MADE = {
    *(".env.example", ".github/workflows/ci.yml", ".gitignore", "README.md", "agents/__init__.py", "pyproject.toml"),
    *("requirements.lock", "tests/test_agents.py"),
}
RUN = """import sys
sys.path[:0] = [".", "tests"]
import test_agents
[test() for name, test in vars(test_agents).items() if name.startswith("test_")]"""


def files(root: Path) -> dict[str, bytes]:
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*") if path.is_file()}


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("template", Template)
def test_a_new_project_is_whole_and_its_tests_pass(tmp_path: Path, template: str) -> None:
    assert invoke(["init", "My Shop!", "--template", template]) == 0
    root = tmp_path / "My Shop!"
    made = files(root)
    assert set(made) >= MADE and not any(b"PROJECT-NAME" in text for text in made.values())
    assert tomllib.loads(made["pyproject.toml"].decode())["project"]["name"] == "my-shop"
    assert "agents/__init__.py" in read_project(root).files()
    done = subprocess.run([sys.executable, "-c", RUN], cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_agents_of_a_new_project_are_found_by_name(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert invoke(["init"]) == 0
    assert "helix demo" in capsys.readouterr().out
    command = [sys.executable, "-m", "helix.cli", "run", "desk", "What about the warranty?", "--model", "demo"]
    done = subprocess.run(command, cwd=tmp_path / "tests", capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "Every device has a warranty of two years." in done.stdout, done.stderr


def test_an_existing_project_gets_what_it_lacks_and_nothing_of_it_changes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = '[project]\r\nname = "shop"\r\n\r\n[tool.ruff]\r\nline-length = 99'
    (tmp_path / "pyproject.toml").write_bytes(text.encode())
    (tmp_path / "README.md").write_text("Mine.")
    (tmp_path / ".gitignore").write_text("*.pyc\n")
    (tmp_path / "src" / "shop").mkdir(parents=True)
    (tmp_path / "src" / "shop" / "__init__.py").write_text("")
    before = files(tmp_path)
    assert invoke(["init", "--template", "minimal"]) == 0
    after, told = files(tmp_path), capsys.readouterr().out
    settings = after.pop("pyproject.toml").decode()
    table = '\r\n\r\n[tool.helix]\r\nsource = "src"\r\nagents = ["agents"]\r\nrequirements = "requirements.lock"\r\n'
    assert settings == text + table and "requirements.lock" in after
    assert {name: after[name] for name in before if name != "pyproject.toml"} == {
        name: text for name, text in before.items() if name != "pyproject.toml"
    }
    assert read_project(tmp_path).files()["agents/__init__.py"].is_file()
    assert "edited  pyproject.toml" in told and "kept    README.md" in told
    assert "add     .env and .helix/ to .gitignore" in told


def test_a_new_project_has_a_lock_that_pins_what_it_imports(tmp_path: Path) -> None:
    """At first it imports nothing. So a deployment need not write a lock, and finds what a new import lacks."""
    for template in Template:
        assert invoke(["init", template, "--template", template]) == 0
        project, settings = read_project(tmp_path / template), Settings()
        lock = lock_of(project, settings)
        assert project.lock == "requirements.lock" and lock.pins == ()
        check_imports(settings, project, lock)
    with (tmp_path / "desk" / "agents" / "__init__.py").open("a") as file:
        file.write("\n\ndef draw():\n    import matplotlib\n")
    with pytest.raises(LockError, match=r"agents/__init__\.py:\d+ imports 'matplotlib'.* requirements\.lock does not"):
        check_imports(settings, read_project(tmp_path / "desk"), lock)


@pytest.mark.parametrize("lock", ["uv.lock", "pylock.toml", "requirements.lock"])
def test_a_lock_that_a_project_has_stays_its_lock(tmp_path: Path, lock: str) -> None:
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "shop"\n')
    (tmp_path / lock).write_text("theirs")
    assert invoke(["init"]) == 0
    assert (tmp_path / lock).read_text() == "theirs" and "requirements" not in (tmp_path / "pyproject.toml").read_text()
    assert len([name for name in files(tmp_path) if name.endswith((".lock", "pylock.toml"))]) == 1


def test_agents_of_ones_own_get_no_tests_of_the_templates(tmp_path: Path) -> None:
    (tmp_path / "agents.py").write_text("")
    assert invoke(["init"]) == 0
    assert not (tmp_path / "agents").exists() and not (tmp_path / "tests").exists()
    assert read_project(tmp_path).modules == ("agents",)


def test_a_second_time_changes_nothing(tmp_path: Path) -> None:
    assert invoke(["init", "--template", "research"]) == 0
    (tmp_path / "agents" / "library" / "bees.md").unlink()
    before = files(tmp_path)
    assert invoke(["init", "--template", "research"]) == 0
    after = files(tmp_path)
    assert after.pop("agents/library/bees.md") == (TEMPLATES / "research/agents/library/bees.md").read_bytes()
    assert after == before


@pytest.mark.parametrize(
    "text", ["[tool", "[tool.helix]\nagnets = []", "tool = 1", "[tool]\nhelix = 1", f"x = {'[' * 5_000}"]
)
def test_what_cannot_be_added_to_is_refused_before_anything_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    (tmp_path / "pyproject.toml").write_text(text)
    assert invoke(["init"]) == 2
    assert files(tmp_path) == {"pyproject.toml": text.encode()}
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("helix: ") and "pyproject.toml" in line


def test_the_extra_that_the_guides_install_has_what_the_next_steps_call(capsys: pytest.CaptureFixture[str]) -> None:
    """`pip install 'helix-agents[local]'` is the only step before them."""
    assert invoke(["init"]) == 0
    called = re.findall(r"^ +python -m (\w+)", capsys.readouterr().out, re.MULTILINE)
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert called == ["pytest"] and {Requirement(line).name for line in extras["local"]} >= {*called}


def test_a_file_is_no_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "shop").write_text("")
    assert invoke(["init", "shop"]) == 2
    assert "is a file: name a folder" in capsys.readouterr().err


def test_outside_of_a_project_dev_names_init(capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("dev", "demo", "deploy", "destroy"):
        assert invoke([command]) == 2
        assert "`helix init` makes one" in capsys.readouterr().err


def test_the_projects_variables_are_set_where_none_is(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.helix]\n")
    (tmp_path / ".env").write_text("# keys\nA=1\nexport B='two words'\nC=\nD = 4=4\nE=mine\n")
    found = {"E": "set"}
    load_environment(tmp_path, found)
    assert found == {"A": "1", "B": "two words", "D": "4=4", "E": "set"}


def test_without_its_packages_a_command_names_the_extra(tmp_path: Path) -> None:
    """The process can import neither boto3 nor the emulator, as after `pip install helix-agents`."""
    blocked = "import sys; sys.modules.update(dict.fromkeys(['boto3', 'botocore', 'ministack', 'websockets']));"
    program = f"{blocked} from helix.cli.main import main; main()"

    def helix(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([sys.executable, "-c", program, *words], capture_output=True, text=True, check=False)

    assert helix("init").returncode == 0
    for words, extra in (
        (["dev"], "local"),
        (["deploy"], "local"),
        (["run", "desk", "Hi", "--url", "wss://x"], "client"),
    ):
        done = helix(*words)
        assert done.returncode == 2, done.stderr
        assert f"pip install 'helix-agents[{extra}]'" in done.stderr
    assert helix("run", "desk", "What about the warranty?", "--model", "demo").returncode == 0
    assert explain_missing_package("ministack.core") == "ministack is not installed: pip install 'helix-agents[local]'"


@pytest.mark.parametrize("words", ["demo hi --model", "dev --model", "dev -c model=openai/gpt-4o --model", "dev -c"])
def test_a_model_of_no_known_provider_is_refused_before_the_offline_app_starts(
    words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert invoke(["init"]) == 0
    given = "opnai/gpt-4o" if words.endswith("--model") else "model=opnai/gpt-4o"
    assert invoke([*words.split(), given]) == 2
    assert "did you mean 'openai/gpt-4o'?" in capsys.readouterr().err
