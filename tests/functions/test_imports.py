"""A function imports only modules that it needs before its first invocation. `bench/cold_start.py` measures the times.

A fresh interpreter imports the handler as Lambda does, from the built core layer, with HELIX_STAGE set. Tests compare the
list of loaded modules.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from helix.infra.build import BUILDS, core_files, source_layer
from helix.infra.config import HOST_PYTHON

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
FUNCTIONS = sorted(path.parent.name for path in ROOT.glob("functions/*/handler.py"))
SOCKETS = ("ws_authorize", "ws_connect", "ws_disconnect")

ELSEWHERE = (
    # models, tokenizers and clients: only `call_model` imports those that its agents' models need
    *("litellm", "openai", "tiktoken", "tokenizers", "httpx", "aiohttp", "mcp", "numpy"),
    # for processes that are not functions
    *("boto3", "sqlite3", "redis", "websockets", "typer", "rich", "starlette", "uvicorn", "watchfiles", "psutil"),
    *("aws_cdk", "ministack", "moto", "pytest", "hypothesis"),
    # imported when a token or a patch of a state arrives
    *("jwt", "cryptography", "jsonpatch"),
    # imported if an exporter is configured or metrics are requested
    *("opentelemetry", "prometheus_client"),
    *(
        "helix.adapters.models.litellm",
        "helix.adapters.sqlite",
        "helix.client",
        "helix.cli",
        "helix.local",
        "helix.testing",
    ),
)
RUNS = ("helix.engine.engine", "helix.core.agents", "helix.core.tools", "helix.core.steps", "helix.runtime.executor")
"""Modules of agents and their runs."""
ROWS = ("helix.core.rows", "helix.core.chunks", "helix.core.protocol", "helix.services.segments")
"""Models of stored rows, chunks and requests. Each takes time to build."""
NOT_IN: dict[str, tuple[str, ...]] = dict.fromkeys(FUNCTIONS, ELSEWHERE)
NOT_IN["project_stream"] += (*RUNS, "helix.core.rows", "helix.core.protocol")
for verb in SOCKETS:
    NOT_IN[verb] += (*RUNS, *ROWS)


@cache
def core() -> Path:
    """Build the layer with the package as it is deployed."""
    return source_layer("core", core_files(), HOST_PYTHON, ROOT / BUILDS) / "python"


def handler(verb: str) -> str:
    return f"sys.path.insert(0, {str(ROOT / 'functions' / verb)!r}); import handler"


def fresh(code: str, model: str = "demo") -> Any:
    """Run the code in a fresh interpreter, as in Lambda, and return its variable `found`."""
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": os.pathsep.join(map(str, (core(), ROOT / "layers" / "agents" / "python"))),
        "AWS_DEFAULT_REGION": "eu-central-1",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "HELIX_STAGE": "test",
        "HELIX_MODEL": model,
    }
    code = f"import json, sys; {code}; print(json.dumps(found))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("verb", FUNCTIONS)
def test_a_function_imports_what_it_needs_and_no_more(verb: str) -> None:
    found = set(fresh(f"{handler(verb)}; found = sorted(sys.modules)"))
    assert {"handler", "helix.runtime.cloud", "botocore.session"} <= found
    assert found.isdisjoint(NOT_IN[verb]), sorted(found & set(NOT_IN[verb]))


@pytest.mark.parametrize(
    ("model", "package", "others"),
    [
        ("gpt-4o-mini", "openai", {"litellm", "anthropic", "tiktoken"}),
        ("groq/llama-3.3-70b", "litellm", {"helix.adapters.models.openai"}),
    ],
)
def test_what_calls_the_model_is_imported_before_the_first_call(model: str, package: str, others: set[str]) -> None:
    """The last line of the code does the same as the first call of a model."""
    code = (
        f"{handler('call_model')}; from helix.runtime.cloud import application; app = application()"
        "; before = set(sys.modules); agent = app.agents.named('desk'); adapter = app.agents.model_of(agent)"
        "; adapter.prepare(agent.llm_config); found = [sorted(before), sorted(set(sys.modules) - before)]"
    )
    before, later = fresh(code, model)
    assert {package, f"helix.adapters.models.{package}", "agents"} <= set(before)
    assert others.isdisjoint(before) and later == []


@pytest.mark.parametrize("verb", ["call_tool", "finish_run"])
def test_no_other_function_imports_what_calls_the_model(verb: str) -> None:
    found = set(fresh(f"{handler(verb)}; found = sorted(sys.modules)", "groq/llama-3.3-70b"))
    assert found.isdisjoint(ELSEWHERE)


def test_what_cannot_be_prepared_is_left_to_the_first_call() -> None:
    code = (
        f"import os; os.environ['HELIX_AGENTS'] = 'nowhere'; {handler('call_model')}; found = callable(handler.handler)"
    )
    assert fresh(code) is True


def test_helix_comes_from_the_layer_alone() -> None:
    assert fresh("import helix; found = helix.__path__") == [str(core() / "helix")]
    names = ["core", "cli", "client", "local", "testing"]
    code = f"from importlib.util import find_spec; found = [name for name in {names} if find_spec('helix.' + name)]"
    assert fresh(code) == ["core"]


def test_the_engine_and_the_agents_need_no_model_and_no_caller() -> None:
    """The first invocation adds agents, clients and the engine. A real model is named but not imported yet."""
    code = "from helix.runtime.cloud import application; app = application(); app.engine, app.agents"
    found = set(fresh(f"{code}; found = sorted(sys.modules)"))
    assert {"helix.engine.engine", "agents"} <= found
    assert found.isdisjoint((*ELSEWHERE, "helix.runtime.executor", "helix.sessions.read", "helix.gateway"))


def test_the_collector_works_again_and_passes_over_what_stays() -> None:
    code = f"{handler('ws_connect')}; import gc, os; found = [gc.isenabled(), gc.get_freeze_count() > 10_000]"
    assert fresh(code) == [True, True]
    assert fresh(f"{handler('ws_connect')}; import os; found = os.environ['PYDANTIC_DISABLE_PLUGINS']") == "__all__"
