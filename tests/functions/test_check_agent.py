"""The agent of `helix check --stage` is in every deployed application, and it needs no model."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.functions.conftest import Functions
from tests.support_run import agent

from helix.core.registry import default_registry
from helix.runtime.check_agent import CheckModel, check_agent
from helix.runtime.cloud import CHECK_AGENT, Application


@pytest.fixture
def app(functions: Functions, monkeypatch: pytest.MonkeyPatch) -> Application:
    """An application with the registry of a new process."""
    default_registry.unregister(CHECK_AGENT)
    functions.app.__dict__.pop("agents", None)
    monkeypatch.setattr(functions.app, "settings", replace(functions.app.settings, agents=()))
    return functions.app


def test_every_stage_has_it_and_a_program_answers(app: Application) -> None:
    found = app.agents.named(CHECK_AGENT)
    assert found is check_agent() and found.profile == "default"
    assert isinstance(app.engine.models(found), CheckModel), "even if the stage sets a model for all agents"


def test_an_agent_of_the_project_with_its_name_takes_its_place(app: Application) -> None:
    mine = agent(CHECK_AGENT)
    default_registry.register(mine)
    try:
        assert app.agents.named(CHECK_AGENT) is mine
        assert not isinstance(app.engine.models(mine), CheckModel)
    finally:
        default_registry.unregister(CHECK_AGENT)
