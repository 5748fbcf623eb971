"""The durable storage of a stage: three tables, and a bucket for files and for data that is too large for an item.

Law: everything is encrypted. Tables have point-in-time recovery and on-demand billing. A grant contains only actions that
its grantee calls, and never a scan. IAM authorises a transaction by the individual writes and checks in it. The template
does not set deletion protection, because the rollback of a failed first deployment could then not delete the tables. `helix
deploy` sets it afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from aws_cdk import CfnParameter, Duration, RemovalPolicy
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3 as s3
from constructs import Construct

from helix.adapters.aws.overflow import EXPIRY_DAYS, expiring_prefix
from helix.infra.config import Settings
from helix.infra.keys import READ_KEY, WRITE_KEY, Keys
from helix.infra.nag import explain, explain_objects, explain_resource
from helix.infra.names import Names

TableName = Literal["sessions", "streams", "control"]
TABLES: tuple[TableName, ...] = ("sessions", "streams", "control")
WARMED = ("sessions", "streams")
"""The tables with warm throughput. Each step writes to these tables, whereas `control` is written per run."""
TTL_ATTRIBUTE = "ttl"
GET, GET_SEVERAL, QUERY = "dynamodb:GetItem", "dynamodb:BatchGetItem", "dynamodb:Query"
PUT, UPDATE, DELETE, CHECK = (f"dynamodb:{verb}Item" for verb in ("Put", "Update", "Delete", "ConditionCheck"))
FOLLOW = ("dynamodb:DescribeStream", "dynamodb:GetRecords", "dynamodb:GetShardIterator")
READING = frozenset({GET, GET_SEVERAL, QUERY})
OVERFLOW = "overflow/"
FILES = "blobs/"
"""The prefix of the bytes of messages' and tools' files (`helix.services.blob_rows`)."""
FAILED = "failed/"
"""The prefix under which `project_stream` stores records that it cannot read."""
GIVEN_UP = "aws/lambda/"
"""The prefix, fixed by Lambda, under which Lambda stores records that `project_stream` could not process."""
UPLOAD_HEADERS = ("content-type", "x-amz-checksum-sha256")
"""The headers that a page's script sets on an upload. The browser sets content-length itself."""
CORS_S = 3_000
"""The number of seconds for which a browser may remember that a page's requests are admitted."""
FileVerb = Literal["Get", "Put", "Delete"]
RETAINED_DAYS = 14
"""The number of days for which both kinds of records are kept for inspection."""


LOCAL_PAGES = "http://127.0.0.1:*"
"""The origins of the page that `helix console --stage` serves on the user's machine."""


class Storage(Construct):
    """The tables and the bucket of a stage. If functions append to the log themselves, the log's table has a DynamoDB
    stream."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        settings: Settings,
        names: Names,
        keys: Keys,
        removal: RemovalPolicy,
    ) -> None:
        super().__init__(scope, construct_id)
        self._keys, self._settings = keys, settings
        self.tables = {table: self._table(table, names, removal) for table in TABLES}
        self.bucket = self._bucket(removal)

    def grant_rows(self, grantee: iam.IGrantable, table: TableName, *actions: str) -> None:
        """Let `grantee` perform these actions on the rows of a table, and use the key for them."""
        arn = self.tables[table].table_arn
        iam.Grant.add_to_principal(grantee=grantee, actions=list(actions), resource_arns=[arn])
        key = READ_KEY if set(actions) <= READING else WRITE_KEY
        self._keys.grant_use(grantee, services=["dynamodb"], actions=key)

    def grant_overflow(self, grantee: iam.IGrantable) -> None:
        """Let `grantee` read and write the objects that rows and chunks point to."""
        self._grant_overflow(grantee, "s3:GetObject", "s3:PutObject")

    def grant_overflow_and_removal(self, grantee: iam.IGrantable) -> None:
        """Let `grantee` read, write and delete the objects that rows and chunks point to."""
        self._grant_overflow(grantee, "s3:GetObject", "s3:PutObject", "s3:DeleteObject")

    def _grant_overflow(self, grantee: iam.IGrantable, *actions: str) -> None:
        why = "The objects of all sessions share one prefix. Rows determine which of them are read."
        self._grant_objects(grantee, actions, OVERFLOW, why)
        # Without this permission S3 responds "denied" instead of "not found".
        self._grant_list(grantee)

    def grant_follow(self, grantee: iam.IGrantable) -> str:
        """Let `grantee` read the stream of the log's table. Returns the stream's ARN."""
        arn: str | None = self.tables["streams"].table_stream_arn
        assert arn is not None, "the log is not followed"
        iam.Grant.add_to_principal(grantee=grantee, actions=list(FOLLOW), resource_arns=[arn])
        iam.Grant.add_to_principal(grantee=grantee, actions=["dynamodb:ListStreams"], resource_arns=["*"])
        explain_resource(grantee, "*", "dynamodb:ListStreams has no resource type: it names streams, and reads none.")
        self._keys.grant_use(grantee, services=["dynamodb"], actions=READ_KEY)
        return arn

    def grant_overflow_read(self, grantee: iam.IGrantable) -> None:
        """Let `grantee` read the objects that rows and chunks point to."""
        self._grant_overflow(grantee, "s3:GetObject")

    def grant_files(self, grantee: iam.IGrantable, *verbs: FileVerb) -> None:
        """Let `grantee` read, store or delete the bytes of sessions' files. A presigned request has the permissions of the
        function that signed it."""
        why = "The files of all users share one prefix. Rows determine which of them a session may read."
        self._grant_objects(grantee, tuple(f"s3:{verb}Object" for verb in verbs), FILES, why)

    def files_origin(self, endpoint: CfnParameter | None) -> str:
        """Return the origin of presigned requests. `endpoint`: the emulator's address. None on AWS."""
        if endpoint is not None:
            return str(endpoint.value_as_string)
        return f"https://{self.bucket.bucket_regional_domain_name}"

    def admit_pages(self, origins: Sequence[str]) -> None:
        """Let scripts of pages from these origins, and of the page that `helix console` serves, send and download files
        with presigned requests."""
        self.bucket.add_cors_rule(
            allowed_methods=[s3.HttpMethods.PUT, s3.HttpMethods.GET],
            allowed_origins=[*origins, LOCAL_PAGES],
            allowed_headers=list(UPLOAD_HEADERS),
            max_age=CORS_S,
        )

    def grant_set_aside(self, grantee: iam.IGrantable) -> None:
        """Let `grantee` set aside Kinesis records that cannot be read."""
        self._grant_objects(grantee, ("s3:PutObject",), FAILED, "Objects are named by stream and position.")

    def grant_give_up(self, grantee: iam.IGrantable) -> None:
        """Let Lambda set aside records that could not be processed, with the role `grantee`."""
        self._grant_list(grantee)
        why = "Lambda names the objects of a failure destination by event source, shard and time."
        self._grant_objects(grantee, ("s3:PutObject",), GIVEN_UP, why)

    def _grant_list(self, grantee: iam.IGrantable) -> None:
        iam.Grant.add_to_principal(grantee=grantee, actions=["s3:ListBucket"], resource_arns=[self.bucket.bucket_arn])

    def _grant_objects(self, grantee: iam.IGrantable, actions: tuple[str, ...], prefix: str, why: str) -> None:
        arn = self.bucket.arn_for_objects(f"{prefix}*")
        iam.Grant.add_to_principal(grantee=grantee, actions=list(actions), resource_arns=[arn])
        self._keys.grant_use(grantee, services=["s3"], actions=("kms:Decrypt", "kms:GenerateDataKey"))
        explain_objects(grantee, self.bucket, f"{prefix}*", why)

    def _table(self, table: TableName, names: Names, removal: RemovalPolicy) -> dynamodb.Table:
        text, own = dynamodb.AttributeType.STRING, self._keys.key
        followed = self._settings.streaming != "kinesis" and table == "streams"
        return dynamodb.Table(
            self,
            table.capitalize(),
            table_name=names.of(table),
            partition_key=dynamodb.Attribute(name="pk", type=text),
            sort_key=dynamodb.Attribute(name="sk", type=text),
            billing_mode=dynamodb.BillingMode.PAY_PER_REQUEST,
            # If the stage does not have a key, DynamoDB encrypts with a key that it owns.
            encryption=dynamodb.TableEncryption.CUSTOMER_MANAGED if own else dynamodb.TableEncryption.DEFAULT,
            encryption_key=own,
            point_in_time_recovery_specification=dynamodb.PointInTimeRecoverySpecification(
                point_in_time_recovery_enabled=True
            ),
            time_to_live_attribute=TTL_ATTRIBUTE,
            stream=dynamodb.StreamViewType.NEW_IMAGE if followed else None,
            warm_throughput=self._warm if table in WARMED else None,
            removal_policy=removal,
        )

    @property
    def _warm(self) -> dynamodb.WarmThroughput | None:
        reads, writes = self._settings.warm_reads, self._settings.warm_writes
        if not reads and not writes:
            return None
        return dynamodb.WarmThroughput(read_units_per_second=reads or None, write_units_per_second=writes or None)

    def _bucket(self, removal: RemovalPolicy) -> s3.Bucket:
        own = self._keys.key
        bucket = s3.Bucket(
            self,
            "Bucket",
            encryption=s3.BucketEncryption.KMS if own else s3.BucketEncryption.S3_MANAGED,
            encryption_key=own,
            bucket_key_enabled=True if own else None,
            block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
            object_ownership=s3.ObjectOwnership.BUCKET_OWNER_ENFORCED,
            enforce_ssl=True,
            minimum_tls_version=1.2,
            removal_policy=removal,
            lifecycle_rules=[
                s3.LifecycleRule(id="unfinished", abort_incomplete_multipart_upload_after=Duration.days(1)),
                *(
                    s3.LifecycleRule(id=prefix.strip("/"), prefix=prefix, expiration=Duration.days(days))
                    for prefix, days in (
                        *((prefix, RETAINED_DAYS) for prefix in (FAILED, GIVEN_UP)),
                        *((f"{OVERFLOW}{expiring_prefix(days)}", days) for days in EXPIRY_DAYS),
                    )
                ),
            ],
        )
        explain(
            bucket,
            "S1",
            "Only this stage's functions use it, each with its own role. CloudTrail records their calls.",
        )
        return bucket
