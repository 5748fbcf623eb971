"""Amazon Bedrock Guardrails as a guard, through `ApplyGuardrail` of boto3's `bedrock-runtime`.

A deployed stage grants its functions this right if an agent uses such a guard.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

from helix.core.checks import require
from helix.core.guards import GuardContext
from helix.core.json import JsonValue, dumps, loads
from helix.core.verdicts import Allow, AnyVerdict, Block, Replace

_READ_S = 8.0
_TRIES = 2


class BedrockGuardrail:
    """A guard function that applies a guardrail of this account. Its `BLOCKED` assessments block the value, with the
    guardrail's own message as the reason. If it only masks parts, the value is replaced."""

    def __init__(self, guardrail: str, version: str, *, region: str | None = None, endpoint: str | None = None) -> None:
        """`guardrail`: its id or ARN. `version`: a number, or `DRAFT`. `region` and `endpoint`: None for boto3's."""
        owner = "guard 'BedrockGuardrail'"
        require(isinstance(guardrail, str) and bool(guardrail.strip()), owner, "guardrail", "must be an id or an ARN")
        valid = isinstance(version, str) and (version == "DRAFT" or version.isdigit())
        require(valid, owner, "version", "must be a number as a string, or 'DRAFT'")
        self.guardrail, self.version = guardrail, version
        self._region, self._endpoint = region, endpoint
        self._lock = threading.Lock()
        self._client: Any = None

    def __call__(self, value: Any, context: GuardContext) -> AnyVerdict:
        text = value if isinstance(value, str) else dumps(value)
        if not text.strip():
            return Allow()
        found = self._connected().apply_guardrail(
            guardrailIdentifier=self.guardrail,
            guardrailVersion=self.version,
            source="INPUT" if context.on in ("input", "result") else "OUTPUT",
            content=[{"text": {"text": text}}],
        )
        if found["action"] == "NONE":
            return Allow()
        given = "".join(output.get("text", "") for output in found.get("outputs", []))
        if "BLOCKED" in set(_actions(found.get("assessments", []))) or not given:
            return Block(given or found.get("actionReason", ""))
        return Replace(given if isinstance(value, str) else loads(given))

    def _connected(self) -> Any:
        """Return the client, which threads share. It is made at the first call, because definitions do no I/O."""
        with self._lock:
            if self._client is None:
                import boto3
                from botocore.config import Config

                config = Config(read_timeout=_READ_S, connect_timeout=3, retries={"total_max_attempts": _TRIES})
                self._client = boto3.client(
                    "bedrock-runtime", region_name=self._region, endpoint_url=self._endpoint, config=config
                )
            return self._client


def _actions(value: JsonValue) -> Iterator[str]:
    """Yield the `action` of each finding in the assessments, whose policies nest them differently."""
    if isinstance(value, dict):
        if isinstance(action := value.get("action"), str):
            yield action
        for item in value.values():
            yield from _actions(item)
    elif isinstance(value, list):
        for item in value:
            yield from _actions(item)
