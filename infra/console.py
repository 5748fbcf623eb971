"""The console of a stage: a function behind the HTTP API, or a private bucket behind CloudFront, or, by default, nothing.

Law: an idle console costs nothing. The files come from the package, and the page's settings for the stage are public. Only
the CloudFront distribution can read the bucket. The page may connect only to the stage's WebSocket API, to the bucket of
sessions' files, and to the sign-in endpoints.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aws_cdk import Duration, RemovalPolicy, Stack, Token
from aws_cdk import aws_cloudfront as cloudfront
from aws_cdk import aws_cloudfront_origins as origins
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_s3_assets as assets
from aws_cdk import aws_s3_deployment as deployment
from constructs import Construct

from helix.gateway.console_page import CONFIG, HSTS_S, PAGE, STATIC, connections_of, content_policy, files_of
from helix.infra.config import Settings, SettingsError
from helix.infra.endpoints import Endpoints
from helix.infra.function import Function
from helix.infra.keys import Keys
from helix.infra.logs import log_group
from helix.infra.nag import explain, explain_objects, explain_resource
from helix.infra.names import Names
from helix.infra.regions import console_problem
from helix.infra.sockets import Sockets
from helix.infra.storage import Storage

FRESH = "public, max-age=0, s-maxage=31536000, must-revalidate"
"""The cache policy of a file. CloudFront keeps it until the next deployment; a browser revalidates it each time."""
UPLOAD_MB = 256
ANY_DISTRIBUTION = "https://*.cloudfront.net"
"""The page's origin in the CORS rule of the bucket with the sessions' files. The distribution's headers name that bucket,
so the bucket cannot name the distribution: CloudFormation would have to create each before the other. The headers are
exact, because they restrict to which hosts a page may send data. The rule need not be exact, because it grants nothing: a
request needs the signature that a session's user got, and no cookie stands in for it."""


class Console(Construct):
    """The console of a stage. `config`: the page's settings for the stage, as JSON. `url`: the URL of the page; None if
    the stage does not serve it."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        settings: Settings,
        names: Names,
        keys: Keys,
        sockets: Sockets,
        storage: Storage,
    ) -> None:
        super().__init__(scope, construct_id)
        self._kind = settings.served_console
        self.url: str | None = None
        if self._kind == "off":
            return
        region = Stack.of(self).region
        if not Token.is_unresolved(region) and (problem := console_problem(self._kind, region)) is not None:
            raise SettingsError(problem)
        known = site_config(settings, sockets.url, storage.files_origin(sockets.endpoint))
        self.config: str = Stack.of(self).to_json_string(known)
        if self._kind == "cloudfront":
            bucket = self._bucket()
            distribution = self._distribution(bucket, names, known)
            self._upload(bucket, distribution, known, settings, names, keys)
            self.url = f"https://{distribution.distribution_domain_name}/{PAGE}"

    @property
    def verbs(self) -> list[str]:
        """Return the verbs of the functions that the stage has for the console."""
        return ["serve_console"] if self._kind == "http" else []

    def serve(self, functions: Mapping[str, Function], endpoints: Endpoints) -> None:
        if self.verbs:
            endpoints.serve_console(functions["serve_console"])
            self.url = f"{endpoints.url}/console/{PAGE}"

    def page_origins(self, endpoints: Endpoints) -> list[str]:
        """Return the origins of the page, for the CORS rule of the bucket with the sessions' files."""
        return {"off": [], "http": [endpoints.origin], "cloudfront": [ANY_DISTRIBUTION]}[self._kind]

    def outputs(self) -> dict[str, tuple[str, str]]:
        return {"ConsoleUrl": (self.url, "The console; the issuer redirects browsers to it")} if self.url else {}

    def _bucket(self) -> s3.Bucket:
        """Create the bucket for the page. It does not need a backup, because its content is public and the next deployment
        restores it."""
        bucket = s3.Bucket(
            self,
            "Bucket",
            encryption=s3.BucketEncryption.S3_MANAGED,
            block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
            object_ownership=s3.ObjectOwnership.BUCKET_OWNER_ENFORCED,
            enforce_ssl=True,
            minimum_tls_version=1.2,
            removal_policy=RemovalPolicy.DESTROY,
        )
        explain(bucket, "S1", "Only the distribution reads the bucket, which contains the files of a public page.")
        return bucket

    def _distribution(self, bucket: s3.Bucket, names: Names, known: Mapping[str, Any]) -> cloudfront.Distribution:
        distribution = cloudfront.Distribution(
            self,
            "Distribution",
            comment=f"Helix, stage {names.stage}: the console",
            default_root_object=PAGE,
            price_class=cloudfront.PriceClass.PRICE_CLASS_100,
            http_version=cloudfront.HttpVersion.HTTP2_AND_3,
            default_behavior=cloudfront.BehaviorOptions(
                origin=origins.S3BucketOrigin.with_origin_access_control(bucket),
                viewer_protocol_policy=cloudfront.ViewerProtocolPolicy.REDIRECT_TO_HTTPS,
                allowed_methods=cloudfront.AllowedMethods.ALLOW_GET_HEAD,
                cache_policy=cloudfront.CachePolicy.CACHING_OPTIMIZED,
                response_headers_policy=self._headers(names, known),
                compress=True,
            ),
        )
        explain(distribution, "CFR1", "The stage decides which users may sign in, in any country.")
        explain(distribution, "CFR2", "The files are public, and a firewall costs $5 a month even without requests.")
        explain(
            distribution, "CFR3", "There are no access logs by default, because they contain IP addresses of users."
        )
        explain(distribution, "CFR4", "CloudFront sets the certificate and the TLS versions of its own domain name.")
        return distribution

    def _headers(self, names: Names, known: Mapping[str, Any]) -> cloudfront.ResponseHeadersPolicy:
        return cloudfront.ResponseHeadersPolicy(
            self,
            "Headers",
            response_headers_policy_name=names.of("console"),
            comment=f"Helix, stage {names.stage}: the console",
            security_headers_behavior=cloudfront.ResponseSecurityHeadersBehavior(
                content_security_policy=cloudfront.ResponseHeadersContentSecurityPolicy(
                    content_security_policy=content_policy(connections_of(dict(known)), files_of(dict(known))),
                    override=True,
                ),
                content_type_options=cloudfront.ResponseHeadersContentTypeOptions(override=True),
                referrer_policy=cloudfront.ResponseHeadersReferrerPolicy(
                    referrer_policy=cloudfront.HeadersReferrerPolicy.NO_REFERRER, override=True
                ),
                strict_transport_security=cloudfront.ResponseHeadersStrictTransportSecurity(
                    access_control_max_age=Duration.seconds(HSTS_S), override=True
                ),
            ),
            custom_headers_behavior=cloudfront.ResponseCustomHeadersBehavior(
                custom_headers=[
                    cloudfront.ResponseCustomHeader(
                        header=f"cross-origin-{part}-policy", value="same-origin", override=True
                    )
                    for part in ("opener", "resource")
                ]
            ),
        )

    def _upload(
        self,
        bucket: s3.Bucket,
        distribution: cloudfront.Distribution,
        known: Mapping[str, Any],
        settings: Settings,
        names: Names,
        keys: Keys,
    ) -> None:
        """Upload the files during the deployment with a CDK-provided function, which also invalidates CloudFront's
        cache."""
        role = iam.Role(
            self,
            "UploadRole",
            assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"),
            description=f"Permissions of the function that uploads the console of stage {names.stage}",
        )
        group = log_group(self, "UploadLogs", f"/aws/lambda/{names.of('upload_console')}", settings=settings, keys=keys)
        group.grant_write(role)
        deployment.BucketDeployment(
            self,
            "Files",
            sources=[deployment.Source.asset(str(STATIC)), deployment.Source.json_data(CONFIG, dict(known))],
            destination_bucket=bucket,
            distribution=distribution,
            distribution_paths=["/*"],
            cache_control=[deployment.CacheControl.from_string(FRESH)],
            retain_on_delete=False,
            memory_limit=UPLOAD_MB,
            log_group=group,
            role=role,
        )
        for action in ("GetBucket*", "GetObject*", "List*", "DeleteObject*", "Abort*"):
            explain(
                role,
                f"IAM5[Action::s3:{action}]",
                "CDK grants these on its asset bucket and the console's bucket.",
            )
        explain_objects(role, bucket, "*", "The role uploads all files of the page.")
        explain_resource(role, _assets(self), "The page is copied from CDK's asset bucket, where names are hashes.")
        explain_resource(
            role,
            "*",
            "CDK grants cloudfront:CreateInvalidation on all resources. It only clears caches and reads no data.",
        )


def _assets(scope: Construct) -> str:
    """Return the ARN pattern of all assets of the app, wherever its synthesizer puts them."""
    asset = assets.Asset(scope, "Page", path=str(STATIC))
    arn: str = asset.bucket.arn_for_objects("*")
    return arn


def site_config(settings: Settings, url: str, files: str) -> dict[str, Any]:
    """Return the page's settings for the stage. `url`: the URL of the WebSocket API. `files`: the origin of presigned
    URLs."""
    known: dict[str, Any] = {"url": url, "files": files, "place": f"stage {settings.stage}", "sign_in": []}
    if "keys" in settings.auth:
        known["sign_in"].append("key")
    if settings.console_client_id:
        known["sign_in"].append("oidc")
        known["oidc"] = {
            "issuer": settings.jwt_issuer,
            "client_id": settings.console_client_id,
            "scope": settings.console_scope,
            "audience": settings.jwt_audience,
            # The audience of an ID token is the client; that of an access token is the requested one.
            "token": "id_token" if settings.jwt_audience == settings.console_client_id else "access_token",
            "origins": list(settings.console_origins),
        }
    return known
