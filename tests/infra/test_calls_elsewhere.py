"""A stage with a tool that lets other systems end its calls has the HTTP function and its call routes."""

from __future__ import annotations

import pytest
from tests.infra.conftest import Synth
from tests.infra.templates import Assembly, text
from tests.infra.test_roles import rights_of
from tests.support.rights import GET, LINE, PUT, QUERY

from helix.gateway.lambdas_http import CALL_ROUTES

pytestmark = pytest.mark.timeout(400)  # the first test waits for the synthesis


@pytest.fixture(scope="module")
def stage(synth: Synth) -> Assembly:
    return synth({"agents": "later_agents"})


def test_the_routes_lead_to_the_function_with_a_throttle(stage: Assembly) -> None:
    template = stage.main
    routes = {p["RouteKey"] for p in template.of("ApiGatewayV2::Route").values()}
    assert set(CALL_ROUTES) <= routes and "POST /run" not in routes
    (settings,) = [
        p["RouteSettings"] for p in template.of("ApiGatewayV2::Stage").values() if p["StageName"] == "$default"
    ]
    assert set(settings) == set(CALL_ROUTES)
    assert template.function("serve_http")["Timeout"] == 30
    arns = [text(p["SourceArn"]) for p in template.of("Lambda::Permission").values() if "SourceArn" in p]
    for path in ("$default/POST/calls/*", "$default/POST/calls/*/*"):
        assert len([arn for arn in arns if arn.endswith(path)]) == 1


def test_the_functions_know_the_url(stage: Assembly) -> None:
    for verb in ("call_tool", "serve_http"):
        told = stage.main.function(verb)["Environment"]["Variables"]
        assert text(told["HELIX_CALLS_URL"]).endswith("/calls")
    assert "CallsUrl" in stage.main.text["Outputs"]


def test_the_function_may_do_what_the_end_of_a_call_takes(stage: Assembly) -> None:
    template = stage.main
    held: dict[str, set[str]] = {}
    for what, action in rights_of(template, template.role_of(template.function("serve_http"))):
        held.setdefault(what, set()).add(action)
    assert held == {**LINE, "streams": {GET, QUERY, PUT}}


def test_a_stage_without_such_a_tool_has_none_of_it(production: Assembly) -> None:
    assert not [p for p in production.main.of("ApiGatewayV2::Route").values() if "/calls" in p["RouteKey"]]
    assert "HELIX_CALLS_URL" not in production.main.function("call_tool", "prod")["Environment"]["Variables"]
