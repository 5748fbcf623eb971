"""The tool settings of `[tool.helix]` in the template: they apply to the functions that execute tools, and to no other."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from tests.infra.templates import Assembly, Template, listed, text
from tests.support.synthesis import Synthesiser

from helix import Agent, LLMConfig, create_sub_agent_tool, tool
from helix.core.agents import AnyAgent
from helix.core.resources import profile_digest
from helix.core.tools import AnyTool
from helix.engine.context import CANCEL_S
from helix.infra.agent_profiles import LONGEST_S, SPARE_S, _check_digests, check_times
from helix.infra.config import SettingsError
from helix.infra.verbs import SIZES, WITHOUT_AGENTS
from helix.runtime.cloud_settings import read_cloud_settings

pytestmark = pytest.mark.timeout(400)  # the first test waits for the synthesis

HIDDEN = "hidden-value"
PROJECT = """
[tool.helix]
agents = ["staff"]
timeout_s = 300
memory_mb = 1024

[tool.helix.environment]
DESK_URL = "https://desk.example"

[tool.helix.secrets]
CRM_KEY = "secretsmanager:prod/crm-key#key"
TOKEN = "ssm:/desk/token"

[tool.helix.rights]
read_buckets = ["desk-files"]
write_buckets = ["arn:aws:s3:::reports"]
read_tables = ["prices"]
write_tables = ["orders"]
send_queues = ["arn:aws:sqs:eu-west-1:123456789012:jobs"]
publish_topics = ["news"]
invoke_functions = ["thumbnails"]
use_keys = ["arn:aws:kms:eu-west-1:123456789012:key/1a2b"]

[[tool.helix.rights.statements]]
actions = ["ses:SendEmail"]
resources = ["*"]
conditions = { StringEquals = { "ses:FromAddress" = "a@b.c" } }

[tool.helix.vpc]
subnets = ["subnet-0a1b2c3d"]
security_groups = ["sg-0a1b2c3d"]

[tool.helix.stages.prod.environment]
DESK_URL = "https://desk.example.com"

[tool.helix.agent.clerk]
memory_mb = 3008

[tool.helix.agent.clerk.rights]
read_buckets = ["papers"]

[tool.helix.agent.quick.environment]
DESK_URL = "https://quick.example"
"""
STAFF = """
import os
from helix import Agent, Guard, LLMConfig, default_registry, tool
from helix.guards import BedrockGuardrail

os.environ["DESK_URL"]  # what is declared is there when a module is imported

@tool(timeout_s={timeout})
def look(topic: str) -> str:
    "Look."
    return topic

guardrail = BedrockGuardrail("gr12345678", "1")
guards = {"clerk": [Guard(result=guardrail)], "quick": [Guard(input=guardrail)]}
for name, inline in (("desk", False), ("clerk", False), ("quick", True)):
    config, own = LLMConfig(model="openai/gpt-4o-mini"), guards.get(name, ())
    default_registry.register(
        Agent(name=name, system_prompt="Help.", tools=[look], llm_config=config, inline_tools=inline, guards=own)
    )
"""
PLACE = "arn:<AWS::Partition>:{}:<AWS::Region>:<AWS::AccountId>:"
DECLARED = {
    PLACE.format("secretsmanager") + "secret:prod/crm-key-??????": {"secretsmanager:GetSecretValue"},
    PLACE.format("ssm") + "parameter/desk/token": {"ssm:GetParameter"},
    "arn:<AWS::Partition>:s3:::desk-files": {"s3:ListBucket"},
    "arn:<AWS::Partition>:s3:::desk-files/*": {"s3:GetObject"},
    "arn:aws:s3:::reports/*": {"s3:AbortMultipartUpload", "s3:DeleteObject", "s3:PutObject"},
    PLACE.format("dynamodb") + "table/prices": {
        f"dynamodb:{verb}"
        for verb in ("BatchGetItem", "ConditionCheckItem", "DescribeTable", "GetItem", "Query", "Scan")
    },
    PLACE.format("dynamodb") + "table/orders": {
        f"dynamodb:{verb}" for verb in ("BatchWriteItem", "DeleteItem", "DescribeTable", "PutItem", "UpdateItem")
    },
    "arn:aws:sqs:eu-west-1:123456789012:jobs": {"sqs:GetQueueAttributes", "sqs:GetQueueUrl", "sqs:SendMessage"},
    PLACE.format("sns") + "news": {"sns:Publish"},
    PLACE.format("lambda") + "function:thumbnails": {"lambda:InvokeFunction"},
    PLACE.format("lambda") + "function:thumbnails:*": {"lambda:InvokeFunction"},
    "arn:aws:kms:eu-west-1:123456789012:key/1a2b": {"kms:Decrypt", "kms:GenerateDataKey"},
    "*": {
        "ses:SendEmail",
        "ec2:AssignPrivateIpAddresses",
        "ec2:CreateNetworkInterface",
        "ec2:DeleteNetworkInterface",
        "ec2:DescribeNetworkInterfaces",
        "ec2:DescribeSubnets",
        "ec2:UnassignPrivateIpAddresses",
    },
}
DECLARED[PLACE.format("dynamodb") + "table/prices/index/*"] = DECLARED[PLACE.format("dynamodb") + "table/prices"]


def synthesise(python: Synthesiser, folder: Path, *words: str, timeout: int = 60) -> subprocess.CompletedProcess[str]:
    (folder / "deps" / "python").mkdir(parents=True, exist_ok=True)
    (folder / "deps" / "python" / "somebody_else.py").write_text("")
    (folder / "pyproject.toml").write_text(PROJECT)
    (folder / "staff.py").write_text(STAFF.replace("{timeout}", str(timeout)))
    variables = {"CRM_KEY": HIDDEN, "TOKEN": HIDDEN, "CDK_VALIDATION": "false"}
    given = ["-c", f"deps={folder / 'deps'}", "-o", str(folder / "out"), *words]
    return python("-m", "helix.infra.app", *given, cwd=folder, variables=variables)


@pytest.fixture(scope="module")
def assembly(python: Synthesiser, tmp_path_factory: pytest.TempPathFactory) -> Assembly:
    folder = tmp_path_factory.mktemp("project")
    done = synthesise(python, folder)
    assert done.returncode == 0, done.stderr[-4000:]
    return Assembly.read(folder / "out")


def template_of(assembly: Assembly, agent: str) -> Template:
    return next(template for name, template in assembly.nested.items() if agent in name) if agent else assembly.main


def function(assembly: Assembly, verb: str, agent: str = "") -> dict[str, Any]:
    return template_of(assembly, agent).function(f"{agent}-{verb}" if agent else verb)


def declared_rights(assembly: Assembly, verb: str, agent: str = "") -> dict[str, set[str]]:
    """Return the rights of the role on resources that are not the stage's own."""
    template, found = template_of(assembly, agent), dict[str, set[str]]()
    for statement in template.statements(template.role_of(function(assembly, verb, agent))):
        for resource in map(text, listed(statement["Resource"])):
            if resource in DECLARED or "papers" in resource:
                found.setdefault(resource, set()).update(listed(statement["Action"]))
    return found


def variables(function: dict[str, Any]) -> dict[str, str]:
    return {name: text(value) for name, value in function["Environment"]["Variables"].items()}


def test_the_role_of_call_tool_has_exactly_what_is_declared(assembly: Assembly) -> None:
    assert declared_rights(assembly, "call_tool") == DECLARED
    role = assembly.main.role_of(function(assembly, "call_tool"))
    (mail,) = [s for s in assembly.main.statements(role) if "ses:SendEmail" in listed(s["Action"])]
    assert (mail["Action"], mail["Condition"]) == ("ses:SendEmail", {"StringEquals": {"ses:FromAddress": "a@b.c"}})


def test_nobody_else_has_any_of_it(assembly: Assembly) -> None:
    own = {"*": {"states:SendTaskSuccess", "cloudwatch:GetMetricData"}}
    for verb in SIZES.keys() - {"call_tool"}:
        rights = declared_rights(assembly, verb)
        assert {what: actions - own.get(what, set()) for what, actions in rights.items()} in ({}, {"*": set()}), verb
        assert "HELIX_SECRETS" not in variables(function(assembly, verb))
        assert "VpcConfig" not in function(assembly, verb)


def test_an_agent_with_a_table_has_its_own_rights_beside_the_projects(assembly: Assembly) -> None:
    papers = {
        "arn:<AWS::Partition>:s3:::papers": {"s3:ListBucket"},
        "arn:<AWS::Partition>:s3:::papers/*": {"s3:GetObject"},
    }
    assert declared_rights(assembly, "call_tool", "clerk") == DECLARED | papers
    assert declared_rights(assembly, "call_model", "clerk") == {}
    sizes = [function(assembly, "call_tool", agent)["MemorySize"] for agent in ("", "clerk", "quick")]
    assert sizes == [1024, 3008, 1024]
    told = read_cloud_settings(variables(function(assembly, "ws_message")))
    own = (profile_digest("clerk"), profile_digest("quick"))
    assert told.own_profiles == own, "each function that starts runs knows the agent's machine"


def test_call_model_has_it_where_it_executes_tools(assembly: Assembly) -> None:
    assert declared_rights(assembly, "call_model", "quick") == DECLARED
    inline = function(assembly, "call_model", "quick")
    assert (inline["MemorySize"], inline["Timeout"], "VpcConfig" in inline) == (1024, 900, True)
    assert "HELIX_SECRETS" in variables(inline)


def test_guardrails_are_granted_where_a_guard_applies_them(assembly: Assembly) -> None:
    """The stage calls no model of Amazon Bedrock, so the guards are the only reason."""
    granted = set()
    for agent in ("", "clerk", "quick"):
        for verb in ("call_model", "call_tool"):
            template = template_of(assembly, agent)
            statements = template.statements(template.role_of(function(assembly, verb, agent)))
            found = [s for s in statements if "bedrock:ApplyGuardrail" in listed(s["Action"])]
            granted |= {(agent, verb) for _ in found}
            for statement in found:
                resources = sorted(text(one) for one in listed(statement["Resource"]))
                kinds = [one.rpartition(":")[2] for one in resources]
                assert kinds == ["guardrail-profile/*", "guardrail/*"], resources
    assert granted == {("clerk", "call_model"), ("clerk", "call_tool"), ("quick", "call_model")}


def test_settings_of_the_functions(assembly: Assembly) -> None:
    tools = function(assembly, "call_tool")
    assert (tools["MemorySize"], tools["Timeout"]) == (1024, 300)
    assert tools["VpcConfig"] == {"SubnetIds": ["subnet-0a1b2c3d"], "SecurityGroupIds": ["sg-0a1b2c3d"]}
    assert variables(tools)["HELIX_SECRETS"] == "CRM_KEY=secretsmanager:prod/crm-key#key,TOKEN=ssm:/desk/token"
    with_url = {verb for verb in SIZES if variables(function(assembly, verb)).get("DESK_URL") == "https://desk.example"}
    assert with_url == SIZES.keys() - set(WITHOUT_AGENTS)
    assert variables(function(assembly, "call_tool", "quick"))["DESK_URL"] == "https://quick.example"


def test_no_file_of_the_assembly_has_a_secret(assembly: Assembly) -> None:
    for file in assembly.folder.rglob("*"):
        assert not file.is_file() or HIDDEN.encode() not in file.read_bytes(), file


@tool(timeout_s=886)
async def slow(x: str) -> str:
    """Too slow for a function."""
    return x


@tool(timeout_s=250, retries=3)
async def stubborn(x: str) -> str:
    """Too slow with all its repeats."""
    return x


@tool(timeout_s=881, retries=0)
async def patient(x: str) -> str:
    """A tool that takes the maximum time of a function."""
    return x


class Text(BaseModel):
    text: str


def with_tool(each: AnyTool, name: str = "desk", **more: Any) -> AnyAgent:
    return Agent(name=name, system_prompt="Help.", llm_config=LLMConfig(model="demo/x"), tools=[each], **more)


@pytest.mark.parametrize(
    ("each", "declared", "said"),
    [
        (
            slow,
            None,
            "tool 'slow' of agent 'desk' may take 886 s and its function has 900 s, 15 of them for other work: ",
        ),
        (stubborn, None, "may take 1003.5 s, 3 repeats included, and its function has 900 s"),
        (
            patient,
            300,
            "may take 881 s and its function has 300 s, 15 of them for other work: lower its timeout_s, or",
        ),
    ],
)
def test_a_tool_that_may_outlive_its_function_is_refused_by_name(
    each: AnyTool, declared: int | None, said: str
) -> None:
    with pytest.raises(SettingsError) as refused:
        check_times(with_tool(each), declared)
    assert said in str(refused.value)


def test_a_tool_that_fits_is_taken_and_one_that_runs_elsewhere() -> None:
    assert LONGEST_S == SIZES["call_tool"].timeout_s == SIZES["call_model"].timeout_s
    check_times(with_tool(patient), None)
    check_times(with_tool(patient, inline_tools=True), 300)
    helper = with_tool(patient, "helper", output_schema=Text)
    check_times(with_tool(create_sub_agent_tool(helper, timeout_s=3600)), 300)


def test_an_agent_that_looks_like_one_with_a_table_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    _check_digests(["clerk"], ["desk", "heavy"])
    monkeypatch.setattr("helix.infra.agent_profiles.profile_digest", lambda name: name[:1])
    with pytest.raises(SettingsError, match="agents 'clerk' and 'crew' have the same digest"):
        _check_digests(["clerk"], ["desk", "crew"])


def test_a_model_that_may_outlive_its_function_is_refused_by_name() -> None:
    def of(config: LLMConfig) -> AnyAgent:
        return Agent(name="desk", system_prompt="Help.", llm_config=config)

    with pytest.raises(SettingsError, match=r"agent 'desk' may take 900 s for one try.*to 885"):
        check_times(of(LLMConfig(model="demo/x", timeout_s=900)), None)
    check_times(of(LLMConfig(model="demo/x", timeout_s=LONGEST_S - SPARE_S, fallbacks=["demo/y"])), None)
    assert SPARE_S == CANCEL_S


WORDY = f"""
[tool.helix.triggers.wordy]
agent = "desk"
queue = true
prompt = "{"x" * 1_900}"
"""
NIGHTLY = """[tool.helix.triggers.nightly]
agent = "dekc"
schedule = "rate(1 day)"

[tool.helix.agent.clerk]"""


@pytest.mark.parametrize(
    ("timeout", "change", "said"),
    [
        (290, ("", ""), "may take 290 s and its function has 300 s, 15 of them for other work"),
        (
            60,
            ("agent.clerk]", "agent.clark]"),
            "tool.helix.agent.clark: there is no agent 'clark'; there are clerk, desk, quick; did you mean 'clerk'?",
        ),
        (
            60,
            ("[tool.helix.agent.clerk]", NIGHTLY),
            "tool.helix.triggers.nightly: there is no agent 'dekc'; there are clerk, desk, quick; did you mean 'desk'?",
        ),
        (
            60,
            ("[tool.helix.secrets]", f'STYLE = "{"x" * 1_900}"\n{WORDY}\n[tool.helix.secrets]'),
            "function 'helix-dev-start_triggered': its environment variables take up to 5,",
        ),
    ],
)
def test_a_mistake_stops_the_synthesis_in_one_line(
    python: Synthesiser,
    tmp_path: Path,
    timeout: int,
    change: tuple[str, str],
    said: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(globals(), "PROJECT", PROJECT.replace(*change) if change[0] else PROJECT)
    done = synthesise(python, tmp_path, timeout=timeout)
    assert done.returncode != 0 and said in done.stderr and "Traceback" not in done.stderr
