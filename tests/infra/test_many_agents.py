"""A stage with a hundred agents that have resources of their own: CloudFormation's and CloudWatch's limits hold."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from tests.infra.conftest import Synth
from tests.infra.observed import dashboards, of_dashboards

pytestmark = pytest.mark.timeout(400)


@pytest.mark.slow
def test_a_stage_holds_a_hundred_agents_with_resources(synth: Synth) -> None:
    """https://docs.aws.amazon.com/AWSCloudFormation/latest/UserGuide/cloudformation-limits.html"""
    assembly = synth({"agents": "hundred_agents", "provision_agents": "true"})
    assert len(assembly.nested) == 100
    for file in assembly.folder.glob("*.template.json"):
        assert file.stat().st_size < 1_000_000, file.name
    for template in assembly.templates:
        assert len(template.resources) <= 500 and len(template.text.get("Parameters", {})) <= 200
        for policy in template.of("IAM::ManagedPolicy").values():
            assert len(json.dumps(policy["PolicyDocument"])) <= 6_144
    lines = Counter(o.where.partition(":")[0] for o in of_dashboards(assembly.main))
    assert max(lines.values()) <= 50
    for body in dashboards(assembly.main).values():
        for widget in body["widgets"]:
            assert len(widget["properties"].get("alarms", [])) <= 100
