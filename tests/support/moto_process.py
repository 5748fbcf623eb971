"""Run moto's server in its own process, with its Step Functions interpreter: `python -m tests.support.moto_process PORT`.

It answers one request at a time, because moto has no locks: two concurrent conditional writes could both succeed. Lambda
calls of its state machines go to LAMBDA_URL, with the credentials in LAMBDA_KEY and LAMBDA_SECRET. Each file in the folder
REFUSALS, named `FUNCTION~ERROR~NUMBER`, makes one of them fail, as Lambda's API does with an error of that name.
"""

from __future__ import annotations

import os
import sys
import threading
from functools import partial
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError
from moto.core.config import default_user_config
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from moto.stepfunctions.parser.asl.component.state.exec.state_task import lambda_eval_utils
from werkzeug.serving import run_simple

TIMEOUT_S = 900


class Functions:
    """The interpreter's client of Lambda."""

    def __init__(self, region: str) -> None:
        self._client = boto3.client(
            "lambda",
            endpoint_url=os.environ["LAMBDA_URL"],
            region_name=region,
            aws_access_key_id=os.environ["LAMBDA_KEY"],
            aws_secret_access_key=os.environ["LAMBDA_SECRET"],
            config=Config(retries={"total_max_attempts": 1}, read_timeout=TIMEOUT_S),
        )

    def invoke(self, **request: Any) -> Any:
        name = request["FunctionName"].split(":")[6]
        for file in Path(os.environ["REFUSALS"]).glob(f"{name}~*"):
            try:
                file.unlink()
            except FileNotFoundError:
                continue  # another invocation took it
            code = file.name.split("~")[1]
            meta = {"HTTPStatusCode": 429, "RequestId": "refused"}
            raise ClientError({"Error": {"Code": code, "Message": "as planned"}, "ResponseMetadata": meta}, "Invoke")
        return self._client.invoke(**request)


def _functions(region: str, service: str, state_credentials: Any = None) -> Functions:
    assert service == "lambda"
    return Functions(region)


def main(port: int) -> None:
    threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
    default_user_config["stepfunctions"] = {"execute_state_machine": True}
    lambda_eval_utils.boto_client_for = _functions  # type: ignore[attr-defined]
    app = DomainDispatcherApplication(create_backend_app)
    serve = partial(run_simple, "127.0.0.1", port, app, request_handler=MotoRequestHandler)
    serve(threaded=False)


if __name__ == "__main__":
    main(int(sys.argv[1]))
