"""Record the calls of a function process's AWS clients, as the rights that they need.

Law: a worker of the offline cloud loads this file by its path (`OFFLINE_RECORDER`) before the function's code, so it
imports nothing of the project. At the first call of each kind, before the call is sent, it appends a line of JSON to the
folder `OFFLINE_CALLS`. So denied calls are recorded, and those of a process that dies. Resources that are not the stage's
own are left out.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

FOLDER = "OFFLINE_CALLS"
ITEMS = {"Put": "PutItem", "Update": "UpdateItem", "Delete": "DeleteItem", "ConditionCheck": "ConditionCheckItem"}
TABLES = ("sessions", "streams", "control")
OBJECTS = {
    "GetObject": "GetObject",
    "HeadObject": "GetObject",
    "PutObject": "PutObject",
    "DeleteObject": "DeleteObject",
    "DeleteObjects": "DeleteObject",
}
OTHERS = {
    ("kinesis", "PutRecord"): ("chunks", "kinesis:PutRecord"),
    ("kinesis", "PutRecords"): ("chunks", "kinesis:PutRecords"),
    ("states", "StartExecution"): ("machines", "states:StartExecution"),
    ("states", "DescribeExecution"): ("executions", "states:DescribeExecution"),
    ("states", "StopExecution"): ("executions", "states:StopExecution"),
    ("states", "SendTaskSuccess"): ("tokens", "states:SendTaskSuccess"),
    ("states", "SendTaskFailure"): ("tokens", "states:SendTaskFailure"),
    ("apigatewaymanagementapi", "PostToConnection"): ("connections", "execute-api:ManageConnections"),
    ("apigatewaymanagementapi", "DeleteConnection"): ("connections", "execute-api:ManageConnections"),
    ("cloudwatch", "GetMetricData"): ("metrics", "cloudwatch:GetMetricData"),
    ("logs", "FilterLogEvents"): ("logs", "logs:FilterLogEvents"),
}
"""The resource and the action of each service and operation. The resource has one name per stage."""


def arm() -> None:
    from botocore.client import BaseClient

    function, folder = os.environ["AWS_LAMBDA_FUNCTION_NAME"], Path(os.environ[FOLDER])
    folder.mkdir(parents=True, exist_ok=True)
    seen: set[tuple[str, str]] = set()
    send = BaseClient._make_api_call

    def recorded(client: Any, operation: str, request: Mapping[str, Any]) -> Any:
        service = client.meta.service_model.service_name
        for what, action in rights_of(service, operation, request, os.environ):
            if (what, action) not in seen:
                seen.add((what, action))
                with (folder / f"{function}.jsonl").open("a") as lines:
                    lines.write(json.dumps({"function": function, "what": what, "action": action}) + "\n")
        return send(client, operation, request)

    BaseClient._make_api_call = recorded


def rights_of(
    service: str, operation: str, request: Mapping[str, Any], variables: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    """Return (what, action) pairs as in `tests/e2e/iam_roles.py`. `variables` have the names of the stage's resources."""
    if service == "dynamodb":
        tables = {variables.get(f"HELIX_{table.upper()}_TABLE"): table for table in TABLES}
        for name, action in _of_tables(operation, request):
            if name in tables:
                yield tables[name], f"dynamodb:{action}"
    elif service == "s3" and request.get("Bucket") == variables.get("HELIX_BUCKET"):
        keys = [request.get("Key", ""), *(one["Key"] for one in request.get("Delete", {}).get("Objects", ()))]
        if operation in OBJECTS:
            for folder in {key.partition("/")[0] for key in keys if key}:
                yield {"overflow": "objects", "blobs": "files"}.get(folder, folder), f"s3:{OBJECTS[operation]}"
        else:
            yield "bucket", "s3:ListBucket" if operation == "ListObjectsV2" else f"s3:{operation}"
    elif service == "sqs" and "QueueUrl" in request:
        yield (
            {"trigger-failures": "failures"}.get(_end(request["QueueUrl"]), _end(request["QueueUrl"])),
            f"sqs:{operation}",
        )
    elif service == "sns" and request.get("TopicArn") == variables.get("HELIX_NOTICES"):
        yield "notices", f"sns:{operation}"
    elif (service, operation) == ("lambda", "Invoke"):
        yield request["FunctionName"].partition(":")[0].rpartition("-")[2], "lambda:InvokeFunction"
    elif service == "lambda" and "ProvisionedConcurrency" in operation:
        yield "aliases", f"lambda:{operation}"
    elif service == "secretsmanager" and request.get("SecretId") == variables.get("HELIX_METRICS_SECRET"):
        yield "token", f"secretsmanager:{operation}"
    else:
        found = OTHERS.get((service.replace("stepfunctions", "states"), operation))
        if found is not None:
            yield found


def _of_tables(operation: str, request: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Return pairs of a table and an action without its service."""
    if operation in ("TransactWriteItems", "TransactGetItems"):
        for item in request["TransactItems"]:
            for kind, one in item.items():
                yield one["TableName"], "GetItem" if kind == "Get" else ITEMS[kind]
    elif "RequestItems" in request:
        for table in request["RequestItems"]:
            yield table, operation
    else:
        yield request.get("TableName", ""), operation


def _end(url: str) -> str:
    """Return the name of a queue without that of its stage."""
    return url.rpartition("/")[2].split("-", 2)[-1]
