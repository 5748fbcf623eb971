"""The two APIs: sockets for clients, and endpoints for the health of the stage."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.infra.templates import Assembly, Template, text

pytestmark = pytest.mark.timeout(400)  # the first test waits for the synthesis


def of_api(template: Template, protocol: str, type_: str) -> dict[str, dict[str, Any]]:
    """Return the resources of that type which belong to the API with that protocol."""
    api = template.id_of("ApiGatewayV2::Api", ProtocolType=protocol)
    return {id_: p for id_, p in template.of(f"ApiGatewayV2::{type_}").items() if p["ApiId"] == {"Ref": api}}


def stage_of(template: Template, protocol: str) -> tuple[str, dict[str, Any]]:
    (stage,) = of_api(template, protocol, "Stage").items()
    return stage


def throttle(stage: dict[str, Any]) -> tuple[int, int]:
    settings = stage["DefaultRouteSettings"]
    return settings["ThrottlingRateLimit"], settings["ThrottlingBurstLimit"]


def says_nothing_of_anybody(stage: dict[str, Any]) -> bool:
    logged = json.loads(stage["AccessLogSettings"]["Format"])
    private = ("header", "querystring", "sourceip", "useragent")
    return not [value for value in logged.values() if any(word in value.lower() for word in private)]


@pytest.mark.parametrize("protocol", ["WEBSOCKET", "HTTP"])
def test_routes_are_there_before_the_stage_deploys_them(deployed: Assembly, protocol: str) -> None:
    template = deployed.main
    id_, _ = stage_of(template, protocol)
    assert set(of_api(template, protocol, "Route")) <= set(template.resources[id_]["DependsOn"])


def test_sockets_are_authorised_on_connect_throttled_and_logged(deployed: Assembly) -> None:
    template = deployed.main
    routes = {route["RouteKey"]: route for route in of_api(template, "WEBSOCKET", "Route").values()}
    authorizer = template.one("ApiGatewayV2::Authorizer")
    assert authorizer["AuthorizerType"] == "REQUEST"
    assert "IdentitySource" not in authorizer, "API Gateway would ask for all of them; a client sends one"
    assert {key: route["AuthorizationType"] for key, route in routes.items()} == {
        "$connect": "CUSTOM",
        "$disconnect": "NONE",
        "$default": "NONE",
    }
    assert routes["$connect"]["AuthorizerId"] == {"Ref": template.id_of("ApiGatewayV2::Authorizer")}
    integrations = of_api(template, "WEBSOCKET", "Integration")
    verbs = {"$connect": "ws_connect", "$disconnect": "ws_disconnect", "$default": "ws_message"}
    for key, verb in verbs.items():
        (called,) = [i for id_, i in integrations.items() if f"<{id_}>" in text(routes[key]["Target"])]
        assert f"functions/<{template.alias_of(template.function(verb))}>/invocations" in text(called["IntegrationUri"])
    _, stage = stage_of(template, "WEBSOCKET")
    assert stage["StageName"] == "dev" and stage["AutoDeploy"] is True
    assert throttle(stage) == (500, 1000)
    connects = stage["RouteSettings"].pop("$connect")
    assert not stage["RouteSettings"]
    assert (connects["ThrottlingRateLimit"], connects["ThrottlingBurstLimit"]) == (250, 500)
    assert says_nothing_of_anybody(stage)


def test_a_stage_chooses_how_many_messages_clients_may_send(production: Assembly) -> None:
    """An account has a burst of 5,000: https://docs.aws.amazon.com/apigateway/latest/developerguide/limits.html"""
    assert throttle(stage_of(production.main, "WEBSOCKET")[1]) == (4000, 5000)


def test_the_role_for_logs_belongs_to_the_account(deployed: Assembly, production: Assembly) -> None:
    """It does not belong to a stack. By default no stack has one, and a role that a stack has set stays when the stack or
    the setting is removed."""
    kinds = ("ApiGateway::Account", "IAM::Role")
    assert not production.main.of(kinds[0])
    roles = [id_ for kind in kinds for id_ in deployed.main.of(kind) if "LogRole" in id_ or kind == kinds[0]]
    assert len(roles) == 2
    for id_ in roles:
        resource = deployed.main.resources[id_]
        assert resource["DeletionPolicy"] == resource["UpdateReplacePolicy"] == "Retain"


def test_endpoints_lead_to_health_throttled_and_logged(deployed: Assembly) -> None:
    template = deployed.main
    routes = of_api(template, "HTTP", "Route")
    assert {r["RouteKey"] for r in routes.values()} == {f"GET /{p}" for p in ("health", "ready", "live", "metrics")}
    ((id_, integration),) = of_api(template, "HTTP", "Integration").items()
    assert {text(route["Target"]) for route in routes.values()} == {f"integrations/<{id_}>"}
    health = template.alias_of(template.function("health"))
    assert f"functions/<{health}>/invocations" in text(integration["IntegrationUri"])
    assert (integration["IntegrationType"], integration["PayloadFormatVersion"]) == ("AWS_PROXY", "2.0")
    invoke = [p for p in template.of("Lambda::Permission").values() if p["FunctionName"] == {"Ref": health}]
    api = template.id_of("ApiGatewayV2::Api", ProtocolType="HTTP")
    assert {text(p["SourceArn"]).partition(f"<{api}>")[2] for p in invoke} == {
        f"/$default/{r['RouteKey'].replace(' /', '/')}" for r in routes.values()
    }
    _, stage = stage_of(template, "HTTP")
    assert stage["StageName"] == "$default" and stage["AutoDeploy"] is True, "the stage's name is not in the URL"
    assert stage["DefaultRouteSettings"]["ThrottlingRateLimit"] == 20
    assert says_nothing_of_anybody(stage)


def test_the_figures_are_for_who_has_the_token(deployed: Assembly) -> None:
    """The right to read the secret is the right to the figures. AWS generates the secret, and no template has its value."""
    secret = deployed.main.one("SecretsManager::Secret")
    assert secret["Name"] == "helix-dev-metrics" and "SecretString" not in secret
    assert secret["GenerateSecretString"] == {"ExcludePunctuation": True, "PasswordLength": 40}


def test_metrics_for_each_route_are_chosen(deployed: Assembly, production: Assembly) -> None:
    for assembly, chosen in ((deployed, False), (production, True)):
        for kind in ("WEBSOCKET", "HTTP"):
            _, stage = stage_of(assembly.main, kind)
            routes = [stage["DefaultRouteSettings"], *stage.get("RouteSettings", {}).values()]
            assert {route["DetailedMetricsEnabled"] for route in routes} == {chosen}
