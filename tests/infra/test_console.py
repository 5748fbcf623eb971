"""The resources of a stage's console: a private bucket behind CloudFront, a function without rights, or nothing."""

from __future__ import annotations

from typing import Any

import pytest
from tests.infra.conftest import OFFLINE, Synth
from tests.infra.templates import Assembly, Template, text
from tests.infra.test_roles import rights_of

from helix.core.ledger import total
from helix.fleet.idle import idle_lines, unpriced
from helix.infra.config import SettingsError, read_settings

LOCAL_PAGES = "http://127.0.0.1:*"

pytestmark = [pytest.mark.timeout(400), pytest.mark.slow]  # its own synthesis

SIGN_IN = {
    "auth": "keys,jwt",
    "jwt_issuer": "https://id.example.com/pool",
    "jwt_audience": "helix-console",
    "jwks_url": "https://id.example.com/pool/keys.json",
    "console_client_id": "helix-console",
    "console_origins": "https://login.example.com",
    "page_origins": "https://chat.example.com",
}


@pytest.fixture(scope="module")
def cloudfront(synth: Synth) -> Template:
    return synth({"console": "cloudfront", **SIGN_IN}).main


@pytest.fixture(scope="module")
def http(synth: Synth) -> Template:
    """Offline there is no CloudFront."""
    return synth({**OFFLINE, "console": "cloudfront"}).main


def bucket_of(template: Template) -> str:
    return template.id_of("S3::Bucket", LifecycleConfiguration=None)


def files_of(template: Template) -> str:
    """Return the id of the bucket with the files of sessions."""
    (id_,) = [id_ for id_, bucket in template.of("S3::Bucket").items() if "LifecycleConfiguration" in bucket]
    return id_


def test_without_the_setting_there_is_none(deployed: Assembly, offline: Assembly) -> None:
    for assembly in (deployed, offline):
        kinds = {resource["Type"] for resource in assembly.main.resources.values()}
        assert not [kind for kind in kinds if "CloudFront" in kind or kind.startswith("Custom::")]
        assert len(assembly.main.of("S3::Bucket")) == 1 and "ConsoleUrl" not in assembly.main.text["Outputs"]
        assert not [r for r in assembly.main.of("ApiGatewayV2::Route").values() if "console" in r["RouteKey"]]


def test_the_bucket_is_private_and_the_distribution_alone_reads_it(cloudfront: Template) -> None:
    id_ = bucket_of(cloudfront)
    bucket = cloudfront.of("S3::Bucket")[id_]
    assert set(bucket["PublicAccessBlockConfiguration"].values()) == {True}
    assert cloudfront.resources[id_]["DeletionPolicy"] == "Delete", "its content is in the package"
    (policy,) = [p for p in cloudfront.of("S3::BucketPolicy").values() if p["Bucket"] == {"Ref": id_}]
    allowed = [s for s in policy["PolicyDocument"]["Statement"] if s["Effect"] == "Allow"]
    distribution = cloudfront.id_of("CloudFront::Distribution")
    (reads,) = allowed
    assert (reads["Action"], reads["Principal"]) == ("s3:GetObject", {"Service": "cloudfront.amazonaws.com"})
    assert text(reads["Condition"]["StringEquals"]["AWS:SourceArn"]).endswith(f":distribution/<{distribution}>")
    denied = [s["Condition"] for s in policy["PolicyDocument"]["Statement"] if s["Effect"] == "Deny"]
    assert {"Bool": {"aws:SecureTransport": "false"}} in denied


def test_the_distribution_serves_by_tls_with_signed_requests_and_no_logs(cloudfront: Template) -> None:
    made = cloudfront.one("CloudFront::Distribution")["DistributionConfig"]
    assert made["DefaultCacheBehavior"]["ViewerProtocolPolicy"] == "redirect-to-https"
    assert made["DefaultCacheBehavior"]["AllowedMethods"] == ["GET", "HEAD"]
    assert (made["PriceClass"], made["DefaultRootObject"]) == ("PriceClass_100", "index.html")
    assert "Logging" not in made
    (origin,) = made["Origins"]
    assert text(origin["DomainName"]) == f"<{bucket_of(cloudfront)}.RegionalDomainName>"
    assert text(origin["OriginAccessControlId"]) == f"<{cloudfront.id_of('CloudFront::OriginAccessControl')}.Id>"
    signing = cloudfront.one("CloudFront::OriginAccessControl")["OriginAccessControlConfig"]
    assert (signing["SigningBehavior"], signing["SigningProtocol"]) == ("always", "sigv4")


def test_every_answer_has_the_headers_of_the_page(cloudfront: Template) -> None:
    policy = cloudfront.id_of("CloudFront::ResponseHeadersPolicy")
    behaviour = cloudfront.one("CloudFront::Distribution")["DistributionConfig"]["DefaultCacheBehavior"]
    assert behaviour["ResponseHeadersPolicyId"] == {"Ref": policy}
    made = cloudfront.one("CloudFront::ResponseHeadersPolicy")["ResponseHeadersPolicyConfig"]
    headers = made["SecurityHeadersConfig"]
    said = text(headers["ContentSecurityPolicy"]["ContentSecurityPolicy"])
    parts = dict(part.split(" ", 1) for part in said.split("; "))
    api = cloudfront.id_of("ApiGatewayV2::Api", ProtocolType="WEBSOCKET")
    socket = f"wss://<{api}>.execute-api.<AWS::Region>.<AWS::URLSuffix>/dev"
    files = f"https://<{files_of(cloudfront)}.RegionalDomainName>"
    assert parts["connect-src"] == f"'self' {socket} https://id.example.com https://login.example.com {files}"
    assert parts["img-src"] == f"'self' blob: {files}"
    assert parts["default-src"] == parts["frame-ancestors"] == parts["base-uri"] == "'none'" and "unsafe" not in said
    assert headers["StrictTransportSecurity"]["AccessControlMaxAgeSec"] == 31_536_000
    assert headers["ReferrerPolicy"]["ReferrerPolicy"] == "no-referrer" and "ContentTypeOptions" in headers


def test_the_files_and_the_configuration_are_uploaded_by_a_role_of_the_stage(cloudfront: Template) -> None:
    (upload,) = [r["Properties"] for r in cloudfront.resources.values() if r["Type"] == "Custom::CDKBucketDeployment"]
    assert upload["DestinationBucketName"] == {"Ref": bucket_of(cloudfront)}
    assert (upload["DistributionPaths"], upload["RetainOnDelete"], upload["Prune"]) == (["/*"], False, True)
    (function,) = [f for id_, f in cloudfront.of("Lambda::Function").items() if id_.startswith("CustomCDK")]
    role = cloudfront.role_of(function)
    assert role.startswith("ConsoleUploadRole"), "this role also has the boundary of the stage's roles"
    writes = [s for s in cloudfront.statements(role) if "s3:PutObject" in s["Action"]]
    assert {text(arn).partition(".Arn>")[0] for s in writes for arn in s["Resource"]} == {f"<{bucket_of(cloudfront)}"}


def cors_of(template: Template) -> dict[str, Any]:
    (rule,) = template.of("S3::Bucket")[files_of(template)]["CorsConfiguration"]["CorsRules"]
    assert isinstance(rule, dict)
    return rule


def test_only_pages_of_the_stage_send_files_to_its_bucket(cloudfront: Template, http: Template, synth: Synth) -> None:
    rule = cors_of(cloudfront)
    assert (rule["AllowedMethods"], rule["AllowedHeaders"]) == (
        ["PUT", "GET"],
        ["content-type", "x-amz-checksum-sha256"],
    )
    assert rule["AllowedOrigins"] == ["https://*.cloudfront.net", "https://chat.example.com", LOCAL_PAGES]
    assert "CorsConfiguration" not in cloudfront.of("S3::Bucket")[bucket_of(cloudfront)], "the page's own bucket"
    assert [text(origin) for origin in cors_of(http)["AllowedOrigins"]] == ["<Endpoint>", LOCAL_PAGES]
    deployed = synth({"console": "http"}).main
    api = deployed.id_of("ApiGatewayV2::Api", ProtocolType="HTTP")
    assert [text(origin) for origin in cors_of(deployed)["AllowedOrigins"]] == [
        f"https://<{api}>.execute-api.<AWS::Region>.<AWS::URLSuffix>",
        LOCAL_PAGES,
    ]


def test_a_stage_without_pages_takes_files_from_the_console_on_this_machine(deployed: Assembly) -> None:
    (rule,) = deployed.main.one("S3::Bucket")["CorsConfiguration"]["CorsRules"]
    assert rule["AllowedOrigins"] == [LOCAL_PAGES]


def test_a_stage_with_a_console_costs_no_more_at_rest(cloudfront: Template, http: Template) -> None:
    for template in (cloudfront, http):
        own = {
            id_: r
            for id_, r in template.resources.items()
            if id_.startswith(("Console", "CustomCDK", "FunctionsServe"))
        }
        rest = {id_: r for id_, r in template.resources.items() if id_ not in own}
        assert own and unpriced([template.text]) == []
        assert total(idle_lines([template.text])) == total(idle_lines([{"Resources": rest}]))


def test_over_http_a_function_without_rights_serves_it(http: Template) -> None:
    function = http.function("serve_console")
    assert {what for what, _ in rights_of(http, http.role_of(function))} == {"log"}, "its own"
    known = text(function["Environment"]["Variables"]["HELIX_CONSOLE"])
    assert known.endswith('","files":"<Endpoint>","place":"stage dev","sign_in":["key"]}'), "and no issuer"
    others = [f for f in http.of("Lambda::Function").values() if "HELIX_CONSOLE" in f["Environment"]["Variables"]]
    assert others == [function]
    routes = {"GET /console", "GET /console/{file}"}
    assert routes <= {r["RouteKey"] for r in http.of("ApiGatewayV2::Route").values()}
    (stage,) = [p for p in http.of("ApiGatewayV2::Stage").values() if p["StageName"] == "$default"]
    assert set(stage["RouteSettings"]) == routes
    assert text(http.text["Outputs"]["ConsoleUrl"]["Value"]).endswith("/console/index.html")
    assert not http.of("CloudFront::Distribution")


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"console": "s3"}, "'console'"),
        ({"console_client_id": "a"}, "belongs to auth=jwt"),
        ({"console": "http", **SIGN_IN, "auth": "jwt", "console_client_id": ""}, "no other way to sign in"),
        ({"console": "http", **SIGN_IN, "jwt_issuer": "me"}, "must be an address"),
        ({"console": "http", **SIGN_IN, "jwt_issuer": "https://a.example;img-src *"}, "must be an address"),
        ({"console": "http", **SIGN_IN, "console_origins": "login.example.com"}, "is not an origin"),
        ({"console": "http", **SIGN_IN, "console_origins": "https://a.example 'unsafe-inline'"}, "is not an origin"),
        ({"console": "http", **SIGN_IN, "console_origins": "https://a.example/path"}, "is not an origin"),
        ({"page_origins": "https://*.example.com"}, "page_origins"),
        ({"console": "http", **SIGN_IN, "console_scope": "email"}, "'console_scope'"),
    ],
)
def test_what_does_not_fit_is_named(given: dict[str, Any], problem: str) -> None:
    with pytest.raises(SettingsError) as caught:
        read_settings(given)
    assert problem in str(caught.value)
