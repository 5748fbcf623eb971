"""Container images of the functions that execute tools: which functions get one, its content, and what their layers then
lack."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.infra.templates import Assembly, Template
from tests.infra.test_lint import problems
from tests.support.synthesis import Synthesiser

from helix.cli.cloud.deploy import Deployment, Target, deploy
from helix.cli.cloud.images import check_builder, describe_substitute
from helix.cli.output import RefusedError
from helix.infra import build
from helix.infra.build import BUILDS, interpreter_of
from helix.infra.config import HOST_PYTHON, Settings, read_settings
from helix.infra.packages import LockError
from helix.runtime.project import HelixProject, read_project

if TYPE_CHECKING:
    from helix.infra.layers import Layers

pytestmark = [pytest.mark.timeout(400), pytest.mark.slow]  # each waits for a synthesis

PROJECT = """
[tool.helix]
agents = ["staff"]
{settings}
timeout_s = 300
memory_mb = 1024

[tool.helix.rights]
read_buckets = ["desk-files"]

[tool.helix.secrets]
CRM_KEY = "secretsmanager:prod/crm-key"

[tool.helix.vpc]
subnets = ["subnet-0a1b2c3d"]
security_groups = ["sg-0a1b2c3d"]

[tool.helix.agent.clerk]
image = ["Pa_ndas"]
"""
STAFF = """
{top}
from helix import Agent, LLMConfig, default_registry, tool

@tool(inline={inline})
def look(topic: str) -> str:
    "Look."
    import pa_ndas
    return topic

for name in ("desk", "clerk"):
    default_registry.register(Agent(name=name, system_prompt="Help.", tools=[look], llm_config=LLMConfig(model="openai/m")))
"""


def write(folder: Path, *, top: str = "", inline: bool = False, settings: str = "") -> Path:
    (folder / "deps" / "python").mkdir(parents=True, exist_ok=True)
    (folder / "deps" / "python" / "somebody_else.py").write_text("")
    (folder / "pyproject.toml").write_text(PROJECT.replace("{settings}", settings))
    (folder / "staff.py").write_text(STAFF.format(top=top, inline=inline))
    (folder / "pa_ndas.py").write_text("")
    return folder


def synthesise(python: Synthesiser, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Synthesise with a failing `docker` on the path, so that no part of a synthesis needs it."""
    tools = folder / "tools"
    tools.mkdir(exist_ok=True)
    (tools / "docker").write_text("#!/bin/sh\nexit 9\n")
    (tools / "docker").chmod(0o755)
    path = {"PATH": f"{tools}:{os.environ['PATH']}"}
    return python("-m", "helix.infra.app", "-o", str(folder / "out"), *words, cwd=folder, variables=path)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("project"))


@pytest.fixture(scope="module")
def assembly(python: Synthesiser, project: Path) -> Assembly:
    done = synthesise(python, project, "-c", f"deps={project / 'deps'}")
    assert done.returncode == 0, done.stderr[-4000:]
    return Assembly.read(project / "out")


@pytest.fixture(scope="module")
def clerk(assembly: Assembly) -> Template:
    (nested,) = assembly.nested.values()
    return nested


def images(template: Template) -> list[str]:
    return [p["FunctionName"] for p in template.of("Lambda::Function").values() if p.get("PackageType") == "Image"]


def test_only_the_function_that_executes_the_tools_is_an_image(assembly: Assembly, clerk: Template) -> None:
    assert images(assembly.main) == []
    assert images(clerk) == ["helix-dev-clerk-call_tool-image"]
    made = clerk.function("clerk-call_tool-image")
    assert not {"Runtime", "Handler", "Layers"} & made.keys() and "ImageUri" in made["Code"]
    assert clerk.function("clerk-call_model")["Runtime"] == "python3.13"


def test_it_has_what_the_zip_function_would_have(assembly: Assembly, clerk: Template) -> None:
    made, plain = clerk.function("clerk-call_tool-image"), assembly.main.function("call_tool")
    for key in ("MemorySize", "Timeout", "VpcConfig", "Architectures"):
        assert made[key] == plain[key], key
    assert made["Environment"]["Variables"].keys() == plain["Environment"]["Variables"].keys()
    (group,) = [p for p in clerk.of("Logs::LogGroup").values() if p["LogGroupName"].endswith("image")]
    assert group["LogGroupName"] == "/aws/lambda/helix-dev-clerk-call_tool-image"


def rights(assembly: Assembly, template: Template, function: dict[str, Any]) -> set[str]:
    found = template.statements(template.role_of(function))
    return {action for s in found for action in ([s["Action"]] if isinstance(s["Action"], str) else s["Action"])}


def test_its_role_has_the_rights_of_the_tools_and_the_verb(assembly: Assembly, clerk: Template) -> None:
    made = rights(assembly, clerk, clerk.function("clerk-call_tool-image"))
    plain = rights(assembly, assembly.main, assembly.main.function("call_tool"))
    assert made == plain and {"s3:GetObject", "secretsmanager:GetSecretValue"} <= made


def test_the_machine_of_the_agent_calls_it(clerk: Template) -> None:
    live = clerk.alias_of(clerk.function("clerk-call_tool-image"))
    assert live in json.dumps(clerk.one("StepFunctions::StateMachine"))


def test_templates_with_an_image_pass_cfn_lint(assembly: Assembly) -> None:
    assert {problem for template in assembly.templates for problem in problems(template.text)} == set()


def test_the_context_has_all_that_the_dockerfile_copies(assembly: Assembly, project: Path) -> None:
    (file,) = assembly.folder.glob("asset.*/Dockerfile")
    lines = file.read_text().splitlines()
    assert lines == [
        "FROM public.ecr.aws/lambda/python:3.13",
        "COPY --chmod=755 deps/ /opt/",
        "COPY --chmod=755 core/ /opt/",
        "COPY --chmod=755 agents/ /opt/",
        "COPY --chmod=755 function/ ${LAMBDA_TASK_ROOT}/",
        'CMD ["handler.handler"]',
    ]
    for part, wanted in {
        "deps": "python/somebody_else.py",
        "core": "python/helix/engine/loop.py",
        "agents": "python/staff.py",
        "function": "handler.py",
    }.items():
        assert (file.parent / part / wanted).is_file(), part
    assert 'serve("call_tool"' in (file.parent / "function" / "handler.py").read_text()
    (asset,) = json.loads(next(assembly.folder.glob("Helix-dev.assets.json")).read_text())["dockerImages"].values()
    assert asset["source"]["platform"] == "linux/arm64" and asset["source"]["directory"] == file.parent.name


def test_changed_code_is_another_image(python: Synthesiser, project: Path, assembly: Assembly) -> None:
    staff = project / "staff.py"
    staff.write_text(staff.read_text() + "\n# more\n")
    done = synthesise(python, project, "-c", f"deps={project / 'deps'}", "-o", str(project / "again"))
    assert done.returncode == 0, done.stderr[-4000:]
    files = {file.parent.name for place in ("out", "again") for file in (project / place).glob("asset.*/Dockerfile")}
    assert len(files) == 2


def test_changed_packages_of_one_size_and_time_are_another_image(tmp_path: Path) -> None:
    from helix.infra.images import image_folder

    deps, folders = tmp_path / "deps", set()
    deps.mkdir()
    for text in ("ONE", "TWO", "ONE"):
        (deps / "which.py").write_text(text)
        os.utime(deps / "which.py", (0, 0))
        folder = image_folder("context", "3.13", {"deps": deps}, tmp_path / "builds")
        assert (folder / "deps" / "which.py").read_text() == text
        folders.add(folder)
    assert len(folders) == 2


def test_offline_there_is_none(python: Synthesiser, project: Path) -> None:
    done = synthesise(
        python, project, "-c", "offline=true", "-c", "endpoint=http://127.0.0.1:4999", "-o", str(project / "off")
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assembly = Assembly.read(project / "off")
    assert [images(template) for template in assembly.templates] == [[], []]
    (nested,) = assembly.nested.values()
    assert nested.function("clerk-call_tool")["Handler"] == "handler.handler"


@pytest.mark.parametrize(
    ("options", "words", "told"),
    [
        ({"top": "import pa_ndas"}, (), "'pa_ndas' is in the container image only (tool.helix.image)"),
        ({"top": "import pa_ndas"}, ("-c", "offline=true"), "import it inside of the tools that use it"),
        ({"inline": True}, (), "image: tool 'look' of agent 'clerk' is inline, so call_model would execute it"),
        ({"settings": 'image = ["torch==2"]'}, (), "tool.helix.image[0]: 'torch==2' is not a package name"),
    ],
)
def test_what_cannot_work_stops_the_synthesis_in_one_line(
    python: Synthesiser, tmp_path: Path, options: dict[str, Any], words: tuple[str, ...], told: str
) -> None:
    deps = () if words else ("-c", f"deps={write(tmp_path, **options) / 'deps'}")
    done = synthesise(python, write(tmp_path, **options), *deps, *words)
    assert done.returncode != 0 and told in done.stderr and "Traceback" not in done.stderr, done.stderr[-2000:]


def make_layers(settings: Settings, project: HelixProject) -> Layers:
    from aws_cdk import App, Stack

    from helix.infra.layers import Layers

    return Layers(Stack(App(), "S"), "Layers", settings=settings, project=project)


def test_layers_lack_what_the_image_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from helix.infra import layers

    asked: list[set[str]] = []

    def pip(*words: str) -> None:
        target, rest = Path(words[words.index("--target") + 1]), words[words.index("--target") + 2 :]
        target.mkdir(parents=True, exist_ok=True)
        if rest[0] == "--requirement":
            asked.append({line.partition("==")[0] for line in Path(rest[1]).read_text().splitlines()})

    monkeypatch.setattr(build, "_pip", pip)
    monkeypatch.setattr(build, "keep_data", lambda litellm, target: None)
    monkeypatch.setattr(layers, "source_layer", lambda name, files, python, builds: tmp_path / "deps")
    write(tmp_path, settings='requirements = "pins.txt"\nimage = ["torch"]')
    (tmp_path / "pins.txt").write_text("torch==2.9\npa-ndas==1.0\nsmall==1.0\n")
    project, settings = read_project(tmp_path), read_settings({"python": HOST_PYTHON})
    made = make_layers(settings, project)
    assert asked == [{"small"}, {"small"}]
    made.image("default", ["torch"])
    made.image("clerk", ["pa-ndas"])
    assert asked[2:] == [{"torch", "small"}, {"pa-ndas", "small"}], "each image has its own"
    (tmp_path / "pins.txt").write_text("pa-ndas==1.0\n")
    with pytest.raises(LockError, match=r"tool\.helix\.image: 'torch': pins\.txt pins no such package for Lambda"):
        make_layers(settings, project)
    folders = [folder.name for folder in (tmp_path / BUILDS).glob("context-*")]
    assert len(folders) == 2


def test_the_narrower_image_goes_first(tmp_path: Path) -> None:
    write(tmp_path, settings='image = ["torch"]')
    with (tmp_path / "pyproject.toml").open("a") as file:
        file.write("\n[tool.helix.stages.lean]\nimage = []\n")
    tools = read_project(tmp_path).tools
    assert (tools.of("dev").image, tools.of("dev", "clerk").image) == (("torch",), ("pa-ndas",))
    assert (tools.of("lean").image, tools.of("lean", "clerk").image) == ((), ("pa-ndas",))
    assert tools.images("dev") == {"torch", "pa-ndas"} and tools.images("lean") == {"pa-ndas"}


def test_the_python_of_the_image_is_that_of_the_stage() -> None:
    from helix.infra.images import dockerfile

    assert dockerfile("3.12", ["deps"]).startswith("FROM public.ecr.aws/lambda/python:3.12\nCOPY")


def program(folder: Path, text: str) -> dict[str, str]:
    file = folder / "finch"
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(file.stat().st_mode | stat.S_IXUSR)
    return {"CDK_DOCKER": str(file), "PATH": os.environ["PATH"]}


def test_a_deployment_with_an_image_needs_a_builder(tmp_path: Path) -> None:
    check_builder([], {"CDK_DOCKER": "/nowhere/docker"})
    check_builder(["torch"], program(tmp_path, "exit 0"))
    with pytest.raises(
        RefusedError, match=r"^torch: tool\.helix\.image asks for a container image, and '/nowhere/docker'"
    ):
        check_builder(["torch"], {"CDK_DOCKER": "/nowhere/docker"})
    with pytest.raises(RefusedError, match=r"version` fails: no daemon\. Install and start Docker, or name another"):
        check_builder(["torch"], program(tmp_path, "echo 'no daemon' >&2; exit 1"))


def test_helix_deploy_says_so_before_it_asks_aws(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CDK_DOCKER", "/nowhere/docker")
    monkeypatch.setattr(Target, "client", lambda *_: pytest.fail("AWS was asked"))
    with pytest.raises(RefusedError, match=r"^pa-ndas: tool\.helix\.image asks for a container image"):
        deploy(Deployment(project=str(write(tmp_path))))


def test_offline_it_is_said_what_is_done_instead() -> None:
    assert describe_substitute([]) == ""
    said = describe_substitute(["pydantic", "not-there-at-all"])
    assert said == "none here: tools import not-there-at-all (not installed), pydantic from this environment"


NUMPY = """\
version = 1

[[package]]
name = "real"
version = "0.1.0"
source = { virtual = "." }
dependencies = [{ name = "numpy" }]

[package.metadata]
requires-dist = [{ name = "numpy" }]

[[package]]
name = "numpy"
version = "2.5.5"
source = { registry = "https://pypi.org/simple" }
wheels = [
    { url = "https://files.pythonhosted.org/packages/57/06/de83b859944409bb9058bc6110581a3d7fc1f54d6df1222744911d7f6b19/numpy-2.5.5-cp313-cp313-manylinux_2_27_aarch64.manylinux_2_28_aarch64.whl", hash = "sha256:ae2b8285d0b4eed24739c3ca9ec0fa424a0247489c01e1d5fe2815a599e11d33" },
    { url = "https://files.pythonhosted.org/packages/40/d6/68dd5a83914bbcaf32b3165993f7955979916708cb0156d1e28231e18803/numpy-2.5.5-cp313-cp313-manylinux_2_27_x86_64.manylinux_2_28_x86_64.whl", hash = "sha256:824025655df929268bfe6b47ed91a00d14209a6f760847cf150be446829e1ce4" },
]
"""  # noqa: E501
REAL = """
[project]
name = "real"
dependencies = ["numpy"]
[tool.helix]
agents = ["staff"]
image = ["numpy"]
"""
STATISTICS = """
from helix import tool

@tool
def mean(numbers: list[float]) -> float:
    "The mean."
    import numpy
    return float(numpy.mean(numbers))
"""


@pytest.mark.timeout(600)
@pytest.mark.skipif(interpreter_of("3.13") is None, reason="needs a Python 3.13 to run what was built for it")
def test_what_is_copied_runs_and_needs_a_newer_python_than_the_one_that_builds(tmp_path: Path) -> None:
    """The packages come from a real uv.lock, with their hashes. The folders lie one over the other, as COPY puts them."""
    (tmp_path / "pyproject.toml").write_text(REAL)
    (tmp_path / "uv.lock").write_text(NUMPY)
    (tmp_path / "staff.py").write_text(STATISTICS)
    settings = read_settings({"architecture": "host", "model_packages": "bedrock"})
    made = make_layers(settings, read_project(tmp_path))
    made.image("default", ["numpy"])
    (context,) = (tmp_path / BUILDS).glob("context-default-*")
    for part in ("deps", "core", "agents"):
        shutil.copytree(context / part, tmp_path / "opt", dirs_exist_ok=True)
    program = "import sys; sys.path.insert(0, sys.argv[1]); import staff; print(staff.mean(numbers=[1.0, 2.0]))"
    command = [str(interpreter_of("3.13")), "-S", "-c", program, str(tmp_path / "opt" / "python")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout == "1.5\n", done.stderr[-2000:]
    (layer,) = (tmp_path / BUILDS).glob("deps-*")
    assert not (layer / "python" / "numpy").exists() and (layer / "python" / "pydantic").is_dir()
