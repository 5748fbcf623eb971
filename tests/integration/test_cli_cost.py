"""`helix cost` on this machine: a table whose lines add up, JSON, and refusals."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest
from moto import mock_aws
from tests.support.command_line import CommandLine
from tests.support_run import Text, World, a_tool, agent, call, calls, play

from helix import create_sub_agent_tool
from helix.cli.sessions import cost


@pytest.fixture
def helix(tmp_path: Path) -> CommandLine:
    return CommandLine(tmp_path)


@pytest.fixture
def session(tmp_path: Path) -> str:
    """Run an agent with a sub-agent and a tool that reports its usage."""
    inner = agent("inner", output_schema=Text)
    outer = agent("outer", tools=[create_sub_agent_tool(inner), a_tool("echo", lambda a, c: a.text, input_schema=Text)])

    def paid(entry: object, micros: int) -> object:
        return {**entry, "usage": {"cost_micros": micros, "prompt_tokens": 1000, "calls": 1}}  # type: ignore[dict-item]

    script = {
        "outer": [paid(calls(call("subagent__inner", message="find")), 1500), paid({"content": "done"}, 250)],
        "inner": [paid(calls(call("__finish__", text="x")), 1)],
    }

    async def made() -> str:
        world = World("sqlite", tmp_path)
        handle, _, _ = await play(world.executor(script), outer)
        await world.close()
        return handle.session_id

    return asyncio.run(made())


def test_the_lines_that_are_shown_add_up(helix: CommandLine, session: str) -> None:
    done = helix("cost", session)
    assert done.code == 0
    amounts = [float(amount) for amount in re.findall(r"\$([0-9.]+[0-9])", done.out)]
    total = next(float(m[1]) for m in [re.search(r"\$([0-9.]+) in all: Model", done.out)] if m)
    assert total == pytest.approx(0.001751)
    assert sum(amounts) == pytest.approx(3 * total), "the lines, the total, and the services"
    assert "$0.000001" in done.out and "1,000 tokens" in done.out
    assert "Step Functions" not in done.out and "list prices" not in done.out


def test_as_json_it_is_one_object(helix: CommandLine, session: str) -> None:
    book = json.loads(helix("cost", session, "--json").out)
    assert book["session_id"] == session and book["agrees"] is True
    assert book["usd"] == pytest.approx(0.001751)
    assert [(line["what"], line["step"], line["attempt"], line["basis"]) for line in book["lines"]] == [
        ("scripted", 1, 1, "measured"),
        ("scripted", 2, 1, "measured"),
        ("scripted", 1, 1, "measured"),
    ]


def test_what_is_not_there_is_refused(helix: CommandLine, session: str) -> None:
    assert "no session 'nobody'" in helix("cost", "nobody").refusal
    assert "no store 'elsewhere.db'" in helix("cost", session, "--db", "elsewhere.db").refusal


STAGE = {
    "Resources": {
        "Key": {"Type": "AWS::KMS::Key", "Properties": {"KeyPolicy": {}}},
        "Chunks": {"Type": "AWS::Kinesis::Stream", "Properties": {"Name": "helix-dev-chunks", "ShardCount": 2}},
    }
}


@pytest.fixture
def account(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    with mock_aws():
        client = boto3.client("cloudformation")
        client.create_stack(StackName="helix-dev", TemplateBody=json.dumps(STAGE))
        monkeypatch.setattr(cost, "aws_client", lambda *_: client)
        yield


def test_a_stage_at_rest_is_priced_from_its_template(helix: CommandLine, account: None) -> None:
    done = helix("cost", "--stage", "dev", "--idle")
    assert done.code == 0, done.err
    assert re.search(r"Kinesis +shards +1,460 shard hours +\$21\.90", done.out)
    assert "$22.90 a month at rest" in done.out
    book = json.loads(helix("cost", "--stage", "dev", "--idle", "--json").out)
    assert book["usd"] == pytest.approx(22.90) and book["unpriced"] == []
    assert sum(line["usd"] for line in book["lines"]) == pytest.approx(22.90)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ([], "name a session"),
        (["--idle"], "--stage NAME --idle"),
        (["s", "--stage", "dev", "--idle"], "--stage NAME --idle"),
        (["--stage", "gone", "--idle"], "there is no stage 'gone' here"),
    ],
)
def test_what_is_not_about_a_stage_at_rest_is_refused(
    helix: CommandLine, account: None, words: list[str], reason: str
) -> None:
    done = helix("cost", *words)
    assert done.code == 2 and reason in done.err
