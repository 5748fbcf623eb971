"""The settings of tools in `[tool.helix]`: which one applies, and the error for each mistake."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from helix.core.errors import InvalidInputError
from helix.core.tool_settings import ProjectTools, SecretPlace

WHOLE = """
agents = ["agents"]

[environment]
DESK_URL = "https://desk.example"
LIMIT = "10"

[secrets]
CRM_KEY = "secretsmanager:prod/crm-key"

[rights]
read_buckets = ["desk-files"]
statements = [{ actions = ["ses:SendEmail"], resources = ["*"] }]

[stages.prod.environment]
DESK_URL = "https://desk.example.com"

[stages.prod.agent.researcher.environment]
LIMIT = "1000"

[agent.researcher]
memory_mb = 1024
timeout_s = 300

[agent.researcher.environment]
LIMIT = "100"

[agent.researcher.rights]
read_buckets = ["desk-files", "papers"]
"""


def read(text: str) -> ProjectTools:
    return ProjectTools.read(tomllib.loads(text))


def test_a_narrower_table_goes_over_a_wider_one() -> None:
    project = read(WHOLE)
    assert project.of("dev").environment == {"DESK_URL": "https://desk.example", "LIMIT": "10"}
    assert project.of("prod").environment == {"DESK_URL": "https://desk.example.com", "LIMIT": "10"}
    assert project.of("dev", "researcher").environment["LIMIT"] == "100"
    assert project.of("prod", "researcher").environment == {"DESK_URL": "https://desk.example.com", "LIMIT": "1000"}
    assert project.of("prod", "somebody") == project.of("prod")
    assert project.agents("dev") == ["researcher"]
    assert (project.of("dev").memory_mb, project.of("dev", "researcher").memory_mb) == (None, 1024)


def test_rights_add_up() -> None:
    rights = read(WHOLE).of("dev", "researcher").rights
    assert set(rights.read_buckets) == {"desk-files", "papers"}
    (statement,) = rights.statements
    assert statement.actions == ("ses:SendEmail",)


def test_a_project_that_says_nothing_asks_for_nothing() -> None:
    assert read("agents = ['agents']").of("prod") == ProjectTools().of(None)


@pytest.mark.parametrize(
    ("text", "service", "id", "field", "resource"),
    [
        (
            "secretsmanager:prod/crm",
            "secretsmanager",
            "prod/crm",
            "",
            "arn:aws:secretsmanager:eu-1:1:secret:prod/crm-??????",
        ),
        ("secretsmanager:crm#key", "secretsmanager", "crm", "key", "arn:aws:secretsmanager:eu-1:1:secret:crm-??????"),
        ("ssm:/desk/crm-key", "ssm", "/desk/crm-key", "", "arn:aws:ssm:eu-1:1:parameter/desk/crm-key"),
        ("ssm:crm", "ssm", "crm", "", "arn:aws:ssm:eu-1:1:parameter/crm"),
        (
            "arn:aws:secretsmanager:eu-west-1:123456789012:secret:crm-AbCdEf#key",
            "secretsmanager",
            "arn:aws:secretsmanager:eu-west-1:123456789012:secret:crm-AbCdEf",
            "key",
            "arn:aws:secretsmanager:eu-west-1:123456789012:secret:crm-AbCdEf",
        ),
    ],
)
def test_places_of_secrets(text: str, service: str, id: str, field: str, resource: str) -> None:
    place = SecretPlace.parse(text)
    assert (place.service, place.id, place.field, str(place)) == (service, id, field, text)
    assert place.resource("aws", "eu-1", "1") == resource


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("environment = { LIMIT = 5 }", "tool.helix.environment.LIMIT: must be a string in quotes, not 5"),
        ("environment = { AWS_REGION = 'x' }", "tool.helix.environment.AWS_REGION: 'AWS_REGION' is reserved"),
        ("environment = { 'a-b' = 'x' }", "tool.helix.environment.a-b: 'a-b' is not a variable name"),
        ("secrets = { KEY = 'prod/crm' }", "tool.helix.secrets.KEY: 'prod/crm' does not name a secret; write"),
        ("secrets = { KEY = 3 }", "tool.helix.secrets.KEY: must be a string in quotes, not 3"),
        ("secret = { KEY = 'x' }\nrights = { read_bucket = ['x'] }", "tool.helix.rights.read_bucket: there is no such"),
        (
            "rights = { read_buckets = ['Desk Files'] }",
            "tool.helix.rights.read_buckets[0]: 'Desk Files' is not the name or ARN",
        ),
        (
            "rights = { use_keys = ['alias/mine'] }",
            "tool.helix.rights.use_keys[0]: 'alias/mine' is not the name or ARN of a key",
        ),
        (
            "rights = { statements = [{ actions = ['ses:SendEmail'] }] }",
            "tool.helix.rights.statements[0].resources: is miss",
        ),
        ("vpc = { subnets = ['x'], security_groups = ['sg-1'] }", "tool.helix.vpc.subnets[0]: String should match"),
        ("timeout_s = 1000", "tool.helix.timeout_s: Input should be less than or equal to 900"),
        (
            "[agent.desk]\nmemory = 1",
            "tool.helix.agent.desk.memory: there is no such setting; see docs/guide/tool-settings.md; "
            "did you mean 'memory_mb'?",
        ),
        (
            "[rights]\nread_bucket = ['a']",
            "tool.helix.rights.read_bucket: there is no such setting; see docs/guide/tool-settings.md; "
            "did you mean 'read_buckets'?",
        ),
        ("[stages.prod.agent.desk]\nmemory = 1", "tool.helix.stages.prod.agent.desk.memory: there is no such setting"),
        ("environment = { KEY = 'x' }\nsecrets = { KEY = 'ssm:x' }", "tool.helix: 'KEY' is both in environment and in"),
        (
            "environment = { KEY = 'x' }\n[stages.prod.agent.desk.secrets]\nKEY = 'ssm:x'",
            "tool.helix, agent 'desk': 'KEY' is both in environment and in secrets",
        ),
        (
            f"environment = {{ KEY = '{'x' * 2048}' }}",
            "tool.helix: environment and the places of secrets take 2051 bytes",
        ),
    ],
)
def test_a_mistake_is_named(text: str, said: str) -> None:
    with pytest.raises(InvalidInputError) as refused:
        read(text)
    assert str(refused.value).startswith(f"pyproject.toml: {said}")


def test_the_tables_of_others_are_left_alone() -> None:
    section: dict[str, Any] = {"agents": ["a"], "settings": {"retain": True}, "stages": {"prod": {"concurrency": 100}}}
    assert ProjectTools.read(section).of("prod") == ProjectTools().of(None)


def test_the_guides_example_is_right() -> None:
    guide = (Path(__file__).parents[2] / "docs" / "guide" / "tool-settings.md").read_text(encoding="utf-8")
    example = tomllib.loads(guide.partition("```toml\n")[2].partition("```")[0])["tool"]["helix"]
    project = ProjectTools.read(example)
    assert ProjectTools.others(example) == {"agents": ["desk"], "stages": {"prod": {}}}
    assert project.of("prod").environment == {"DESK_URL": "https://desk.example.com"}
    assert set(project.of("prod", "researcher").rights.read_buckets) == {"desk-files", "papers"}
