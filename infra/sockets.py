"""The WebSocket API: an authoriser on $connect, a function for each route, access logs, throttling.

Law: a client is authorised once, on $connect. The principal is then stored in the connection's row, and every action and
every post checks that row. Credentials are read from headers, never from the URL, which is logged.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from aws_cdk import Aws, CfnParameter, Fn, RemovalPolicy, Stack
from aws_cdk import aws_apigateway as apigateway
from aws_cdk import aws_apigatewayv2 as apigatewayv2
from aws_cdk import aws_certificatemanager as acm
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from helix.infra.config import Settings
from helix.infra.function import Function
from helix.infra.keys import Keys
from helix.infra.logs import VENDED, log_group
from helix.infra.nag import explain, explain_resource
from helix.infra.names import Names

ROUTES = {"$connect": "ws_connect", "$disconnect": "ws_disconnect", "$default": "ws_message"}
AUTHORIZER = "ws_authorize"
MAX_BURST = 5_000
"""The account's quota: https://docs.aws.amazon.com/apigateway/latest/developerguide/limits.html"""
CONNECT_RATE, CONNECT_BURST = 250, 500
"""The throttle for new connections, per second. It is separate from the message throttle, so that many clients that connect
at once do not use that up. The account's quota is 500 per second in each region
(https://docs.aws.amazon.com/apigateway/latest/developerguide/apigateway-execution-service-websocket-limits-table.html)."""
EMULATED = "/_aws/execute-api"
"""The path of the APIs under the emulator's endpoint."""
_LOGGED = {
    "connection": "$context.connectionId",
    "event": "$context.eventType",
    "route": "$context.routeKey",
    "status": "$context.status",
    "error": "$context.error.message",
    "integration": "$context.integrationErrorMessage",
    "request": "$context.requestId",
    "time": "$context.requestTime",
}
"""The fields of the access log. It does not contain addresses, headers or content."""


@dataclass(frozen=True, slots=True)
class Domain:
    """The domain that clients connect to, besides API Gateway's own address."""

    name: str
    """The host name: clients connect to `wss://NAME`."""
    certificate: acm.ICertificate
    """The certificate of the domain, in the region of the stack."""


class Sockets(Construct):
    """The WebSocket API of a stage. `endpoint`: the parameter with the emulator's URL; None unless offline. `domain`:
    the domain for clients; functions post to API Gateway's own address."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        settings: Settings,
        names: Names,
        keys: Keys,
        domain: Domain | None = None,
    ) -> None:
        super().__init__(scope, construct_id)
        self._stage_name = names.stage
        self.domain: apigatewayv2.DomainName | None = None
        self.endpoint = (
            CfnParameter(Stack.of(self), "Endpoint", default=settings.endpoint, description="The URL of the emulator")
            if settings.offline
            else None
        )
        self.api = apigatewayv2.CfnApi(
            self,
            "Api",
            name=names.of("sockets"),
            protocol_type="WEBSOCKET",
            route_selection_expression="$request.body.action",
            description=f"Helix, stage {names.stage}: runs, streams and sessions",
        )
        group = log_group(
            self, "AccessLogs", f"{VENDED}/apigateway/{names.of('sockets')}", settings=settings, keys=keys
        )
        detailed = settings.detailed_metrics
        self.stage = apigatewayv2.CfnStage(
            self,
            "Stage",
            api_id=self.api.ref,
            stage_name=self._stage_name,
            auto_deploy=True,
            access_log_settings=apigatewayv2.CfnStage.AccessLogSettingsProperty(
                destination_arn=group.log_group_arn, format=json.dumps(_LOGGED, separators=(",", ":"))
            ),
            default_route_settings=apigatewayv2.CfnStage.RouteSettingsProperty(
                throttling_rate_limit=settings.socket_messages,
                throttling_burst_limit=min(2 * settings.socket_messages, MAX_BURST),
                detailed_metrics_enabled=detailed,
            ),
            # CDK passes this map on unchanged, so the keys are CloudFormation's.
            route_settings={
                "$connect": {
                    "ThrottlingRateLimit": CONNECT_RATE,
                    "ThrottlingBurstLimit": CONNECT_BURST,
                    "DetailedMetricsEnabled": detailed,
                }
            },
        )
        if domain is not None and self.endpoint is None:
            self.domain = apigatewayv2.DomainName(
                self,
                "Domain",
                domain_name=domain.name,
                certificate=domain.certificate,
                security_policy=apigatewayv2.SecurityPolicy.TLS_1_2,
            )
            mapping = {"api_id": self.api.ref, "domain_name": self.domain.name, "stage": self.stage.ref}
            apigatewayv2.CfnApiMapping(self, "Mapping", **mapping)
        if settings.api_log_role:
            self.stage.node.add_dependency(self._account_log_role())

    @property
    def management_url(self) -> str:
        """Return the URL that functions use to post to connections."""
        if self.endpoint is not None:
            return f"{self.endpoint.value_as_string}{EMULATED}/{self.api.ref}/{self._stage_name}"
        return f"https://{self._host}/{self._stage_name}"

    @property
    def url(self) -> str:
        """Return the URL that clients connect to."""
        if self.endpoint is not None:
            host = Fn.select(1, Fn.split("://", self.endpoint.value_as_string))
            return f"ws://{host}{EMULATED}/{self.api.ref}/{self._stage_name}"
        if self.domain is not None:
            return f"wss://{self.domain.name}"
        return f"wss://{self._host}/{self._stage_name}"

    def grant_post(self, grantee: iam.IGrantable) -> None:
        """Let `grantee` post to connections."""
        arn = self._arn(f"{self._stage_name}/POST/@connections/*")
        iam.Grant.add_to_principal(grantee=grantee, actions=["execute-api:ManageConnections"], resource_arns=[arn])
        explain_resource(grantee, arn, "API Gateway names connections when they open.")

    def serve(self, functions: Mapping[str, Function]) -> None:
        """Connect the API's routes and authoriser to the functions, which are given by verb."""
        authorizer = apigatewayv2.CfnAuthorizer(
            self,
            "Authorizer",
            api_id=self.api.ref,
            name=AUTHORIZER,
            authorizer_type="REQUEST",
            authorizer_uri=self._invocation(functions[AUTHORIZER]),
            # There is no identity source, because API Gateway refuses a request that lacks any of the named headers. A
            # client sends its credentials in Authorization, or in Sec-WebSocket-Protocol if it is a browser.
        )
        self._allow_invocation(functions[AUTHORIZER], f"authorizers/{authorizer.ref}")
        routes = [self._route(key, functions[verb], authorizer) for key, verb in ROUTES.items()]
        for route in routes:
            self.stage.add_resource_dependency(route)

    def _route(self, key: str, function: Function, authorizer: apigatewayv2.CfnAuthorizer) -> apigatewayv2.CfnRoute:
        name = key.removeprefix("$").capitalize()
        integration = apigatewayv2.CfnIntegration(
            self,
            f"{name}Integration",
            api_id=self.api.ref,
            integration_type="AWS_PROXY",
            integration_uri=self._invocation(function),
        )
        self._allow_invocation(function, f"{self._stage_name}/{key}")
        connects = key == "$connect"
        route = apigatewayv2.CfnRoute(
            self,
            f"{name}Route",
            api_id=self.api.ref,
            route_key=key,
            authorization_type="CUSTOM" if connects else "NONE",
            authorizer_id=authorizer.ref if connects else None,
            target=f"integrations/{integration.ref}",
        )
        if not connects:
            why = (
                "API Gateway authorises a WebSocket on $connect only; ws_message checks the connection's row each time."
            )
            explain(route, "APIG4", why)
        return route

    def _allow_invocation(self, function: Function, path: str) -> None:
        """Let API Gateway invoke `function` for one route of this API only, or as its authoriser."""
        lambda_.CfnPermission(
            self,
            f"Invoke{function.node.id}",
            action="lambda:InvokeFunction",
            function_name=function.live.function_arn,
            principal="apigateway.amazonaws.com",
            source_arn=self._arn(path),
        )

    def _invocation(self, function: Function) -> str:
        stack = Stack.of(self)
        arn = f"arn:{Aws.PARTITION}:apigateway:{stack.region}:lambda:path/2015-03-31/functions"
        return f"{arn}/{function.live.function_arn}/invocations"

    @property
    def _host(self) -> str:
        stack = Stack.of(self)
        return f"{self.api.ref}.execute-api.{stack.region}.{stack.url_suffix}"

    def _arn(self, path: str) -> str:
        arn: str = Stack.of(self).format_arn(service="execute-api", resource=self.api.ref, resource_name=path)
        return arn

    def _account_log_role(self) -> apigateway.CfnAccount:
        """Set the role that API Gateway uses to write logs. An account has only one such role. It outlives the stack,
        because other stacks may use it."""
        role = iam.Role(
            self,
            "LogRole",
            assumed_by=iam.ServicePrincipal("apigateway.amazonaws.com"),
            managed_policies=[
                iam.ManagedPolicy.from_aws_managed_policy_name("service-role/AmazonAPIGatewayPushToCloudWatchLogs")
            ],
        )
        role.apply_removal_policy(RemovalPolicy.RETAIN)
        policy = "arn:<AWS::Partition>:iam::aws:policy/service-role/AmazonAPIGatewayPushToCloudWatchLogs"
        explain(role, f"IAM4[Policy::{policy}]", "AWS provides this policy for exactly this role of the account.")
        account = apigateway.CfnAccount(self, "Account", cloud_watch_role_arn=role.role_arn)
        account.apply_removal_policy(RemovalPolicy.RETAIN)
        return account
