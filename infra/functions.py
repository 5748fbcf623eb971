"""The functions that exist once per stage, and the permissions of every verb.

Law: functions get their verbs' permissions only here. Elsewhere they only get the permissions to write their own logs, to
read chunks (`Streaming.feed`), and to run tools (`tool_rights`). Each function needs all of its permissions: if any one is
removed, a test in tests/e2e/test_iam.py fails.
"""

from __future__ import annotations

from collections.abc import Sequence

from aws_cdk import Stack
from aws_cdk import aws_iam as iam
from constructs import Construct

from helix.core.tool_settings import SecretPlace
from helix.infra.bedrock_rights import grant_bedrock
from helix.infra.concurrency import reserved
from helix.infra.endpoints import Endpoints
from helix.infra.executions import Executions
from helix.infra.function import Function, FunctionInputs
from helix.infra.governing import Governing
from helix.infra.logs import grant_search
from helix.infra.names import Names
from helix.infra.profile import construct_name
from helix.infra.sockets import Sockets
from helix.infra.storage import CHECK, DELETE, GET, GET_SEVERAL, PUT, QUERY, UPDATE, Storage
from helix.infra.streaming import Streaming
from helix.infra.topics import Topics
from helix.infra.triggers import Triggers
from helix.infra.verbs import SHARED_VERBS

COUNT = (GET, GET_SEVERAL, QUERY, PUT, UPDATE, DELETE)
"""The actions on the control table: slots, usage, budget reservations, the index of open runs."""
STEP = (GET, GET_SEVERAL, QUERY, PUT, UPDATE, DELETE, CHECK)
"""The actions on session rows. A worker renews its claim with an update, and returns an unstarted claim with a delete."""
LOOK = (QUERY, GET)
"""The actions to read the end of a stream. A row whose object is missing is read again, by its key."""
FILES = (GET, GET_SEVERAL, PUT, UPDATE, DELETE, CHECK)
"""The actions on the control table to store the files of a tool's result, and to hold them for the session."""


class Rights:
    """The permissions of every verb. `grant(function)` grants a function those of its verb."""

    def __init__(
        self,
        *,
        names: Names,
        storage: Storage,
        streaming: Streaming,
        executions: Executions,
        sockets: Sockets,
        topics: Topics,
        endpoints: Endpoints,
        governing: Governing,
        triggers: Triggers,
        model_secrets: Sequence[str] = (),
        bedrock: bool = False,
    ) -> None:
        self._names = names
        self._storage, self._streaming, self._executions, self._sockets = storage, streaming, executions, sockets
        self._topics, self._endpoints, self._governing = topics, endpoints, governing
        self._triggers = triggers
        self._model_secrets, self._bedrock = list(model_secrets), bedrock

    def grant(self, function: Function) -> None:
        getattr(self, f"_{function.verb}")(function.role)

    def _call_model(self, role: iam.Role) -> None:
        self._storage.grant_rows(role, "sessions", *STEP)
        # For budget reservations, the response cache and request heads.
        self._storage.grant_rows(role, "control", *COUNT, CHECK)
        self._storage.grant_overflow(role)
        # It shows files to models, and stores those that inline tools return.
        self._storage.grant_files(role, "Get", "Put")
        self._streaming.grant_append(role)
        self._executions.grant_start(role)
        if self._model_secrets:
            iam.Grant.add_to_principal(
                grantee=role,
                actions=["secretsmanager:GetSecretValue"],
                resource_arns=_secret_arns(role, self._model_secrets),
            )
        if self._bedrock:
            grant_bedrock(role)

    def _call_tool(self, role: iam.Role) -> None:
        self._storage.grant_rows(role, "sessions", *STEP)
        self._storage.grant_rows(role, "control", *FILES)
        self._storage.grant_overflow(role)
        # It stores the files that tools return. A file that is stored already is only looked for.
        self._storage.grant_files(role, "Get", "Put")
        self._streaming.grant_append(role)

    def _start_run(self, role: iam.Role) -> None:
        self._storage.grant_rows(role, "streams", *LOOK)
        self._end(role)

    def _finish_run(self, role: iam.Role) -> None:
        self._storage.grant_rows(role, "streams", *LOOK)
        self._end(role)
        self._queue(role)

    def _fail_run(self, role: iam.Role) -> None:
        self._storage.grant_rows(role, "streams", *LOOK)
        self._end(role)
        self._queue(role)

    def _sweep(self, role: iam.Role) -> None:
        """Grant the permissions of `sweep`. It completes unfinished deletions, so it may delete stream rows and all
        objects. It also deletes files that no session holds, without reading them."""
        self._storage.grant_rows(role, "streams", *LOOK, PUT)
        self._storage.grant_overflow_and_removal(role)
        self._storage.grant_files(role, "Delete")
        self._end(role)
        self._queue(role)
        self._executions.grant_describe(role)

    def _project_stream(self, role: iam.Role) -> None:
        if self._streaming.stream is None:  # it posts, and marks slow connections
            self._storage.grant_rows(role, "streams", QUERY, UPDATE, DELETE)
            self._storage.grant_overflow_read(role)
        else:
            self._storage.grant_rows(role, "streams", *LOOK, PUT, UPDATE, DELETE)
            self._storage.grant_rows(role, "sessions", GET, CHECK)  # chunks of a deleted session are not appended
            self._storage.grant_overflow(role)
        self._sockets.grant_post(role)
        # Streaming.feed grants the permissions to read chunks and to set some aside.

    def _ws_authorize(self, role: iam.Role) -> None:
        self._storage.grant_rows(role, "control", GET)

    def _ws_connect(self, role: iam.Role) -> None:
        self._storage.grant_rows(role, "streams", PUT)

    def _ws_disconnect(self, role: iam.Role) -> None:
        self._storage.grant_rows(role, "streams", QUERY, DELETE)

    def _ws_message(self, role: iam.Role) -> None:
        self._storage.grant_rows(role, "streams", *LOOK, PUT, UPDATE, DELETE, CHECK)
        self._storage.grant_overflow_and_removal(role)
        # It signs the clients' uploads and downloads, and reads the beginning of an uploaded file.
        self._storage.grant_files(role, "Get", "Put")
        self._end(role)
        self._queue(role)
        self._executions.grant_stop(role)
        self._sockets.grant_post(role)
        grant_search(role, self._names)

    def _govern(self, role: iam.Role) -> None:
        """Grant the permissions of `govern`. It starts the runs that a higher limit admits, but neither claims nor ends
        runs."""
        self._storage.grant_rows(role, "control", *COUNT, CHECK)
        check = [CHECK] if self._streaming.appends else []  # chunks of a deleted session are not appended
        self._storage.grant_rows(role, "sessions", GET, GET_SEVERAL, QUERY, *check)
        self._storage.grant_overflow(role)
        self._streaming.grant_append(role)
        self._executions.grant_start(role)
        self._topics.grant_notify(role)
        self._governing.grant(role)

    def _health(self, role: iam.Role) -> None:
        self._storage.grant_rows(role, "control", GET, GET_SEVERAL, QUERY)
        self._storage.grant_rows(role, "sessions", GET)
        self._endpoints.grant_token(role)

    def _start_triggered(self, role: iam.Role) -> None:
        self._serve_http(role)
        self._storage.grant_files(role, "Get", "Put")  # an event may bring a file
        self._triggers.grant_consume(role)

    def _serve_http(self, role: iam.Role) -> None:
        """Grant the permissions of `serve_http`. Its requests only name files that are stored already, so it needs the
        files' rows but not their bytes."""
        self._storage.grant_rows(role, "streams", *LOOK, PUT)
        self._end(role)
        self._queue(role)

    def _serve_console(self, role: iam.Role) -> None:
        """Grant nothing, because the console's files are in the function's layer."""

    def _end(self, role: iam.Role) -> None:
        """Grant the permissions to begin or end a run, and to wake the parent that waits for it. A run's row is read
        together with `session`."""
        self._storage.grant_rows(role, "sessions", *STEP)
        self._storage.grant_rows(role, "control", *COUNT)
        self._storage.grant_overflow(role)
        self._streaming.grant_append(role)
        self._executions.grant_start(role)
        self._executions.grant_wake(role)

    def _queue(self, role: iam.Role) -> None:
        """Grant the permissions to queue a run. A run that continues gets a ticket if no slot is free."""
        self._storage.grant_rows(role, "control", CHECK)


class Functions(Construct):
    """The functions that exist once per stage. `by_verb`: every function except those of the profiles. `more`: the optional
    verbs of this stage."""

    def __init__(
        self, scope: Construct, construct_id: str, *, inputs: FunctionInputs, rights: Rights, more: Sequence[str]
    ) -> None:
        super().__init__(scope, construct_id)
        own = reserved(inputs.settings)
        self.by_verb = {
            verb: Function(self, construct_name(verb), verb=verb, inputs=inputs, reserved_concurrency=own.get(verb, 0))
            for verb in (*SHARED_VERBS, *more)
        }
        for function in self.by_verb.values():
            rights.grant(function)


def _secret_arns(role: iam.Role, secrets: Sequence[str]) -> list[str]:
    """Return the ARNs of secrets. `secrets`: names and ARNs."""
    stack = Stack.of(role)
    named = [SecretPlace("secretsmanager", secret) for secret in secrets]
    return [place.resource(stack.partition, stack.region, stack.account) for place in named]
