"""The roles of the deployed functions: their rights, and a way to remove one right for a while."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tests.support.offline_cloud import CloudForTests

Json = dict[str, Any]


@dataclass(frozen=True)
class Right:
    """A right. `function` is a name without its prefix, and `what` is the short name of a resource."""

    function: str
    what: str
    action: str

    def __str__(self) -> str:
        return f"{self.function}: {self.action} on {self.what}"


NAMES = {
    r"table/helix-test-(\w+)$": r"\1",
    r"table/helix-test-streams/stream/.*$": "changes",
    r":::[\w-]*bucket[\w-]*/overflow/\*$": "objects",
    r":::[\w-]*bucket[\w-]*/blobs/\*$": "files",
    r":::[\w-]*bucket[\w-]*/failed/\*$": "failed",
    r":::[\w-]*bucket[\w-]*/aws/lambda/\*$": "given up",
    r":::[\w-]*bucket[\w-]*$": "bucket",
    r":stream/helix-test-chunks$": "chunks",
    r":stateMachine:helix-test-[\w*]+$": "machines",
    r":execution:helix-test-[\w*]+:\*$": "executions",
    r":execute-api:.*/test/POST/@connections/\*$": "connections",
    r":log-group:/aws/lambda/[\w-]+:\*$": "log",
    r":log-group:/aws/lambda/helix-test-\*$": "logs",
    r":key/[\w-]+$": "key",
    r":helix-test-undelivered$": "undelivered",
    r":helix-test-trigger-failures$": "failures",
    r":helix-test-trigger-\w+$": "queues",
    r":helix-test-notices$": "notices",
    r":secret:helix-test-metrics-\w+$": "token",
    r":function:helix-test-\*-call_model:live$": "aliases",
    r":function:helix-test-sweep:live$": "sweep",
    r":bedrock:\*:[^:]*:guardrail(?:-profile)?/\*$": "guardrails",
}
UNSEEN: dict[str, str] = {
    r".*: logs:\w+ on log": "the emulator takes a function's log from its process, not from CloudWatch Logs",
    r".*: kms:\w+ on key": "its tables, streams and buckets do not use their key",
    r"fail_run: sqs:\w+ on undelivered": "Lambda puts undelivered events there by itself, and the emulator does not",
    r"project_stream: kinesis:\w+ on chunks": "the event source reads the stream, in the emulator without any role",
    r"project_stream: s3:PutObject on given up": "Lambda puts given up batches there by itself; the emulator does not",
    r"project_stream: dynamodb:UpdateItem on streams": "only a slow socket is marked, and no socket is slow here",
    r"ws_message: s3:PutObject on files": "clients send the requests that it signs, which the emulator does not limit",
    r"start_triggered: s3:(Get|Put)Object on files": "no trigger of this stage brings a file",
    r"start_triggered: sqs:\w+ on queues": "the event source reads the queues, in the emulator without any role",
    r"govern: s3:PutObject on objects": "the first record of a run that waited is large only if a run before it crashed",
    r".*call_(model|tool): dynamodb:GetItem on sessions": "only a repeated delivery reads the session's row alone",
    r".*call_(model|tool): dynamodb:UpdateItem on sessions": "claims are renewed after ten seconds: see test_recovery.py",
    r".*call_(model|tool): dynamodb:DeleteItem on sessions": "only a worker that stood still returns a claim not begun",
    r"(?!ws_message|sweep).*: s3:ListBucket on bucket": "without it S3 says 'denied' for 'not there', the emulator not",
}
"""The rights that cannot be missed offline, with the reasons."""
NOTHING = {"Effect": "Deny", "Action": "*", "Resource": "*"}
"""The statement for a policy that would otherwise be empty, which IAM does not accept."""
TWIN = "crew-"
"""The prefix of the functions of a second agent with resources. Their rights are those of the first one's
(tests/infra/test_roles.py)."""
EVERYTHING = {"states": "tokens", "cloudwatch": "metrics", "dynamodb": "changes"}
"""The resource that an action on `*` is about, by service."""


def is_unseen(right: Right) -> bool:
    return any(re.fullmatch(pattern, str(right)) for pattern in UNSEEN)


def name_of(arn: str, action: str) -> str:
    if arn == "*":
        return EVERYTHING[action.partition(":")[0]]
    for pattern, name in NAMES.items():
        if (found := re.search(pattern, arn)) is not None:
            return found.expand(name)
    raise AssertionError(f"a right on something new: {arn}")


def is_own(arn: str, action: str) -> bool:
    """Return whether the resource is the stage's own and its functions call it."""
    return action.partition(":")[0] in EVERYTHING if arn == "*" else any(re.search(pattern, arn) for pattern in NAMES)


def listed(value: Any) -> list[str]:
    return [value] if isinstance(value, str) else list(value)


class Roles:
    """The roles of all functions as deployed. Each role's policies are read once, because nothing else changes them."""

    def __init__(self, cloud: CloudForTests) -> None:
        self._iam, functions = cloud.aws("iam"), cloud.aws("lambda")
        self._prefix = cloud.cloud.function("")
        self._policies: dict[str, dict[str, Json]] = {}
        names = [name.removeprefix(self._prefix) for name in cloud.cloud.functions()]
        self.functions = [name for name in names if not name.startswith(TWIN)]
        self._roles = {
            name: functions.get_function_configuration(FunctionName=f"{self._prefix}{name}")["Role"].rsplit("/", 1)[1]
            for name in self.functions
        }

    def policies(self, function: str) -> dict[str, Json]:
        """Return the documents of the role's policies by their names."""
        role = self._roles[function]
        if role not in self._policies:
            assert not self._iam.list_attached_role_policies(RoleName=role)["AttachedPolicies"]
            names = self._iam.list_role_policies(RoleName=role)["PolicyNames"]
            self._policies[role] = {name: self._document(role, name) for name in names}
        return dict(self._policies[role])

    def _document(self, role: str, name: str) -> Json:
        document: Json | str = self._iam.get_role_policy(RoleName=role, PolicyName=name)["PolicyDocument"]
        return document if isinstance(document, dict) else json.loads(document)

    def rights(self, *, others: bool = True) -> set[Right]:
        """Return the rights of all functions. `others=False` leaves out those that a project grants on its own
        resources."""
        return {
            Right(function, name_of(arn, action), action)
            for function in self.functions
            for document in self.policies(function).values()
            for statement in document["Statement"]
            for arn in listed(statement["Resource"])
            for action in listed(statement["Action"])
            if others or is_own(arn, action)
        }

    def rights_of(self, function: str) -> list[Right]:
        return [right for right in self.rights() if right.function == function]

    @contextmanager
    def without(self, *rights: Right) -> Iterator[None]:
        """Take these rights from the function's role for the duration of the context."""
        (function,) = {right.function for right in rights}
        role, before = self._roles[function], self.policies(function)
        for name, document in before.items():
            left = document["Statement"]
            for right in rights:
                left = [rest for statement in left for rest in _without(statement, right)]
            self._put(role, name, {**document, "Statement": left or [NOTHING]})
        try:
            yield
        finally:
            for name, document in before.items():
                self._put(role, name, document)

    def _put(self, role: str, name: str, document: Json) -> None:
        self._iam.put_role_policy(RoleName=role, PolicyName=name, PolicyDocument=json.dumps(document))
        self._policies[role][name] = document


def _without(statement: Json, right: Right) -> Iterator[Json]:
    actions, arns = listed(statement["Action"]), listed(statement["Resource"])
    touched = [arn for arn in arns if right.action in actions and name_of(arn, right.action) == right.what]
    if others := [arn for arn in arns if arn not in touched]:
        yield {**statement, "Resource": others}
    if touched and (rest := [action for action in actions if action != right.action]):
        yield {**statement, "Resource": touched, "Action": rest}
