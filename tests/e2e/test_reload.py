"""Hot reload and restarts: the code changes, and the sessions stay."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.support.cloud_agents.plans import call, plan, say, use
from tests.support.offline_cloud import ROOT, deployed, until

from helix.local.reload import Reloader

AGENT = """
from helix import Agent, LLMConfig, default_registry, tool

@tool
def edition() -> str:
    "Tell it."
    return "edition 1"

agent = Agent(name="edited", system_prompt="Tell.", tools=[edition], llm_config=LLMConfig(model="planned"){more})
default_registry.register(agent)
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with an agent that tests edit, in a package that is a link to another folder."""
    root = tmp_path / "project"
    root.mkdir()
    (root / "pyproject.toml").write_text('[tool.helix]\nsource = "layers"\nagents = ["cloud_agents", "edited"]\n')
    agents = root / "layers"
    agents.mkdir()
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / "__init__.py").write_text(AGENT.replace("{more}", ""))
    (agents / "edited").symlink_to(tmp_path / "shared")
    shutil.copytree(
        ROOT / "tests/support/cloud_agents", agents / "cloud_agents", ignore=shutil.ignore_patterns("__pycache__")
    )
    return root


async def test_a_reload_keeps_sessions_and_a_broken_edit_changes_nothing(project: Path, tmp_path: Path) -> None:
    file = tmp_path / "shared" / "__init__.py"
    ask = plan(use(call("edition")), say("Told."))
    options: dict[str, Any] = {"root": project, "paths": [], "context": {"agents": "cloud_agents,edited"}}
    with deployed(tmp_path / "state", **options, assemblies=tmp_path / "assemblies") as cloud:
        reloader = Reloader(cloud.cloud, cloud.cloud.check_code()["profiles"])
        assert any(file.is_relative_to(folder) for folder in reloader.watched()), "behind the link too"
        async with cloud.user("dev") as client:
            handle = await client.run("edited", ask)
            assert (await handle.result(60)).status == "completed"

            file.write_text(AGENT.replace("{more}", "").replace("edition 1", "edition 2") + "\nif:")
            done = reloader.reload([file])
            assert (
                done is not None
                and done.error is not None
                and "__init__.py:" in done.error
                and "SyntaxError" in done.error
            )
            assert reloader.reload([project / "layers/__pycache__/edited.cpython-311.pyc"]) is None

            file.write_text(AGENT.replace("{more}", "").replace("edition 1", "edition 2"))
            done = reloader.reload([file])
            assert done is not None and done.error is None, done
            again = await client.run("edited", ask, session_id=handle.session_id)
            assert (await again.result(60)).status == "completed"
            told: dict[str, Any] = await client.get_messages(handle.session_id)
            results = [message["content"] for message in told["messages"] if message["role"] == "tool"]
            assert sorted(results) == ["edition 1", "edition 2"]

    with deployed(tmp_path / "state", **options, assemblies=tmp_path / "assemblies") as cloud:
        async with cloud.user("dev") as client:
            kept: dict[str, Any] = await client.get_messages(handle.session_id)
            assert len(kept["messages"]) == 8, "sessions survive a restart, on another port"
            third = await client.run("edited", ask, session_id=handle.session_id)
            assert (await third.result(60)).status == "completed"
        until(lambda: cloud.executions(handle.session_id, status="SUCCEEDED"), "execution")
