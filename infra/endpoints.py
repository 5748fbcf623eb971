"""The HTTP API: GET /health, /ready, /live and /metrics, which one function serves, and the routes of runs and the console.

Law: a caller without the token learns only whether the stage is healthy. Seeing costs and faults requires the token, which
the function checks. The token is in the stage's secret, or its hash is in a row. Probes and scrapers send few requests, so
the throttle is low.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from aws_cdk import Aws, CfnParameter, Stack
from aws_cdk import aws_apigatewayv2 as apigatewayv2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_secretsmanager as secretsmanager
from constructs import Construct

from helix.infra.config import Settings
from helix.infra.function import Function
from helix.infra.keys import Keys
from helix.infra.logs import VENDED, log_group
from helix.infra.nag import explain
from helix.infra.names import Names
from helix.infra.sockets import EMULATED

PATHS = ("health", "ready", "live", "metrics")
STAGE = "$default"
"""The API's stage, which is not part of the URL."""
RATE, BURST = 20, 40
"""The throttle for the health routes, in requests per second."""
RUN_ROUTES = ("POST /run", "GET /sessions/{session_id}", "GET /sessions/{session_id}/stream")
RUN_RATE, RUN_BURST = 250, 500
"""The throttle for each run route, in requests per second."""
CALL_ROUTES = ("POST /calls/{token}", "POST /calls/{token}/{how}")
CALL_RATE, CALL_BURST = 100, 200
"""The throttle for each call route, in requests per second. Callers have no login, so guesses are slow."""
CONSOLE_ROUTES = ("GET /console", "GET /console/{file}")
CONSOLE_RATE, CONSOLE_BURST = 50, 100
"""The throttle for each console route, in requests per second. Opening the page takes six requests."""
_PATH_PART = re.compile(r"\{[^}]*\}")
TOKEN_LENGTH = 40
_LOGGED = {
    "route": "$context.routeKey",
    "status": "$context.status",
    "error": "$context.error.message",
    "integration": "$context.integrationErrorMessage",
    "latency": "$context.responseLatency",
    "request": "$context.requestId",
    "time": "$context.requestTime",
}
"""The fields of the access log. It does not contain addresses, headers or content."""


class Endpoints(Construct):
    """The HTTP API of a stage. `endpoint`: the parameter with the emulator's URL; None unless offline. `token`: the
    secret with the bearer token for /metrics; None with `key=aws`."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        settings: Settings,
        names: Names,
        keys: Keys,
        endpoint: CfnParameter | None,
    ) -> None:
        super().__init__(scope, construct_id)
        self._keys, self._endpoint, self._detailed = keys, endpoint, settings.detailed_metrics
        self._route_settings: dict[str, Any] = {}
        self.token = self._token(names, keys.key) if keys.key else None
        self.api = apigatewayv2.CfnApi(
            self,
            "Api",
            name=names.of("health"),
            protocol_type="HTTP",
            description=f"Helix, stage {names.stage}: health, readiness, metrics",
        )
        group = log_group(self, "AccessLogs", f"{VENDED}/apigateway/{names.of('health')}", settings=settings, keys=keys)
        self.stage = apigatewayv2.CfnStage(
            self,
            "Stage",
            api_id=self.api.ref,
            stage_name=STAGE,
            auto_deploy=True,
            access_log_settings=apigatewayv2.CfnStage.AccessLogSettingsProperty(
                destination_arn=group.log_group_arn, format=json.dumps(_LOGGED, separators=(",", ":"))
            ),
            default_route_settings=apigatewayv2.CfnStage.RouteSettingsProperty(
                throttling_rate_limit=RATE,
                throttling_burst_limit=BURST,
                detailed_metrics_enabled=settings.detailed_metrics,
            ),
        )

    def _token(self, names: Names, key: kms.Key) -> secretsmanager.CfnSecret:
        token = secretsmanager.CfnSecret(
            self,
            "Token",
            name=names.of("metrics"),
            description=f"Helix, stage {names.stage}: the bearer token for /metrics",
            kms_key_id=key.key_arn,
            generate_secret_string=secretsmanager.CfnSecret.GenerateSecretStringProperty(
                password_length=TOKEN_LENGTH, exclude_punctuation=True
            ),
        )
        why = "The scraper has the token too, and a scheduled rotation would lock it out. Change both together."
        explain(token, "SMG4", why)
        return token

    @property
    def url(self) -> str:
        """Return the base URL, without a trailing slash."""
        if self._endpoint is not None:
            return f"{self._endpoint.value_as_string}{EMULATED}/{self.api.ref}"
        stack = Stack.of(self)
        return f"https://{self.api.ref}.execute-api.{stack.region}.{stack.url_suffix}"

    @property
    def origin(self) -> str:
        """Return the origin of the pages under `url`."""
        return self.url if self._endpoint is None else self._endpoint.value_as_string

    @property
    def token_arn(self) -> str:
        """Return the ARN of the secret with the token, or "" if the stage has no secret."""
        return str(self.token.attr_id) if self.token else ""

    def grant_token(self, grantee: iam.IGrantable) -> None:
        """Let `grantee` read the token. Without a secret there is nothing to grant."""
        if self.token is None:
            return
        read = ["secretsmanager:GetSecretValue"]
        iam.Grant.add_to_principal(grantee=grantee, actions=read, resource_arns=[self.token_arn])
        self._keys.grant_use(grantee, services=["secretsmanager"], actions=["kms:Decrypt"])

    def serve(self, function: Function) -> None:
        """Route the health paths to `function`."""
        why = "Probes have no credentials and learn only a status. The function requires the token for details."
        routes = {f"GET /{path}": path.capitalize() for path in PATHS}
        self._route("", function, routes, why)

    def serve_runs(self, function: Function) -> None:
        """Route the run paths to `function`."""
        why = "The function checks the token of each request, as the WebSocket API does on $connect."
        routes = dict(zip(RUN_ROUTES, ("Run", "Session", "Stream"), strict=True))
        self._route("Runs", function, routes, why)
        self._throttle(RUN_ROUTES, RUN_RATE, RUN_BURST)

    def serve_calls(self, function: Function) -> None:
        """Route the reports of calls that end elsewhere to `function`."""
        why = "The token in the path is the credential, and the function checks it."
        self._route("Calls", function, dict(zip(CALL_ROUTES, ("EndCall", "ReportCall"), strict=True)), why)
        self._throttle(CALL_ROUTES, CALL_RATE, CALL_BURST)

    def serve_console(self, function: Function) -> None:
        """Route the console paths to `function`."""
        why = "A browser loads the page before the user signs in. The function has no permissions and no secrets."
        self._route("Console", function, dict(zip(CONSOLE_ROUTES, ("Console", "ConsoleFile"), strict=True)), why)
        self._throttle(CONSOLE_ROUTES, CONSOLE_RATE, CONSOLE_BURST)

    def _throttle(self, routes: Sequence[str], rate: int, burst: int) -> None:
        own = {"ThrottlingRateLimit": rate, "ThrottlingBurstLimit": burst, "DetailedMetricsEnabled": self._detailed}
        self._route_settings |= dict.fromkeys(routes, own)
        self.stage.route_settings = self._route_settings

    def _route(self, prefix: str, function: Function, routes: Mapping[str, str], why: str) -> None:
        arn = f"arn:{Aws.PARTITION}:apigateway:{Stack.of(self).region}:lambda:path/2015-03-31/functions"
        integration = apigatewayv2.CfnIntegration(
            self,
            f"{prefix}Integration",
            api_id=self.api.ref,
            integration_type="AWS_PROXY",
            integration_uri=f"{arn}/{function.live.function_arn}/invocations",
            integration_method="POST",
            payload_format_version="2.0",
        )
        for key, name in routes.items():
            route = apigatewayv2.CfnRoute(
                self,
                f"{name}Route",
                api_id=self.api.ref,
                route_key=key,
                authorization_type="NONE",
                target=f"integrations/{integration.ref}",
            )
            explain(route, "APIG4", why)
            self.stage.add_resource_dependency(route)
            lambda_.CfnPermission(
                self,
                f"Invoke{name}",
                action="lambda:InvokeFunction",
                function_name=function.live.function_arn,
                principal="apigateway.amazonaws.com",
                source_arn=Stack.of(self).format_arn(
                    service="execute-api",
                    resource=self.api.ref,
                    resource_name=f"{STAGE}/{_PATH_PART.sub('*', key.replace(' ', ''))}",
                ),
            )
