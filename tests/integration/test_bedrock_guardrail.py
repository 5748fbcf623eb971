"""Amazon Bedrock Guardrails over real HTTP on loopback, with the responses that AWS documents for `ApplyGuardrail`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest
from tests.support_guards import DONE, call, play

from helix import Allow, Block, DefinitionError, Guard, GuardContext, Replace
from helix.guards import BedrockGuardrail

USAGE = {
    "topicPolicyUnits": 1,
    "contentPolicyUnits": 1,
    "wordPolicyUnits": 1,
    "sensitiveInformationPolicyUnits": 1,
    "sensitiveInformationPolicyFreeUnits": 1,
    "contextualGroundingPolicyUnits": 0,
}
NONE = {"usage": USAGE, "action": "NONE", "outputs": [], "assessments": [{}]}
TOPIC = {"name": "Fiduciary Advice", "type": "DENY", "action": "BLOCKED"}
BLOCKED = {
    "usage": USAGE,
    "action": "GUARDRAIL_INTERVENED",
    "outputs": [{"text": "I cannot give financial advice."}],
    "assessments": [{"topicPolicy": {"topics": [TOPIC]}}],
}


def masked(text: str) -> dict[str, Any]:
    entity = {"type": "EMAIL", "match": "eve@example.com", "action": "ANONYMIZED"}
    found = {"sensitiveInformationPolicy": {"piiEntities": [entity], "regexes": []}}
    return {"usage": USAGE, "action": "GUARDRAIL_INTERVENED", "outputs": [{"text": text}], "assessments": [found]}


class Service:
    """A server with the next responses, which records what it was sent."""

    def __init__(self) -> None:
        self.responses: list[tuple[int, dict[str, Any]]] = []
        self.requests: list[tuple[str, dict[str, Any]]] = []
        service = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                assert self.headers["Authorization"].startswith("AWS4-HMAC-SHA256 ")
                service.requests.append((self.path, body))
                status, answer = service.responses.pop(0)
                data = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        Thread(target=self.server.serve_forever, daemon=True).start()

    def guard(self) -> BedrockGuardrail:
        return BedrockGuardrail(
            "gr12345678", "1", region="us-east-1", endpoint=f"http://127.0.0.1:{self.server.server_port}"
        )


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    made = Service()
    yield made
    made.server.shutdown()
    made.server.server_close()


def context(on: Any) -> GuardContext:
    return GuardContext(on=on, agent_type="a", session_id="s", run_id="r", step=1)


@pytest.mark.parametrize(
    ("on", "source"), [("input", "INPUT"), ("result", "INPUT"), ("call", "OUTPUT"), ("output", "OUTPUT")]
)
def test_what_is_sent(service: Service, on: Any, source: str) -> None:
    service.responses = [(200, NONE)]
    assert service.guard()("Hello", context(on)) == Allow()
    path, body = service.requests[0]
    assert path == "/guardrail/gr12345678/version/1/apply"
    assert body == {"source": source, "content": [{"text": {"text": "Hello"}}]}


def test_a_blocked_text_has_the_guardrails_message(service: Service) -> None:
    service.responses = [(200, BLOCKED)]
    assert service.guard()("Buy this?", context("input")) == Block("I cannot give financial advice.")


def test_a_masked_value_is_replaced(service: Service) -> None:
    service.responses = [(200, masked("Mail {EMAIL}")), (200, masked('{"to":"{EMAIL}"}')), (200, masked("not JSON {"))]
    guard = service.guard()
    assert guard("Mail eve@example.com", context("output")) == Replace("Mail {EMAIL}")
    assert guard({"to": "eve@example.com"}, context("call")) == Replace({"to": "{EMAIL}"})
    with pytest.raises(ValueError, match=r"unexpected|JSON|Expecting"):
        guard({"to": "eve@example.com"}, context("call"))


def test_an_empty_text_is_not_sent(service: Service) -> None:
    assert service.guard()("  ", context("input")) == Allow() and service.requests == []


async def test_an_error_of_the_service_blocks(service: Service) -> None:
    DONE.clear()
    denied = {"__type": "AccessDeniedException", "message": "not authorized to perform: bedrock:ApplyGuardrail"}
    service.responses = [(403, denied)]
    played = await play([{"tool_calls": [call("send", to="eve")]}, "Done."], [Guard(name="aws", call=service.guard())])
    assert played.result.text == "Done." and DONE == []
    (row,) = await played.calls()
    assert row.content is not None and "guard 'aws' blocked the call" in row.content


@pytest.mark.parametrize("fields", [("", "1"), ("gr", ""), ("gr", "latest"), ("gr", 1)])
def test_a_guardrail_that_is_not_valid_is_refused(fields: Any) -> None:
    with pytest.raises(DefinitionError):
        BedrockGuardrail(*fields)
