"""Execution environments of the offline cloud start as if each had started alone, and their ends are noticed."""

from __future__ import annotations

import io
import json
import os
import signal
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from helix.local import templates
from helix.local.pool import Pool
from helix.local.templates import Process, Templates
from helix.local.workers import Code

HANDLER = """
import os, random, secrets, sys, shared
def handler(event, context):
    if event == "die":
        os._exit(3)
    return {"pid": os.getpid(), "random": random.random(), "secret": secrets.token_hex(8), "folder": os.getcwd(),
            "own": os.environ.get("OWN"), "base": os.environ.get("BASE"), "shared": shared.NAME, "path": sys.path,
            "modules": sorted(sys.modules)}
"""
NAMES = (
    "AWS_LAMBDA_FUNCTION_NAME",
    "AWS_LAMBDA_FUNCTION_VERSION",
    "AWS_LAMBDA_LOG_GROUP_NAME",
    "AWS_LAMBDA_LOG_STREAM_NAME",
)


class Stage:
    """Functions of one handler, whose layers each have a module `shared`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._started: list[Process] = []
        self.templates = Templates({"PATH": os.environ["PATH"], "BASE": "of all"})

    def start(self, function: str, layer: str = "first", **own: str) -> Process:
        package, shared = self._folder / function, self._folder / layer
        package.mkdir(exist_ok=True)
        (package / "handler.py").write_text(HANDLER)
        (shared / "python").mkdir(parents=True, exist_ok=True)
        (shared / "python" / "shared.py").write_text(f"NAME = {layer!r}")
        given = dict.fromkeys(NAMES, function) | {"AWS_LAMBDA_FUNCTION_MEMORY_SIZE": "128"}
        environment = {"PATH": os.environ["PATH"], "BASE": "of all", "_HANDLER": "handler.handler", **given, **own}
        process = self.templates.start([package, shared], environment)
        self._started.append(process)
        assert answer(process) == {"status": "ready"}
        return process

    def close(self) -> None:
        for process in self._started:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout, process.stderr):
                assert pipe is not None
                pipe.close()
        self.templates.close()


def answer(process: Process) -> dict[str, Any]:
    assert process.stdout is not None
    told: dict[str, Any] = json.loads(process.stdout.readline())
    return told


def ask(process: Process, event: Any = None) -> dict[str, Any]:
    send(process, event)
    result: dict[str, Any] = answer(process)["result"]
    return result


def send(process: Process, event: Any) -> None:
    assert process.stdin is not None
    process.stdin.write(json.dumps({"event": event, "request_id": "r", "arn": "a", "timeout_s": 9}) + "\n")
    process.stdin.flush()


@pytest.fixture(params=[True, False], ids=["forked", "alone"])
def stage(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    monkeypatch.setattr(templates, "FORKS", request.param)
    made = Stage(tmp_path)
    yield made
    made.close()


@pytest.fixture
def forked(tmp_path: Path) -> Iterator[Stage]:
    if not templates.FORKS:
        pytest.skip("environments are forked on Linux")
    made = Stage(tmp_path)
    yield made
    made.close()


def test_each_has_what_is_its_own(stage: Stage, tmp_path: Path) -> None:
    one, two = stage.start("one", OWN="1"), stage.start("two", layer="second")
    first, second = ask(one), ask(two)
    assert (first["own"], second["own"]) == ("1", None)
    assert (first["shared"], second["shared"]) == ("first", "second")
    assert first["base"] == second["base"] == "of all"
    for told, function, layer in ((first, "one", "first"), (second, "two", "second")):
        assert told["folder"] == str(tmp_path / function)
        assert told["path"][:2] == [str(tmp_path / function), str(tmp_path / layer / "python")]
        assert len(set(told["path"])) == len(told["path"])
    assert all(first[name] != second[name] for name in ("pid", "random", "secret"))
    for process in (one, two):
        process.kill()
        assert process.wait() == -signal.SIGKILL and process.poll() == -signal.SIGKILL


def test_two_of_one_template_draw_different_numbers(forked: Stage) -> None:
    one, two = forked.start("one"), forked.start("one")
    first, second = ask(one), ask(two)
    assert first["path"] == second["path"]
    assert all(first[name] != second[name] for name in ("pid", "random", "secret"))
    assert "boto3" in first["modules"], "the template has imported it, so the handler does not"


def test_how_it_ended_is_known(stage: Stage) -> None:
    process = stage.start("one")
    assert process.poll() is None
    send(process, "die")
    assert process.wait() == 3
    process.kill()  # nothing is left to kill


def test_it_ends_with_its_input(stage: Stage) -> None:
    process = stage.start("one")
    assert process.stdin is not None
    process.stdin.close()
    assert process.wait() == 0


def test_a_template_that_makes_room_leaves_its_environments(forked: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(templates, "MOST", 1)
    one = forked.start("one")
    two = forked.start("one", layer="second")
    assert ask(one)["shared"] == "first" and ask(two)["shared"] == "second"
    send(one, "die")
    assert one.wait() == 3


def test_a_template_that_is_killed_is_made_anew(forked: Stage) -> None:
    one = forked.start("one")
    os.kill(_parent(ask(one)["pid"]), signal.SIGKILL)
    assert one.wait() == -signal.SIGKILL, "the emulator must learn how it ended"
    two = forked.start("one")
    assert ask(two)["shared"] == "first"


def _parent(ident: int) -> int:
    stat = Path(f"/proc/{ident}/stat").read_text()
    return int(stat.rpartition(")")[2].split()[1])


def test_variables_that_a_module_sets_are_there(forked: Stage, tmp_path: Path) -> None:
    """`helix.runtime.starting` sets such variables. The function's own ones take precedence."""
    module = tmp_path / "first" / "python" / "boto3"
    module.mkdir(parents=True)
    (module / "__init__.py").write_text("import os\nfor name in ('BASE', 'OWN'): os.environ.setdefault(name, 'made')")
    assert ask(forked.start("one"))["own"] == "made"
    own = ask(forked.start("two", OWN="its own"))
    assert (own["own"], own["base"]) == ("its own", "of all")


def test_a_template_that_is_closed_after_it_was_chosen_is_made_anew(
    forked: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Meanwhile another start closed the template to make room for its own."""
    one = forked.start("one")
    choose, closed = Templates._template_for, list[bool]()

    def chosen(made: Templates, path: str) -> Any:
        template = choose(made, path)
        if not closed:
            closed.append(True)
            template.close()
        return template

    monkeypatch.setattr(Templates, "_template_for", chosen)
    assert ask(forked.start("one"))["pid"] != ask(one)["pid"]
    send(one, "die")
    assert one.wait() == 3


def test_a_template_that_does_not_answer_is_given_up(
    forked: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = tmp_path / "first" / "python" / "boto3"
    module.mkdir(parents=True)
    (module / "__init__.py").write_text("import time\ntime.sleep(2)")
    monkeypatch.setattr(templates, "START_S", 0.2)
    with pytest.raises(TimeoutError):
        forked.start("one")
    monkeypatch.undo()
    (module / "__init__.py").write_text("")
    assert ask(forked.start("one"))["shared"] == "first"


def test_an_environment_that_cannot_be_started_is_the_invocations_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: Any) -> Process:
        raise OSError("no memory")

    monkeypatch.setattr(Templates, "start", refused)
    package = io.BytesIO()
    with zipfile.ZipFile(package, "w") as files:
        files.writestr("handler.py", HANDLER)
    pool = Pool(tmp_path, "http://127.0.0.1:1", {}, lambda _: None)
    code = Code("one", "1", "handler.handler", (package.getvalue(),), {})
    reply = pool.invoke(code, {}, None, "r", "a", 9)
    pool.close()
    assert reply.error == {
        "errorType": "Runtime.ExitError",
        "errorMessage": "the environment could not be started: no memory",
    }
