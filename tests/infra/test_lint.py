"""The findings of AWS's own linter in the templates, in addition to cdk-nag at each synthesis."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest
from tests.infra.templates import Assembly

pytestmark = pytest.mark.timeout(400)  # the first test waits for the synthesis
IGNORED = ["W3005"]
"""A finding that is ignored: a dependency that a reference implies already. CDK writes both."""
MACHINE = "StepFunctions::StateMachine"


def problems(template: dict[str, Any]) -> list[str]:
    from cfnlint.api import ManualArgs, lint  # this takes a second, which each collection of the tests would wait for

    # The rule for definitions knows only the partition `aws`, and no substitution inside a text.
    text = json.dumps(template).replace("${Partition}", "aws")
    config = ManualArgs(regions=["us-east-1"], ignore_checks=IGNORED)
    return [f"{match.rule.id} {match.message}" for match in lint(text, config=config)]


@pytest.mark.slow
@pytest.mark.parametrize("variant", ["deployed", "production"])
def test_templates_pass_cfn_lint(variant: str, request: pytest.FixtureRequest) -> None:
    assembly: Assembly = request.getfixturevalue(variant)
    assert {problem for template in assembly.templates for problem in problems(template.text)} == set()


def broken_definition(template: Any) -> None:
    (machine,) = [r for r in template["Resources"].values() if r["Type"] == f"AWS::{MACHINE}"]
    asl = json.loads(machine["Properties"]["DefinitionString"])
    asl["StartAt"] = "Nowhere"
    machine["Properties"]["DefinitionString"] = json.dumps(asl)


def broken_reference(template: Any) -> None:
    (machine,) = [r for r in template["Resources"].values() if r["Type"] == f"AWS::{MACHINE}"]
    machine["Properties"]["RoleArn"] = {"Fn::GetAtt": ["Nobody", "Arn"]}


@pytest.mark.parametrize(("mutate", "rule"), [(broken_definition, "E3601"), (broken_reference, "E1010")])
def test_the_linter_sees_what_is_wrong(deployed: Assembly, mutate: Callable[[Any], None], rule: str) -> None:
    """It also finds errors in the definition of a machine, which the template has as a text."""
    template = copy.deepcopy(next(t.text for t in deployed.nested.values() if t.of(MACHINE)))
    mutate(template)
    assert rule in {problem.split()[0] for problem in problems(template)}
