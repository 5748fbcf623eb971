"""A stage with a hundred agents that have resources and their own tables stays within the limits of CloudFormation,
CloudWatch and Lambda."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path

import pytest
from tests.infra.conftest import MODULES, run_app
from tests.infra.observed import dashboards, of_dashboards
from tests.infra.templates import Assembly, text
from tests.support.synthesis import Synthesiser

from helix.core.resources import profile_digest
from helix.infra.agent_profiles import LONGEST_NAME
from helix.runtime.cloud_settings import read_cloud_settings

pytestmark = pytest.mark.timeout(400)

NAMES = [f"customer_support_agent_of_department_{number:03d}_eu" for number in range(100)]
PROJECT = f"""
[tool.helix]
agents = ["hundred_agents"]

[tool.helix.environment]
STYLE = "{"x" * 2_000}"
"""
"""The project's settings, with 2,000 bytes of variables for its tools. A project may declare a few more."""


@pytest.mark.slow
def test_a_stage_holds_a_hundred_agents_with_resources_and_tables(python: Synthesiser, tmp_path: Path) -> None:
    """https://docs.aws.amazon.com/AWSCloudFormation/latest/UserGuide/cloudformation-limits.html"""
    assembly = synthesise(python, tmp_path)
    assert len(assembly.nested) == 100
    for file in assembly.folder.glob("*.template.json"):
        assert file.stat().st_size < 1_000_000, file.name
    for template in assembly.templates:
        assert len(template.resources) <= 500 and len(template.text.get("Parameters", {})) <= 200
        for policy in template.of("IAM::ManagedPolicy").values():
            assert len(json.dumps(policy["PolicyDocument"])) <= 6_144
        for function in template.of("Lambda::Function").values():
            variables = {name: text(value) for name, value in function["Environment"]["Variables"].items()}
            assert len(json.dumps(variables)) <= 4_096, function["FunctionName"]
            assert read_cloud_settings(variables).own_profiles == tuple(map(profile_digest, sorted(NAMES)))
    assert max(len(f"helix-dev-{name}-call_model") for name in NAMES) == LONGEST_NAME
    lines = Counter(o.where.partition(":")[0] for o in of_dashboards(assembly.main))
    assert max(lines.values()) <= 50
    for body in dashboards(assembly.main).values():
        for widget in body["widgets"]:
            assert len(widget["properties"].get("alarms", [])) <= 100


def synthesise(python: Synthesiser, folder: Path) -> Assembly:
    tables = "".join(f"\n[tool.helix.agent.{name}]\nmemory_mb = 1024\n" for name in NAMES)
    (folder / "pyproject.toml").write_text(PROJECT + tables)
    shutil.copy(MODULES / "hundred_agents.py", folder)
    (folder / "deps" / "python").mkdir(parents=True)
    (folder / "deps" / "python" / "somebody_else.py").write_text("")
    context = {"provision_agents": "true", "deps": str(folder / "deps")}
    done = run_app(python, context, folder / "out", cwd=folder)
    assert done.returncode == 0, done.stderr[-4000:]
    return Assembly.read(folder / "out")
