"""The request filter of the offline cloud: attacks of a web page or of another user of the machine, on the emulator.

Every request goes over a plain socket, as on the wire. `ATTACKS` are requests that did harm before the filter existed.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import psutil
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError
from tests.support.emulator_desk import REGION, Desk, started
from tests.support.hostile_requests import attack
from websockets import Origin
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from helix.local.credentials import Credentials

pytestmark = pytest.mark.xdist_group("cloud")

NOW = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
TEST = (
    f"AWS4-HMAC-SHA256 Credential=test/{NOW[:8]}/us-east-1/lambda/aws4_request, "
    f"SignedHeaders=host;x-amz-date;x-amz-target, Signature={'0' * 64}"
)
NUMBER = TEST.replace("=test/", "=000000000000/")
PLAIN = {"content-type": "text/plain"}
TABLES = {"x-amz-target": "DynamoDB_20120810.ListTables", "content-type": "application/x-amz-json-1.0"}


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    with started(tmp_path_factory.mktemp("emulator")) as made:
        storage = made.client("s3")
        storage.create_bucket(Bucket="secrets")
        storage.put_object(Bucket="secrets", Key="one", Body=b"a secret")
        yield made


class Answer:
    def __init__(self, status: int, headers: dict[str, str], body: str) -> None:
        self.status, self.headers, self.body = status, headers, body


def send(desk: Desk, method: str, path: str, headers: Any = (), body: bytes = b"", host: str | None = "own") -> Answer:
    """Send a request. `host=None` leaves the Host header out, and "own" is the correct one."""
    port = desk.emulator.port
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=30)) as wire:
        wire.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
        if host is not None:
            wire.putheader("Host", f"127.0.0.1:{port}" if host == "own" else host.format(port=port))
        for name, value in dict(headers).items():
            wire.putheader(name, value)
        wire.putheader("Content-Length", str(len(body)))
        wire.endheaders(body)
        done = wire.getresponse()
        found = {name.lower(): value for name, value in done.getheaders()}
        return Answer(done.status, found, done.read().decode())


def is_whole(desk: Desk) -> bool:
    return [b["Name"] for b in desk.client("s3").list_buckets()["Buckets"]] == ["secrets"]


ATTACKS = {
    "a simple POST that wipes all": ("POST", "/_ministack/reset", PLAIN),
    "the same, with a form": ("POST", "/_ministack/reset", {"content-type": "application/x-www-form-urlencoded"}),
    "the same, behind a query": ("POST", "/_ministack/reset?init=1", PLAIN),
    "the same, percent-encoded": ("POST", "/%5fministack/reset", PLAIN),
    "the emulator's settings": ("POST", "/_ministack/config", PLAIN),
    "the code of functions": ("GET", "/_ministack/lambda-code/000000000000/us-east-1/x", {}),
    "a health page with details": ("GET", "/_ministack/health", {}),
    "its other name": ("GET", "/_localstack/health", {}),
    "and its third": ("GET", "/health", {}),
    "an object, read": ("GET", "/secrets/one", {}),
    "an object, read behind two slashes": ("GET", "//secrets/one", {}),
    "an object, read through the path of an API": ("GET", "/_aws/execute-api/x/../../../secrets/one", {}),
    "a list of tables": ("POST", "/", TABLES),
    "a list of tables, with the key `test`": ("POST", "/", {**TABLES, "authorization": TEST, "x-amz-date": NOW}),
    "a list of tables, with the account as the key": (
        "POST",
        "/",
        {**TABLES, "authorization": NUMBER, "x-amz-date": NOW},
    ),
    "a list of functions": ("GET", "/2015-03-31/functions/", {"authorization": TEST, "x-amz-date": NOW}),
    "a function, called": ("POST", "/2015-03-31/functions/x/invocations", {"authorization": TEST, "x-amz-date": NOW}),
    "a function, called by its URL": ("POST", "/_aws/lambda-url/x/", {}),
    "a presigned URL of the key `test`": (
        "GET",
        "/secrets/one?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=test%2F"
        + NOW[:8]
        + "%2Fus-east-1%2Fs3%2Faws4_request"
        f"&X-Amz-Date={NOW}&X-Amz-Expires=604800&X-Amz-SignedHeaders=host&X-Amz-Signature={'0' * 64}",
        {},
    ),
    "version 2 of signatures": ("GET", "/secrets/one?AWSAccessKeyId=test&Expires=4102444800&Signature=x", {}),
    "a role, assumed without a signature": ("POST", "/?Action=AssumeRoleWithWebIdentity&Version=2011-06-15", PLAIN),
    "a message to a connection": ("POST", "/_aws/execute-api/abc/dev/@connections/x", PLAIN),
    "the same, behind two slashes": ("POST", "/_aws/execute-api/abc//@connections/x", PLAIN),
    "to a connection, percent-encoded": ("POST", "/_aws/execute-api/abc/dev/%40connections/x", PLAIN),
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_nothing_is_given_without_a_signature(desk: Desk, attack: str) -> None:
    method, path, headers = ATTACKS[attack]
    answer = send(desk, method, path, headers, b"{}" if method == "POST" else b"")
    assert answer.status in (400, 403), answer.body
    assert "a secret" not in answer.body and "TableNames" not in answer.body and "services" not in answer.body
    assert is_whole(desk)


def test_administration_is_closed_to_who_has_credentials_too(desk: Desk) -> None:
    """A function of the app has credentials, and a model may decide what the function does."""
    url = f"{desk.emulator.url}/_ministack/reset"
    request = signed(desk, "POST", url, "s3")
    assert send(desk, "POST", "/_ministack/reset", request).status == 403
    assert is_whole(desk)


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:{port}",
        "evil.example.:{port}",
        "localhost.:{port}",
        "127.0.0.1.evil.example:{port}",
        "127.0.0.1:1",
        "127.0.0.1",
        "localhost",
        "[::1]",
        "[::ffff:127.0.0.1]:{port}",
        "secrets.localhost:{port}",
        "abcdef12.execute-api.localhost:{port}",
        "",
    ],
)
def test_another_host_is_refused_on_every_path(desk: Desk, host: str) -> None:
    """A page of evil.example, whose name resolves to 127.0.0.1 a moment later, has the same origin as the emulator."""
    for path in ("/_aws/execute-api/abc/dev/health", "/secrets/one"):
        answer = send(desk, "GET", path, host=host)
        assert answer.status == 403 and "the host is" in answer.body


def test_no_host_and_two_hosts_are_refused(desk: Desk) -> None:
    own = f"Host: 127.0.0.1:{desk.emulator.port}\r\n"
    path = "/_aws/execute-api/abc/dev/health"
    for lines, version in (("", "1.0"), ("", "1.1"), (own * 2, "1.1"), (own + "Host: evil.example\r\n", "1.1")):
        answer = raw(desk, f"GET {path} HTTP/{version}\r\n{lines}Connection: close\r\n\r\n")
        assert answer.startswith((b"HTTP/1.1 400", b"HTTP/1.1 403")), answer


def test_each_request_of_a_connection_is_judged(desk: Desk) -> None:
    """The requests are pipelined, and have the target in its absolute form."""
    own = f"Host: 127.0.0.1:{desk.emulator.port}\r\n"
    first = f"GET /_aws/execute-api/abc/dev/health HTTP/1.1\r\n{own}\r\n"
    second = f"POST /_ministack/reset HTTP/1.1\r\n{own}Content-Length: 0\r\n\r\n"
    third = f"GET http://127.0.0.1:{desk.emulator.port}/secrets/one HTTP/1.1\r\n{own}Connection: close\r\n\r\n"
    answer = raw(desk, first + second + third)
    done = [line.split()[1] for line in answer.splitlines() if line.startswith(b"HTTP/1.1 ")]
    assert done[0] == b"404" and set(done[1:]) <= {b"403"} and b"a secret" not in answer
    assert is_whole(desk)


@pytest.mark.parametrize("host", ["127.0.0.1:{port}", "localhost:{port}", "LocalHost:{port}", "[::1]:{port}"])
def test_names_of_loopback_are_its_own(desk: Desk, host: str) -> None:
    assert send(desk, "GET", "/_aws/execute-api/abc/dev/health", host=host).status == 404  # this API does not exist


FOREIGN = [
    {"origin": "https://evil.example"},
    {"origin": "http://evil.example:{port}"},
    {"origin": "null"},
    {"origin": ""},
    {"origin": "file://"},
    {"origin": "http://localhost.evil.example"},
    {"origin": "http://127.0.0.1.evil.example:{port}"},
    {"origin": "http://localhost@evil.example"},
    {"origin": "http://[::1"},
    {"sec-fetch-site": "cross-site"},
    {"sec-fetch-site": "same-site"},
    {"origin": "https://evil.example", "sec-fetch-site": "same-origin"},
]


@pytest.mark.parametrize("headers", FOREIGN, ids=str)
def test_pages_of_another_origin_are_refused(desk: Desk, headers: dict[str, str]) -> None:
    """This includes the API, which a page could call with a token from elsewhere, and requests with a correct signature."""
    given = {name: value.format(port=desk.emulator.port) for name, value in headers.items()}
    assert send(desk, "GET", "/_aws/execute-api/abc/dev/health", given).status == 403
    request = signed(desk, "GET", f"{desk.emulator.url}/secrets/one", "s3")
    assert send(desk, "GET", "/secrets/one", request).status == 200
    assert send(desk, "GET", "/secrets/one", {**request, **given}).status == 403


def test_a_page_of_another_port_may_ask_the_api_alone(desk: Desk) -> None:
    """This is the developer's own page, on the port of its own server. It needs a token, as on AWS."""
    page = {"origin": "http://localhost:5173", "sec-fetch-site": "cross-site"}
    assert send(desk, "GET", "/_aws/execute-api/abc/dev/health", page).status == 404
    request = signed(desk, "GET", f"{desk.emulator.url}/secrets/one", "s3")
    assert send(desk, "GET", "/secrets/one", {**request, **page}).status == 403


def test_a_link_or_an_issuer_may_lead_to_a_page_of_the_api(desk: Desk) -> None:
    """Such a link may lead to nothing else, and no page can read the response."""
    link = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
    page = "/_aws/execute-api/abc/console/index.html"
    assert send(desk, "GET", page, link).status == 404
    for worse in ({"sec-fetch-dest": "iframe"}, {"sec-fetch-mode": "no-cors"}, {"origin": "https://evil.example"}):
        assert send(desk, "GET", page, {**link, **worse}).status == 403
    assert send(desk, "POST", page, link).status == 403
    request = signed(desk, "GET", f"{desk.emulator.url}/secrets/one", "s3")
    assert send(desk, "GET", "/secrets/one", {**request, **link}).status == 403


def test_no_page_may_read_what_services_answer(desk: Desk) -> None:
    """MiniStack allows all pages: `Access-Control-Allow-Origin: *`."""
    asked = {"origin": f"http://127.0.0.1:{desk.emulator.port}", "access-control-request-method": "PUT"}
    preflight = send(desk, "OPTIONS", "/", asked)
    assert preflight.status == 403
    answers = [preflight, send(desk, "POST", "/", TABLES)]
    request = signed(desk, "POST", f"{desk.emulator.url}/", "dynamodb", TABLES, b"{}")
    answers.append(send(desk, "POST", "/", request, b"{}"))
    assert answers[-1].status == 200 and "TableNames" in answers[-1].body
    assert [name for answer in answers for name in answer.headers if name.startswith("access-control")] == []


def test_sockets_are_for_pages_of_this_machine(desk: Desk) -> None:
    with desk.socket() as own:
        url = f"ws://127.0.0.1:{desk.emulator.port}{own.path}"
        for origin in (Origin("https://evil.example"), Origin("null")):
            with pytest.raises(InvalidStatus) as refused, connect(url, proxy=None, origin=origin):
                pass
            assert refused.value.response.status_code == 403
        with connect(url, proxy=None, origin=Origin("http://localhost:5173")):
            pass
        with socket.create_connection(("127.0.0.1", desk.emulator.port)) as wire:
            rebound: dict[str, Any] = {"additional_headers": {}, "sock": wire, "proxy": None}
            with pytest.raises(InvalidStatus), connect(url.replace("127.0.0.1", "evil.example"), **rebound):
                pass
    for path in ("/", "/graphql", "/mqtt"):
        with pytest.raises(InvalidStatus), connect(f"ws://127.0.0.1:{desk.emulator.port}{path}", proxy=None):
            pass


def test_presigned_urls_work_and_end(desk: Desk) -> None:
    storage = desk.client("s3", config=Config(signature_version="s3v4"))
    for method, body in (("put_object", b"changed"), ("get_object", b"")):
        url = storage.generate_presigned_url(method, {"Bucket": "secrets", "Key": "shared"}, ExpiresIn=60)
        path = url.removeprefix(desk.emulator.url)
        done = send(desk, "PUT" if body else "GET", path, body=body)
        assert done.status == 200, done.body
    assert done.body == "changed"
    assert send(desk, "GET", path.replace("/secrets/shared", "/secrets/one")).status == 403
    assert send(desk, "DELETE", path).status == 403
    assert send(desk, "GET", path.replace("Expires=60", "Expires=600")).status == 403
    short = storage.generate_presigned_url("get_object", {"Bucket": "secrets", "Key": "shared"}, ExpiresIn=1)
    time.sleep(2.1)
    assert send(desk, "GET", short.removeprefix(desk.emulator.url)).status == 403


def test_every_way_to_send_a_body_is_signed(desk: Desk) -> None:
    """The body is a file, as SDKs upload it, or a body with the hash of another one."""
    storage = desk.client("s3")
    with Path(__file__).open("rb") as file:
        storage.put_object(Bucket="secrets", Key="file", Body=file)
    assert storage.get_object(Bucket="secrets", Key="file")["Body"].read() == Path(__file__).read_bytes()
    request = signed(desk, "PUT", f"{desk.emulator.url}/secrets/two", "s3", body=b"right")
    assert send(desk, "PUT", "/secrets/two", request, b"wrong").status == 403
    assert send(desk, "PUT", "/secrets/two", request, b"right").status == 200
    assert send(desk, "PUT", "/secrets/two", {**request, "x-amz-acl": "public-read"}, b"right").status == 403
    storage.delete_object(Bucket="secrets", Key="two")


def test_each_start_has_credentials_of_its_own(desk: Desk, tmp_path: Path) -> None:
    before = desk.emulator.credentials
    with started(tmp_path) as other:
        assert other.emulator.credentials.access_key != before.access_key
        stale = other.client("sts", **before.options)
        with pytest.raises(ClientError, match="security token"):
            stale.get_caller_identity()
        role = other.client("iam").create_access_key(UserName=_user(other))["AccessKey"]
        user = Credentials(role["AccessKeyId"], role["SecretAccessKey"])
        assert other.client("sts", **user.options).get_caller_identity()["Arn"].endswith(":user/ada")
        wrong = Credentials(user.access_key, "wrong")
        with pytest.raises(ClientError, match="signature"):
            other.client("sts", **wrong.options).get_caller_identity()


def test_functions_have_sessions_of_their_role(desk: Desk) -> None:
    assert desk.invoke(desk.function(), do="call", of=desk.function())[0]["pid"]


def test_functions_can_do_all_where_iam_is_not_enforced(tmp_path: Path) -> None:
    with started(tmp_path, auth=False) as open_desk:
        assert open_desk.invoke(open_desk.function(), do="call", of=open_desk.function())[0]["pid"]
        answer = send(open_desk, "POST", "/", {**TABLES, "authorization": NUMBER, "x-amz-date": NOW}, b"{}")
        assert answer.status == 400 and "TableNames" not in answer.body


def test_no_process_shows_the_credentials_in_its_arguments(desk: Desk) -> None:
    desk.invoke(desk.function())
    shown = json.dumps([p.cmdline() for p in psutil.Process(os.getpid()).children(recursive=True)])
    assert "helix.local.emulator" in shown and "worker_process" in shown
    own = desk.emulator.credentials
    assert own.secret_key not in shown and own.access_key not in shown
    assert own.secret_key not in desk.emulator.log_path.read_text()


@pytest.mark.slow
def test_hostile_requests_are_answered_and_the_emulator_lives_on(desk: Desk) -> None:
    """They are the requests that the other servers get in `test_hostile_requests.py`."""
    paths = (
        "/",
        "/_aws/execute-api/abc/dev",
        "/_aws/execute-api/abc/dev/@connections/x",
        "/secrets/one",
        "/_ministack/health",
    )
    logged = len(desk.emulator.log_path.read_text())
    attack(desk.emulator.port, 15, paths, lambda: send(desk, "GET", "/_ministack/health").status == 403)
    assert desk.client("s3").get_object(Bucket="secrets", Key="one")["Body"].read() == b"a secret"
    assert "Traceback" not in desk.emulator.log_path.read_text()[logged:]


def _user(desk: Desk) -> str:
    desk.client("iam").create_user(UserName="ada")
    return "ada"


def signed(
    desk: Desk, method: str, url: str, service: str, headers: dict[str, str] | None = None, body: bytes = b""
) -> dict[str, str]:
    """Return the headers of a request that is signed with the emulator's own credentials."""
    from botocore.auth import S3SigV4Auth, SigV4Auth
    from botocore.awsrequest import AWSRequest

    session = boto3.Session(region_name=REGION, **desk.emulator.credentials.options)
    request = AWSRequest(method, url, headers={"Host": url.split("/")[2], **(headers or {})}, data=body)
    signer = S3SigV4Auth if service == "s3" else SigV4Auth
    signer(session.get_credentials(), service, REGION).add_auth(request)
    return {name: value for name, value in request.headers.items() if name.lower() != "host"}


def raw(desk: Desk, text: str) -> bytes:
    with socket.create_connection(("127.0.0.1", desk.emulator.port), timeout=30) as wire:
        wire.sendall(text.encode())
        found = b""
        while piece := wire.recv(65536):
            found += piece
        return found
