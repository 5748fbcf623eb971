"""Templates as `python -m helix.infra.app` writes them, each synthesised once for all tests of a session."""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.infra.templates import Assembly

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
}
OFFLINE = {"offline": "true", "endpoint": "http://127.0.0.1:4999"}

Synth = Callable[[dict[str, str]], Assembly]


def run_app(context: dict[str, str], output: Path) -> subprocess.CompletedProcess[str]:
    pairs = [word for key, value in context.items() for word in ("-c", f"{key}={value}")]
    return subprocess.run(
        [sys.executable, "-m", "helix.infra.app", *pairs, "-o", str(output)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(MODULES)},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="session")
def synth(tmp_path_factory: pytest.TempPathFactory) -> Synth:
    """Workers of one session share what is synthesised: each variant costs some ten seconds of two processes."""
    worker = os.environ.get("PYTEST_XDIST_WORKER")
    shared = tmp_path_factory.getbasetemp().parent if worker else tmp_path_factory.getbasetemp()
    packages = shared / "deps-layer" / "python"
    packages.mkdir(parents=True, exist_ok=True)
    (packages / "somebody_else.py").write_text("")

    def make(context: dict[str, str]) -> Assembly:
        name = hashlib.sha256(repr(sorted(context.items())).encode()).hexdigest()[:12]
        folder = shared / f"assembly-{name}"
        with (shared / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not (folder / "manifest.json").is_file():
                given = context if context.get("offline") else {"deps": str(packages.parent), **context}
                done = run_app(given, folder)
                assert done.returncode == 0, done.stderr[-4000:]
        return Assembly.read(folder)

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
