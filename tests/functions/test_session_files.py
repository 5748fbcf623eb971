"""The files of a deployed stage: the bucket in which they are, and the requests that clients get for them."""

from __future__ import annotations

import hashlib
from typing import Any
from urllib.parse import parse_qs, urlsplit

import boto3
import pytest
from tests.functions.conftest import Functions
from tests.support.aws_resources import BUCKET

from helix.adapters.aws.blobs import S3Blobs
from helix.core.errors import FileMissingError
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
