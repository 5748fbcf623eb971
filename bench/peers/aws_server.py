"""An emulator of AWS on loopback (moto) that counts each call of DynamoDB and S3 on the wire.

Law: units are DynamoDB's, by `bench/aws/wire.py`. A call belongs to the step for which the script was last called: the
contender's process sends `GET /mark/<step>` when it calls the model.
"""

from __future__ import annotations

import base64
import io
import json
import logging
import threading
from collections import Counter
from typing import Any

import boto3
from aws.wire import Call, Wire
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server
from werkzeug.wrappers import Response

KEYS = ("PK", "SK")
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_DEFAULT_REGION": "us-east-1"}


class CountingAws:
    """`with CountingAws() as aws`: `aws.url` for `AWS_ENDPOINT_URL`. Calls before the first mark have the step 0. `s3`
    counts requests by (step, method), `s3_bytes` the bytes put by step."""

    def __enter__(self) -> CountingAws:
        logging.getLogger("werkzeug").setLevel(logging.ERROR)  # it logs each request
        self._app = DomainDispatcherApplication(create_backend_app)
        self._server = make_server("127.0.0.1", 0, self._serve, threaded=True)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        self.reset()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()

    def client(self, service: str) -> Any:
        session = boto3.Session("test", "test", region_name="us-east-1")
        return session.client(service, endpoint_url=self.url)

    def reset(self) -> None:
        """Reset to an empty table `checkpoints`, an empty bucket `strands` and no counts."""
        self.client("s3").create_bucket(Bucket="strands")
        table = {"TableName": "checkpoints"}
        dynamodb = self.client("dynamodb")
        if dynamodb.list_tables()["TableNames"]:
            dynamodb.delete_table(**table)
        dynamodb.create_table(
            **table,
            KeySchema=[{"AttributeName": n, "KeyType": k} for n, k in zip(KEYS, ("HASH", "RANGE"), strict=True)],
            AttributeDefinitions=[{"AttributeName": name, "AttributeType": "S"} for name in KEYS],
            BillingMode="PAY_PER_REQUEST",
        )
        self.wire = Wire(self._peek, KEYS)
        self.forget()

    def forget(self) -> None:
        """Return the counts; the sizes of items are kept."""
        self.wire.calls.clear()
        self.step, self.s3, self.s3_bytes = 0, Counter[tuple[int, str]](), Counter[int]()

    def _peek(self, table: str, key: Any) -> Any:
        return self.client("dynamodb").get_item(TableName=table, Key=key)["Item"]

    def calls(self, step: int) -> list[Call]:
        return [call for call in self.wire.calls if call.where == (step,)]

    def _serve(self, environ: Any, start_response: Any) -> Any:
        if environ["PATH_INFO"].startswith("/mark/"):
            self.step = int(environ["PATH_INFO"].rpartition("/")[2])
            return Response("noted")(environ, start_response)
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        environ["wsgi.input"] = io.BytesIO(body)
        service, _, verb = environ.get("HTTP_X_AMZ_TARGET", "").partition(".")
        response = Response.from_app(self._app, environ)
        if service.startswith("DynamoDB") and verb not in ("CreateTable", "DeleteTable", "ListTables"):
            answer = with_bytes(json.loads(response.get_data() or b"{}")) if response.status_code == 200 else None
            with self.wire.at(self.step):
                self.wire.count("dynamodb", verb, with_bytes(json.loads(body)), answer)
        elif not service and environ["PATH_INFO"].strip("/") not in ("", "strands"):
            self.s3[self.step, environ["REQUEST_METHOD"]] += 1
            self.s3_bytes[self.step] += len(body)
        elif not service and environ["REQUEST_METHOD"] == "GET":
            self.s3[self.step, "LIST"] += 1
        return response(environ, start_response)


def with_bytes(value: Any) -> Any:
    """Decode binary attributes, which are base64 on the wire."""
    if isinstance(value, list):
        return [with_bytes(item) for item in value]
    if not isinstance(value, dict):
        return value
    if set(value) == {"B"} and isinstance(value["B"], str):
        return {"B": base64.b64decode(value["B"])}
    return {name: with_bytes(item) for name, item in value.items()}
