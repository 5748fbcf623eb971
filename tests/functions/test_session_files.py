"""The files of a deployed stage: the bucket in which they are, and the requests that clients get for them."""

from __future__ import annotations

import hashlib
from urllib.parse import parse_qs, urlsplit

import boto3
import pytest
from tests.functions.conftest import Functions
from tests.support.aws_resources import BUCKET

from helix.core.errors import FileMissingError
from helix.services.blob_rows import blob_owner, owner_prefix
from helix.services.session_files import SessionFiles

HOST = f"{BUCKET}.s3.us-east-1.amazonaws.com"
"""The host that the console's page may connect to. Without the regional endpoint, us-east-1 would have another one."""
OWNER = blob_owner("ada", "")
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


def test_a_function_that_uses_no_files_makes_no_client_for_them(functions: Functions) -> None:
    assert files_of(functions) is functions.app.engine.files and "s3" not in functions.app._clients
