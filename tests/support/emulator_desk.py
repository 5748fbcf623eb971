"""A desk at an emulator without a deployment: functions, machines, sockets and streams are made by hand."""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import os
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config
from websockets.sync.client import connect

from helix.local.process import Emulator

ACCOUNT, REGION = "000000000000", "us-east-1"
PATIENCE_S = 30.0
HANDLER = """
import json, os, time

class WorkInProgressError(Exception):
    pass

seen = {}

def handler(event, context):
    if event.get("type") == "REQUEST":  # the authorizer of a WebSocket API
        offered = {name.lower(): value for name, value in event["headers"].items()}.get("sec-websocket-protocol")
        allow = {"Action": "*", "Effect": "Allow" if offered else "Deny", "Resource": event["methodArn"]}
        return {"principalId": "ada", "policyDocument": {"Version": "2012-10-17", "Statement": [allow]}}
    do = event.get("do")
    if "Records" in event:  # of a stream: those that say so fail once
        own = lambda r: r["kinesis"]["partitionKey"] if "kinesis" in r else r["dynamodb"]["Keys"]["pk"]["S"]
        keys = [own(record) for record in event["Records"]]
        print("batch", json.dumps(keys), flush=True)
        failed = [r["eventID"] for r, key in zip(event["Records"], keys) if key == "once"]
        first = not seen.setdefault("failed", False) and failed
        seen["failed"] = seen["failed"] or bool(failed)
        return {"batchItemFailures": [{"itemIdentifier": first[0]}] if first else []}
    if "requestContext" in event:  # of a WebSocket route
        kind = event["requestContext"]["eventType"]
        print("route", kind, event["requestContext"]["connectionId"], flush=True)
        if kind == "CONNECT":
            offered = {name.lower(): value for name, value in event["headers"].items()}.get("sec-websocket-protocol")
            return {"statusCode": 200, "headers": {"Sec-WebSocket-Protocol": offered.split(",")[0]} if offered else {}}
        if kind == "MESSAGE":
            print("body", len(event["body"].encode()), flush=True)
        if kind == "MESSAGE" and event["body"].startswith("["):
            print("nested", event["requestContext"]["routeKey"], len(event["body"]), flush=True)
        if event.get("body") == "fail":
            raise WorkInProgressError("a secret")
        return {"statusCode": 200, "body": "nobody asked"}
    if do == "raise":
        raise WorkInProgressError("later")
    if do == "big":
        return "x" * 300_000
    if do == "sleep":
        time.sleep(event["seconds"])
    if do == "call":
        import boto3
        done = boto3.client("lambda").invoke(FunctionName=event["of"], Payload="{}")
        return json.loads(done["Payload"].read())
    if do == "exit":
        os._exit(3)
    if do == "environment":
        return os.environ[event["name"]]
    return {"pid": os.getpid()}
"""


class Desk:
    """The tools of a check: an emulator, clients of it, and the lines that functions have logged."""

    def __init__(self, emulator: Emulator) -> None:
        self.emulator, self.lines = emulator, list[dict[str, Any]]()
        self._names = itertools.count(1)
        self._clients: dict[str, Any] = {}
        emulator.listen(self.lines.append)

    def client(self, service: str, **more: Any) -> Any:
        """Return a client of boto3, as the administrator unless `more` says otherwise."""
        if service in self._clients and not more:
            return self._clients[service]
        given = {
            **self.emulator.credentials.options,
            "endpoint_url": self.emulator.url,
            "config": Config(retries={"total_max_attempts": 1}, read_timeout=60),
            **more,
        }
        made = boto3.client(service, region_name=REGION, **given)
        return made if more else self._clients.setdefault(service, made)

    def name(self) -> str:
        return f"check-{next(self._names)}"

    def role(self) -> str:
        name, trust = self.name(), {"Effect": "Allow", "Principal": {"Service": "*"}, "Action": "sts:AssumeRole"}
        iam = self.client("iam")
        document = json.dumps({"Version": "2012-10-17", "Statement": [trust]})
        arn: str = iam.create_role(RoleName=name, AssumeRolePolicyDocument=document)["Role"]["Arn"]
        allow = {"Effect": "Allow", "Action": "*", "Resource": "*"}
        policy = json.dumps({"Version": "2012-10-17", "Statement": [allow]})
        iam.put_role_policy(RoleName=name, PolicyName="all", PolicyDocument=policy)
        return arn

    def function(self, timeout: int = 30, **variables: str) -> str:
        """Create a function that runs `HANDLER`, and return its name."""
        name, packed = self.name(), io.BytesIO()
        with zipfile.ZipFile(packed, "w") as package:
            package.writestr("handler.py", HANDLER)
        self.client("lambda").create_function(
            FunctionName=name,
            Runtime="python3.13",
            Role=self.role(),
            Handler="handler.handler",
            Code={"ZipFile": packed.getvalue()},
            Timeout=timeout,
            Environment={"Variables": variables},
        )
        return name

    def invoke(self, function: str, **event: Any) -> tuple[Any, str | None]:
        """Invoke a function. Return (answer, errorType)."""
        done = self.client("lambda").invoke(FunctionName=function, Payload=json.dumps(event))
        answer = json.loads(done["Payload"].read())
        return (None, answer["errorType"]) if "FunctionError" in done else (answer, None)

    def execute(self, states: dict[str, Any], start: str, given: Any = None) -> dict[str, Any]:
        """Execute these states. Return the description of the execution once it has ended."""
        machine = self.client("stepfunctions").create_state_machine(
            name=self.name(), roleArn=self.role(), definition=json.dumps({"StartAt": start, "States": states})
        )
        client = self.client("stepfunctions")
        arn = client.start_execution(stateMachineArn=machine["stateMachineArn"], input=json.dumps(given or {}))
        ended: dict[str, Any] = until(
            lambda: (d := client.describe_execution(executionArn=arn["executionArn"]))["status"] != "RUNNING" and d
        )
        return ended

    def events(self, execution: dict[str, Any]) -> list[dict[str, Any]]:
        pages = self.client("stepfunctions").get_paginator("get_execution_history")
        found = pages.paginate(executionArn=execution["executionArn"])
        return [event for page in found for event in page["events"]]

    def connection_id(self) -> str:
        """Return the id of the newest connection from the log of its $connect."""
        prefix = "route CONNECT "
        said = until(lambda: [line["line"] for line in list(self.lines) if line["line"].startswith(prefix)])
        return str(said[-1]).removeprefix(prefix)

    @contextlib.contextmanager
    def socket(self, authorizer: bool = False, **options: Any) -> Iterator[Any]:
        """Open a connection to a WebSocket API whose routes are the function's. The `authorizer` is asked on $connect, and
        names no identity source."""
        gateway, function = self.client("apigatewayv2"), self.function()
        api = gateway.create_api(Name=self.name(), ProtocolType="WEBSOCKET", RouteSelectionExpression="$request.body.x")
        arn = f"arn:aws:lambda:{REGION}:{ACCOUNT}:function:{function}"
        uri = f"arn:aws:apigateway:{REGION}:lambda:path/2015-03-31/functions/{arn}/invocations"
        integration = gateway.create_integration(
            ApiId=api["ApiId"], IntegrationType="AWS_PROXY", IntegrationUri=uri, IntegrationMethod="POST"
        )
        target = f"integrations/{integration['IntegrationId']}"
        custom = {}
        if authorizer:  # by CloudFormation, because the API itself requires a source
            properties = {"ApiId": api["ApiId"], "AuthorizerType": "REQUEST", "AuthorizerUri": uri, "Name": "desk"}
            resource = {"Type": "AWS::ApiGatewayV2::Authorizer", "Properties": properties}
            cloud, stack = self.client("cloudformation"), self.name()
            cloud.create_stack(StackName=stack, TemplateBody=json.dumps({"Resources": {"Authorizer": resource}}))
            (made,) = until(lambda: gateway.get_authorizers(ApiId=api["ApiId"])["Items"])
            custom = {"AuthorizationType": "CUSTOM", "AuthorizerId": made["AuthorizerId"]}
        gateway.create_route(ApiId=api["ApiId"], RouteKey="$connect", Target=target, **custom)
        gateway.create_route(ApiId=api["ApiId"], RouteKey="$default", Target=target)
        gateway.create_stage(ApiId=api["ApiId"], StageName="dev", AutoDeploy=True)
        path = f"/_aws/execute-api/{api['ApiId']}/dev"
        with connect(f"ws://127.0.0.1:{self.emulator.port}{path}", proxy=None, **options) as socket:
            socket.path = path
            yield socket


def until(found: Callable[[], Any], patience_s: float = PATIENCE_S) -> Any:
    ends = time.monotonic() + patience_s
    while not (value := found()):
        assert time.monotonic() < ends, "it does not happen"
        time.sleep(0.02)
    return value


def task(function: str, **more: Any) -> dict[str, Any]:
    given = {"FunctionName": function, "Payload.$": "$"}
    return {"Type": "Task", "Resource": "arn:aws:states:::lambda:invoke", "Parameters": given, "End": True, **more}


@contextlib.contextmanager
def started(folder: Path, **options: Any) -> Iterator[Desk]:
    emulator = Emulator(folder, wait_scale=0, environment=os.environ, **options)
    desk = Desk(emulator)
    emulator.start()
    try:
        yield desk
    finally:
        emulator.close()
