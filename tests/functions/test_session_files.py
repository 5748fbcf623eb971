"""The files of a deployed stage: the bucket in which they are, and the requests that clients get for them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qs, urlsplit

import boto3
import pytest
from tests.functions.conftest import Functions
from tests.functions.test_run_verbs import ids
from tests.support.aws_resources import BUCKET
from tests.support.model_dialects import OPENAI, DialectServer, Says
from tests.support.sample_files import png
from tests.support_run import agent

from helix import LLMConfig
from helix.adapters.aws.blobs import S3Blobs
from helix.adapters.models.adapter import ModelAdapter
from helix.core.errors import AccessDeniedError, FileMissingError
from helix.core.registry import AgentRegistry
from helix.ports.model import LLMAdapter
from helix.runtime.agent_models import Agents
from helix.runtime.cloud import s3_config
from helix.services.blob_rows import blob_owner, owner_prefix
from helix.services.session_files import SessionFiles

HOST = f"{BUCKET}.s3.us-east-1.amazonaws.com"
"""The host that the console's page may connect to."""
OWNER = blob_owner("ada", "")
KEYS: Any = {"aws_access_key_id": "test", "aws_secret_access_key": "test"}
DATA = b"name,sum\nada,3\n"
HASH = hashlib.sha256(DATA).hexdigest()


def files_of(functions: Functions) -> SessionFiles:
    functions.play([])
    files = functions.app.engine.files
    assert files is not None
    return files


def test_a_client_uploads_to_the_bucket_of_the_stage_what_it_announced(functions: Functions) -> None:
    files, app = files_of(functions), functions.app
    stored, upload = app.run(files.uploads.begin(OWNER, HASH, len(DATA), "text/csv", 900))
    assert not stored and upload is not None
    url = urlsplit(upload.url)
    assert (url.hostname, url.path.startswith(f"/{owner_prefix(OWNER)}{HASH}.")) == (HOST, True)
    signed = set(parse_qs(url.query)["X-Amz-SignedHeaders"][0].split(";"))
    assert signed >= {"content-length", "content-type", "host", "x-amz-checksum-sha256"}
    with pytest.raises(FileMissingError):
        app.run(files.uploads.finish(OWNER, HASH))
    boto3.client("s3").put_object(Bucket=BUCKET, Key=url.path[1:], Body=DATA, ContentType="text/csv")
    part = app.run(files.uploads.finish(OWNER, HASH, "sums.csv"))
    assert (part.media_type, part.size, part.name) == ("text/csv", len(DATA), "sums.csv")
    assert app.run(files.uploads.begin(OWNER, HASH, len(DATA), "text/csv", 900)) == (True, None)


@pytest.mark.parametrize(
    ("region", "host"),
    [
        ("us-east-1", "stage.s3.us-east-1.amazonaws.com"),
        ("eu-central-1", "stage.s3.eu-central-1.amazonaws.com"),
        ("ap-east-1", "stage.s3.ap-east-1.amazonaws.com"),
        ("cn-north-1", "stage.s3.cn-north-1.amazonaws.com.cn"),
    ],
)
async def test_requests_go_to_the_bucket_in_its_region(region: str, host: str) -> None:
    """The page's content security policy has this host (`bucket_regional_domain_name`)."""
    client = boto3.client("s3", region_name=region, config=s3_config({}), **KEYS)
    upload = await S3Blobs(client, "stage").upload("blobs/x", 1, HASH, "text/csv", 60)
    assert upload is not None and urlsplit(upload.url).hostname == host


@pytest.mark.parametrize("variable", ["AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"])
@pytest.mark.parametrize("address", ["http://127.0.0.1:4566", "http://emulator:4566"])
async def test_requests_to_the_emulator_name_the_bucket_in_the_path(address: str, variable: str) -> None:
    config = s3_config({variable: address})
    client = boto3.client("s3", region_name="us-east-1", config=config, endpoint_url=address, **KEYS)
    url = await S3Blobs(client, "stage").download("blobs/x", None, 60)
    assert url is not None and url.startswith(f"{address}/stage/blobs/x?")


def test_a_function_that_uses_no_files_makes_no_client_for_them(functions: Functions) -> None:
    assert files_of(functions) is functions.app.engine.files and "s3" not in functions.app._clients


# --- the role may not read the files ------------------------------------------------------------------------------------


class OwnAdapter(ModelAdapter):
    """An adapter of a user's own, which reads the files of the request itself."""

    async def generate_step(self, request: Any) -> Any:
        for message in request.messages:
            for file in getattr(message, "files", ()):
                await request.files.read(file)
        return await super().generate_step(request)


@contextmanager
def denied_reads(functions: Functions) -> Iterator[None]:
    """Deny `s3:GetObject` for the duration of the context."""

    def deny(**_: Any) -> Any:
        return SimpleNamespace(status_code=403), {"Error": {"Code": "AccessDenied", "Message": WHY}}

    events = functions.app.client("s3").meta.events
    events.register("before-call.s3.GetObject", deny)
    yield
    events.unregister("before-call.s3.GetObject", deny)


FILE = f"arn:aws:s3:::{BUCKET}/blobs/x"
WHY = f"User: arn:x is not authorized to perform: s3:GetObject on resource: {FILE} because no policy allows it"


@pytest.mark.parametrize("adapter", [ModelAdapter(), OwnAdapter()], ids=["the adapter", "a user's adapter"])
def test_a_denied_file_fails_the_delivery_and_the_log_names_it(functions: Functions, adapter: LLMAdapter) -> None:
    """The provider is not asked. The state machine repeats the delivery, which continues the run once the role may read
    the file."""
    server = DialectServer(OPENAI, [Says("A cat.", stop="end_turn")]).start()
    config = LLMConfig(model=OPENAI.model, adapter="native", provider_options=OPENAI.options(server.origin))
    helper, registry = agent("helper", llm_config=config), AgentRegistry()
    registry.register(helper)
    functions.app.__dict__["agents"] = Agents(registry, adapter)
    event = functions.sample("call_model")
    functions.app.run(functions.app.executor.execute(helper, ["What is it?", png()], **ids(event)))
    with denied_reads(functions), pytest.raises(AccessDeniedError) as raised:
        functions.invoke("call_model", event)
    assert (raised.value.action, raised.value.resource) == ("s3:GetObject", FILE)
    assert [line for line in functions.lines() if "s3:GetObject" in str(line) and FILE in str(line)]
    assert server.requests == [] and functions.session(event["session_id"]).status == "running"
    assert sum(line.get("ModelErrors", 0) for line in functions.measures()) == 1
    assert functions.invoke("call_model", event)["next"] == "finish"
    assert functions.session(event["session_id"]).status == "completed" and len(server.requests) == 1
    server.stop()
