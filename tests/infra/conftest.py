"""Templates as `python -m helix.infra.app` writes them, each synthesised once per test session."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.infra.templates import Assembly
from tests.support.synthesis import Synthesiser

ROOT = Path(__file__).resolve().parents[2]
MODULES = Path(__file__).parent / "modules"

DEPLOYED = {
    "agents": "resourceful_agents",
    "auth": "keys,jwt",
    "jwt_issuer": "https://issuer.example",
    "jwt_audience": "helix",
    "jwks_url": "https://issuer.example/keys.json",
    "model": "openai/gpt-4o-mini",
    "model_secrets": "arn:aws:secretsmanager:eu-west-1:123456789012:secret:openai-AbCdEf",
    "model_packages": "openai,bedrock",
    "provisioned_concurrency": "3",
    "provision_agents": "true",
    "tags": "team=ai,cost=42",
    "api_log_role": "true",
    "max_runs": "40",
    "budgets": '{"user": {"day": 2.0}}',
    "limits": '{"openai/gpt-4o-mini": {"requests": 500}}',
    "concurrency": "1000",
    "otlp_endpoint": "https://traces.example:4318",
    "trace_content": "true",
    "alarm_queue_depth": "7",
    "alarm_cost_critical": "20",
    "alarm_email": "ops@example.com",
}
PRODUCTION = {
    "stage": "prod",
    "snap_start": "true",
    "shards": "0",
    "enhanced_fan_out": "false",
    "architecture": "x86_64",
    "dashboards": "false",
    "detailed_metrics": "true",
    "concurrency": "10",
    "socket_messages": "4000",
    "warm_writes": "20000",
    "alarm_email": "ops@example.com",
}
OFFLINE = {"offline": "true", "endpoint": "http://127.0.0.1:4999"}

Synth = Callable[[dict[str, str]], Assembly]


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run all tests of templates on one worker, because it has the warm process."""
    for item in items:
        if "/tests/infra/" in item.path.as_posix():
            item.add_marker(pytest.mark.xdist_group("templates"))


@pytest.fixture(scope="session")
def python() -> Iterator[Synthesiser]:
    with contextlib.closing(Synthesiser()) as made:
        yield made


def run_app(
    python: Synthesiser, context: dict[str, str], output: Path, cwd: Path = ROOT
) -> subprocess.CompletedProcess[str]:
    pairs = [word for key, value in context.items() for word in ("-c", f"{key}={value}")]
    return python("-m", "helix.infra.app", *pairs, "-o", str(output), cwd=cwd, path=str(MODULES))


@pytest.fixture(scope="session")
def synth(tmp_path_factory: pytest.TempPathFactory, python: Synthesiser) -> Synth:
    """Return a function that synthesises. Tests of one session share its results."""
    packages, made = tmp_path_factory.mktemp("deps") / "python", dict[str, Assembly]()
    packages.mkdir()
    (packages / "somebody_else.py").write_text("")

    def make(context: dict[str, str]) -> Assembly:
        name = repr(sorted(context.items()))
        if name not in made:
            given = context if context.get("offline") else {"deps": str(packages.parent), **context}
            done = run_app(python, given, folder := tmp_path_factory.mktemp("assembly"))
            assert done.returncode == 0, done.stderr[-4000:]
            made[name] = Assembly.read(folder)
        return made[name]

    return make


@pytest.fixture(scope="session")
def deployed(synth: Synth) -> Assembly:
    return synth(DEPLOYED)


@pytest.fixture(scope="session")
def production(synth: Synth) -> Assembly:
    return synth(PRODUCTION)


@pytest.fixture(scope="session")
def offline(synth: Synth) -> Assembly:
    return synth(OFFLINE)
