"""Corrections to MiniStack. Where Helix relies on AWS behavior that MiniStack lacks, a function here corrects it.

Law: each function corrects one difference. Its name and docstring describe how AWS behaves. The version of MiniStack is
pinned, and `tests/integration/test_emulator.py` fails if a correction does not work or is no longer needed.
docs/guide/offline.md lists the differences that remain.
"""

from __future__ import annotations

import contextvars
import json
import os
import re
import threading
from collections.abc import Callable, Collection, Mapping
from functools import lru_cache
from typing import Any
from urllib.parse import unquote

from ministack import app
from ministack.core import iam_actions, iam_evaluator, lambda_runtime
from ministack.services import apigateway, cloudformation, dynamodb, lambda_svc, stepfunctions, sts
from ministack.services.cloudformation import provisioners

from helix.adapters.system import SystemIds
from helix.local import corrections_alarms, corrections_logs, corrections_schedules, corrections_sockets
from helix.local.corrections_alarms import Corrections
from helix.local.corrections_sockets import SOCKET_MESSAGE
from helix.local.pool import Pool
from helix.local.workers import Code
from helix.ports.ids import RANDOM, new_secret

VERSION = "1.5.33"
STATE_PAYLOAD = 256 * 1024
HISTORY_EVENTS = 25_000
CORRECTIONS = Corrections()
_NOT_THE_FUNCTION_S = frozenset({"AWS_ENDPOINT_URL"})


def apply(pool: Pool, without: Collection[str] = ()) -> None:
    """Apply the corrections. Call this once, before the first request. `without`: the names of corrections to leave out, in
    order to see MiniStack's own behavior."""
    for correct in list_corrections(pool):
        if correct.__name__ not in without:
            correct()


def list_corrections(pool: Pool) -> list[Callable[[], None]]:
    """Return all corrections in the order in which they are applied."""

    def functions_run_in_the_pool() -> None:
        run_functions_in(pool)

    others = (corrections_alarms, corrections_schedules, corrections_sockets, corrections_logs)
    more = [correct for module in others for correct in module.CORRECTIONS]
    return [functions_run_in_the_pool, *CORRECTIONS, *more]


# --- Lambda --------------------------------------------------------------------------------------------------------------


def run_functions_in(pool: Pool) -> None:
    """Run functions in `pool`. An error is named after its class and does not end the environment. Logs are written while
    the function runs, even for WebSocket routes. Each concurrent invocation has its own environment."""

    def execute(func: Mapping[str, Any], event: Any, request_id: str) -> dict[str, Any]:
        config = func.get("config") or func
        code = code_of(func)
        reply = pool.invoke(
            code,
            lambda_runtime.execution_credentials(config),
            event,
            request_id,
            config.get("FunctionArn", ""),
            float(config.get("Timeout", 3)),
        )
        log = "\n".join(reply.log)
        if reply.error is None:
            return {"body": reply.result, "log": log}
        line = f"[ERROR] {reply.error['errorType']}: {reply.error['errorMessage']}"
        pool.write_log(code, request_id, event, line)
        return {"body": reply.error, "error": True, "log": "\n".join(filter(None, [log, line]))}

    def worker(name: str, config: Mapping[str, Any], code_zip: bytes, qualifier: str = "$LATEST") -> Any:
        return _SocketWorker({"config": config, "code_zip": code_zip})

    lambda_svc._execute_function_warm = execute
    lambda_runtime.get_or_create_worker = worker


class _SocketWorker:
    """A worker for `ministack.services.apigateway`, which runs its invocations in the same way as all others."""

    def __init__(self, func: Mapping[str, Any]) -> None:
        self._func = func

    def invoke(self, event: Any, request_id: str) -> dict[str, Any]:
        done = lambda_svc._execute_function_with_config_scope(self._func, event)
        if done.get("error"):
            return {"status": "error", "error": json.dumps(done.get("body"))}
        return {"status": "ok", "result": done.get("body")}


def code_of(func: Mapping[str, Any]) -> Code:
    """Return the code for a function's record, which may describe a published version."""
    config = func.get("config") or func
    layers = (lambda_svc._resolve_layer_zip(layer) for layer in config.get("Layers", []))
    own = config.get("Environment", {}).get("Variables", {})
    return Code(
        function=config["FunctionName"],
        version=config.get("Version", "$LATEST"),
        handler=config["Handler"],
        zips=(func["code_zip"], *(layer for layer in layers if layer)),
        environment={
            **{name: value for name, value in own.items() if name not in _NOT_THE_FUNCTION_S},
            "AWS_REGION": config["FunctionArn"].split(":")[3],
            "AWS_DEFAULT_REGION": config["FunctionArn"].split(":")[3],
        },
        memory_mb=int(config.get("MemorySize", 128)),
    )


@CORRECTIONS.replaces(lambda_runtime, "execution_credentials")
def workers_have_random_credentials(make: Any, config: Mapping[str, Any]) -> dict[str, str]:
    """Give a function session credentials for its role with a random secret. MiniStack derives the secret from the names of
    the function and the role, which are public. Without IAM enforcement it uses the account number as the access key."""

    if not app.AUTH:
        root = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
        return {**{name: os.environ[name] for name in root}, "AWS_SESSION_TOKEN": ""}
    with _giving_out:  # the lock also covers the names, because two concurrent invocations register the same key
        known: dict[str, str] = make(config)
        session = sts._sessions.pop(known["AWS_ACCESS_KEY_ID"])
        key = f"{config['FunctionArn']}:{config.get('Role', '')}"
        ids = SystemIds()
        given = _given_out.setdefault(key, (f"ASIA{new_secret(ids)[:RANDOM]}", new_secret(ids), new_secret(ids)))
        sts.register_session(given[0], {**session, "SecretAccessKey": given[1], "SessionToken": given[2]})
    return dict(zip(known, given, strict=True))


_giving_out = threading.Lock()
_given_out: dict[str, tuple[str, str, str]] = {}


# --- Step Functions --------------------------------------------------------------------------------------------------


@CORRECTIONS.replaces(stepfunctions, "_invoke_with_callback")
def errors_of_token_tasks_fail_them(
    otherwise: Any, resource: str, data: Mapping[str, Any], token: str, state: Mapping[str, Any]
) -> Any:
    """Fail a `waitForTaskToken` task when its function fails, so that its Retry and Catch apply. MiniStack keeps
    waiting for the token."""

    if "states:::lambda:invoke" not in resource:
        return otherwise(resource, data, token, state)
    tokens = stepfunctions._task_tokens
    seconds, done = state.get("TimeoutSeconds", 99_999), threading.Event()
    tokens[token] = {"event": done, "result": None, "error": None, "heartbeat": None}
    try:
        function = stepfunctions._resolve_lambda_function_ref(data.get("FunctionName", ""), optimized=True)
        stepfunctions._call_lambda(function, data.get("Payload", data))
        if not done.wait(seconds):
            raise stepfunctions._ExecutionError("States.Timeout", f"Task timed out after {seconds} seconds")
        reply = tokens[token]
    finally:
        tokens.pop(token, None)
    if reply["error"] is not None:
        raise stepfunctions._ExecutionError(reply["error"]["Error"], reply["error"]["Cause"])
    return json.loads(reply["result"])


@CORRECTIONS.add
def payloads_have_a_limit() -> None:
    """Limit the input of an execution and the output of a task to 256 KB."""
    call, start = stepfunctions._call_lambda, stepfunctions._start_execution

    def limited_call(function: str, event: Any) -> Any:
        result = call(function, event)
        if len(json.dumps(result).encode()) > STATE_PAYLOAD:
            cause = f"The state/task {function!r} returned a result with a size exceeding the maximum number of bytes."
            raise stepfunctions._ExecutionError("States.DataLimitExceeded", cause)
        return result

    def limited_start(data: Mapping[str, Any]) -> Any:
        if len(data.get("input", "").encode()) > STATE_PAYLOAD:
            message = f"Input exceeds the maximum of {STATE_PAYLOAD} bytes"
            return stepfunctions.error_response_json("InvalidExecutionInput", message, 400)
        return start(data)

    stepfunctions._call_lambda = limited_call
    stepfunctions._start_execution = limited_start


@CORRECTIONS.replaces(stepfunctions, "_add_event")
def histories_have_a_limit(add: Any, execution: dict[str, Any], event_type: str, details: Any = None) -> Any:
    """Fail an execution at 25,000 events."""

    if len(execution["events"]) >= HISTORY_EVENTS and not event_type.startswith("Execution"):
        message = f"The execution reached the maximum number of history events ({HISTORY_EVENTS})."
        raise stepfunctions._ExecutionError("States.Runtime", message)
    return add(execution, event_type, details)


@CORRECTIONS.replaces(stepfunctions, "_run_sub_machine")
def histories_have_what_maps_do(
    run_to_end: Any, states: Mapping[str, Any], start: str, data: Any, execution: dict[str, Any], ctx: dict[str, Any]
) -> Any:
    """Record the states inside a Map in the history, like all other states."""

    name: str | None = start
    while name is not None and name in states:
        state = states[name]
        kind = state["Type"]
        entered = {"name": name, "input": json.dumps(data)}
        stepfunctions._add_event(execution, f"{kind}StateEntered", {"stateEnteredEventDetails": entered})
        if kind not in _HANDLERS:  # Succeed, Fail
            return run_to_end(states, name, data, execution, ctx)
        ctx["State"] = {"Name": name, "EnteredTime": stepfunctions.now_iso(), "RetryCount": 0}
        handle = getattr(stepfunctions, _HANDLERS[kind])
        more = (execution, ctx) if kind in ("Task", "Parallel", "Map") else (ctx,)
        data, following = handle(state, data, *more)
        left = {"name": name, "output": json.dumps(data)}
        stepfunctions._add_event(execution, f"{kind}StateExited", {"stateExitedEventDetails": left})
        name = following
    return data if name is None else run_to_end(states, name, data, execution, ctx)


_HANDLERS = {kind: f"_execute_{kind.lower()}" for kind in ("Pass", "Task", "Choice", "Wait", "Parallel", "Map")}


# --- Streams ---------------------------------------------------------------------------------------------------------


@CORRECTIONS.replaces(lambda_svc, "_execute_function")
def failed_stream_items_come_again(execute: Any, func: Mapping[str, Any], event: Any) -> Any:
    """Deliver records in `batchItemFailures` again. Here the whole batch is repeated, rather than the part that starts with
    the first failed record. Consumers with at-least-once delivery must handle this anyway. MiniStack considers the batch
    done."""

    done = execute(func, event)
    records = event.get("Records") if isinstance(event, dict) else None
    if records and records[0].get("eventSource") in ("aws:kinesis", "aws:dynamodb") and not done.get("error"):
        body = done.get("body")
        if isinstance(body, dict) and body.get("batchItemFailures"):
            failure = {"errorType": "batchItemFailures", "errorMessage": json.dumps(body["batchItemFailures"])}
            return {**done, "error": True, "body": failure}
    return done


# --- DynamoDB --------------------------------------------------------------------------------------------------------


@CORRECTIONS.add
def conditions_are_parsed_once() -> None:
    """Parse a query's key condition only once. MiniStack parses it again for every row of the partition, which makes long
    sessions slow."""
    parse = lru_cache(4096)(dynamodb._tokenize)
    dynamodb._tokenize = lambda text: list(parse(text))
    dynamodb._condition_syntax_error = lru_cache(4096)(dynamodb._condition_syntax_error)


# --- WebSocket APIs --------------------------------------------------------------------------------------------------

_subprotocol: contextvars.ContextVar[str | None] = contextvars.ContextVar("subprotocol", default=None)


@CORRECTIONS.replaces(apigateway, "handle_websocket")
async def sockets_echo_the_subprotocol(
    handle: Any, scope: Any, receive: Any, send: Any, *rest: Any, **more: Any
) -> None:
    """Return the accepted subprotocol in the Sec-WebSocket-Protocol header of the $connect response. Without it browsers
    close the connection."""

    async def send_accepted(message: dict[str, Any]) -> None:
        if message["type"] == "websocket.accept" and (name := _subprotocol.get()):
            message = {**message, "subprotocol": name}
        await send(message)

    _subprotocol.set(None)
    await handle(scope, receive, send_accepted, *rest, **more)


@CORRECTIONS.replaces(apigateway, "_authorize_ws_connect")
async def authorizers_without_identity_source_are_always_asked(
    authorize: Any, api_id: str, route: Mapping[str, Any], *rest: Any
) -> Any:
    """If a WebSocket API's authorizer does not have an identity source, call it for each $connect. MiniStack assumes the
    default for HTTP APIs, the Authorization header, and returns 401 if it is missing, which affects every browser."""

    authorizer = apigateway._authorizers.get(api_id, {}).get(route.get("authorizerId"))
    if authorizer and authorizer["identitySource"] == ["$request.header.Authorization"]:
        authorizer["identitySource"] = []  # that of a WebSocket API would begin with `route.`
    return await authorize(api_id, route, *rest)


@CORRECTIONS.replaces(apigateway, "_evaluate_route_selection")
def messages_without_a_route_go_to_the_default(evaluate: Any, expression: str, payload: str) -> str:
    """Send messages that match no route to the default route, including those that cannot be parsed. MiniStack closes the
    connection if JSON is nested too deeply for Python."""

    try:
        route: str = evaluate(expression, payload)
    except RecursionError:
        return "$default"
    return route


@CORRECTIONS.replaces(apigateway, "_invoke_ws_lambda")
async def routes_answer_only_when_asked(invoke: Any, *args: Any, **more: Any) -> Any:
    """Send no response for a route without a route response, regardless of what its function returns. If the function
    fails, send the gateway's own error message."""

    _, _, _, route, _, connection_id, event_type, message_id = args[:8]
    reply = await invoke(*args, **more)
    if not isinstance(reply, dict):
        return reply
    if event_type == "CONNECT":
        headers = {name.lower(): value for name, value in (reply.get("headers") or {}).items()}
        _subprotocol.set(headers.get("sec-websocket-protocol"))
    if event_type == "MESSAGE" and reply.get("statusCode") == 500:
        error = {"message": "Internal server error", "connectionId": connection_id, "requestId": message_id}
        return {"statusCode": 500, "body": json.dumps(error)}
    if event_type == "MESSAGE" and not route.get("routeResponseSelectionExpression"):
        return {name: value for name, value in reply.items() if name != "body"}
    return reply


@CORRECTIONS.replaces(apigateway, "handle_connections_api")
async def socket_messages_have_a_limit(
    handle: Any, method: str, api_id: str, stage: str, connection_id: str, body: bytes, headers: Any
) -> Any:
    """Limit PostToConnection to 128 KB. (The server refuses longer messages from clients; see `emulator.py`.)"""

    if method == "POST" and len(body or b"") > SOCKET_MESSAGE:
        headers = {"Content-Type": "application/json", "x-amzn-ErrorType": "PayloadTooLargeException"}
        return 413, headers, json.dumps({"message": "Message too long"}).encode()
    return await handle(method, api_id, stage, connection_id, body, headers)


# --- CloudFormation ------------------------------------------------------------------------------------------------


@CORRECTIONS.replaces(provisioners, "_update_resource")
def nested_stacks_keep_attributes(
    update: Any,
    kind: str,
    physical_id: str,
    old: Any,
    new: Any,
    stack: str,
    logical_id: str | None = None,
    known: Any = None,
) -> tuple[str, dict[str, Any]]:
    """Keep the attributes of a nested stack's resource that an update does not change, because other resources refer to
    them."""

    if known is None:
        resources = (cloudformation._stacks.get(stack) or {}).get("_resources", {})
        known = resources.get(logical_id, {}).get("Attributes", {})
    updated, attributes = update(kind, physical_id, old, new, stack, logical_id, known)
    return updated, {**known, **(attributes or {})} if updated == physical_id else attributes


# --- IAM -------------------------------------------------------------------------------------------------------------

_OF_THE_CONNECTION = {"aws:securetransport": "true", "s3:tlsversion": "1.2"}


@CORRECTIONS.replaces(iam_evaluator, "_resolve_condition_key")
def requests_count_as_encrypted(resolve: Any, key: str, context: Any) -> Any:
    """Treat all requests as encrypted, so that policies that deny unencrypted requests do not deny them. AWS uses TLS, but
    MiniStack uses plain HTTP on loopback."""

    return _OF_THE_CONNECTION.get(key.lower()) or resolve(key, context)


_GUARDRAIL = re.compile(r"/guardrail/([^/]+)/version/[^/]+/apply")


@CORRECTIONS.replaces(iam_actions, "extract_resource_arn")
def guardrails_have_arns(extract: Any, service: str, method: str, path: str, *rest: Any) -> str:
    """Apply permissions on guardrails to `ApplyGuardrail`. MiniStack accepts only permissions on all resources.
    A guardrail is named by its id, not by an ARN."""

    found = _GUARDRAIL.fullmatch(path) if service == "bedrock-runtime" else None
    if found is None:
        arn: str = extract(service, method, path, *rest)
        return arn
    region, account = rest[-2:]
    return ":".join(("arn", "aws", "bedrock", region, account, f"guardrail/{unquote(found[1])}"))
