"""The chunk stream between the functions that write chunks and the one that projects them.

Law: the stream is encrypted. It is read from the oldest unprocessed record, with one reader at a time for each
partition key. Lambda retries a batch until an hour before Kinesis deletes it. Records that it then gives up on are set
aside in the bucket, never dropped. Adding or removing the consumer replaces the event source mapping. The new mapping
begins with the oldest record, so no record is lost, and `project_stream` skips the chunks that are on the log.

If functions append to the log themselves (docs/adr/0028-streams-without-kinesis.md), the stream of the log's table feeds
`project_stream` instead of Kinesis.
"""

from __future__ import annotations

import json

from aws_cdk import Duration, RemovalPolicy
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kinesis as kinesis
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from helix.infra.concurrency import LANES
from helix.infra.config import Settings
from helix.infra.function import Function
from helix.infra.keys import Keys
from helix.infra.nag import explain
from helix.infra.names import Names
from helix.infra.storage import GET, PUT, QUERY, Storage

WRITE_CHUNKS = ("kinesis:PutRecord",)
READ_STREAM = (
    "kinesis:DescribeStream",
    "kinesis:DescribeStreamSummary",
    "kinesis:GetRecords",
    "kinesis:GetShardIterator",
    "kinesis:ListShards",
)
APPEND = (GET, QUERY, PUT)
"""The actions for appending a segment: read the end of the log, and put the segment after it. The put may replace a row
that a deletion left there."""
SEGMENT = "s#"
"""The prefix of the sort keys of the log's rows."""
BATCH = 100
RETENTION_H = 24
GIVE_UP_S = (RETENTION_H - 1) * 3600
"""The age at which Lambda gives up on records, in seconds. Kinesis still has them, so Lambda can write them to the
bucket."""
UNLIMITED = -1


class Streaming(Construct):
    """The path of chunks to `project_stream`. `stream`: the Kinesis stream; None with `streaming=direct`. `source`: the
    event source mapping that alarms watch, once `feed` has set it."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        settings: Settings,
        names: Names,
        keys: Keys,
        storage: Storage,
        removal: RemovalPolicy,
    ) -> None:
        super().__init__(scope, construct_id)
        self._keys, self._storage = keys, storage
        self.appends, self._shards = settings.streaming != "kinesis", settings.shards
        self.stream: kinesis.Stream | None = None
        self.consumer: kinesis.CfnStreamConsumer | None = None
        self.source: lambda_.CfnEventSourceMapping | None = None
        if settings.streaming == "direct":
            return
        # With `both`, the next deployment may remove the stream. All of its records are on the log by then.
        self.stream = self._stream(names, RemovalPolicy.DESTROY if self.appends else removal)
        if settings.enhanced_fan_out:
            self.consumer = kinesis.CfnStreamConsumer(
                self, "Consumer", consumer_name=names.of("projector"), stream_arn=self.stream.stream_arn
            )

    def grant_append(self, grantee: iam.IGrantable) -> None:
        """Let `grantee` put chunks into Kinesis, append them to the log, or, with `streaming=both`, do either."""
        if self.stream is not None:
            arn = self.stream.stream_arn
            iam.Grant.add_to_principal(grantee=grantee, actions=list(WRITE_CHUNKS), resource_arns=[arn])
            self._keys.grant_use(grantee, services=["kinesis"], actions=["kms:GenerateDataKey"])
        if self.appends:
            self._storage.grant_rows(grantee, "streams", *APPEND)

    def feed(self, function: Function) -> None:
        """Let the streams invoke `function`, and grant it the permissions to read them."""
        self._storage.grant_give_up(function.role)
        if self.stream is not None:
            self._storage.grant_set_aside(function.role)
            self._grant_read(function.role, self.stream)
            arn = self.consumer.attr_consumer_arn if self.consumer else self.stream.stream_arn
            self.source = self._mapping("Source", function, arn, parallelization_factor=LANES)
        if self.appends:
            arn = self._storage.grant_follow(function.role)
            segments = json.dumps({"dynamodb": {"NewImage": {"sk": {"S": [{"prefix": SEGMENT}]}}}})
            pattern = lambda_.CfnEventSourceMapping.FilterProperty(pattern=segments)
            only = lambda_.CfnEventSourceMapping.FilterCriteriaProperty(filters=[pattern])
            # One lane, because Lambda does not preserve the order of a partition's rows across several lanes.
            followed = self._mapping("Followed", function, arn, filter_criteria=only)
            self.source = self.source or followed

    def _mapping(
        self, construct_id: str, function: Function, arn: str, **more: object
    ) -> lambda_.CfnEventSourceMapping:
        bucket = self._storage.bucket.bucket_arn
        source = lambda_.CfnEventSourceMapping(
            self,
            construct_id,
            event_source_arn=arn,
            function_name=function.live.function_arn,
            starting_position="TRIM_HORIZON",
            batch_size=BATCH,
            bisect_batch_on_function_error=True,
            function_response_types=["ReportBatchItemFailures"],
            maximum_record_age_in_seconds=GIVE_UP_S,
            maximum_retry_attempts=UNLIMITED,
            destination_config=lambda_.CfnEventSourceMapping.DestinationConfigProperty(
                on_failure=lambda_.CfnEventSourceMapping.OnFailureProperty(destination=bucket)
            ),
            metrics_config=lambda_.CfnEventSourceMapping.MetricsConfigProperty(metrics=["EventCount"]),
            **more,
        )
        # Lambda checks the role when it creates the mapping, so the policy must exist first.
        source.node.add_dependency(function.role)
        return source

    def _grant_read(self, grantee: iam.IGrantable, stream: kinesis.Stream) -> None:
        arn = stream.stream_arn
        iam.Grant.add_to_principal(grantee=grantee, actions=list(READ_STREAM), resource_arns=[arn])
        self._keys.grant_use(grantee, services=["kinesis"], actions=["kms:Decrypt"])
        if self.consumer is not None:
            iam.Grant.add_to_principal(
                grantee=grantee,
                actions=["kinesis:SubscribeToShard", "kinesis:DescribeStreamConsumer"],
                resource_arns=[self.consumer.attr_consumer_arn],
            )

    def _stream(self, names: Names, removal: RemovalPolicy) -> kinesis.Stream:
        on_demand, own = self._shards == 0, self._keys.key
        stream = kinesis.Stream(
            self,
            "Chunks",
            stream_name=names.of("chunks"),
            stream_mode=kinesis.StreamMode.ON_DEMAND if on_demand else kinesis.StreamMode.PROVISIONED,
            shard_count=None if on_demand else self._shards,
            encryption=kinesis.StreamEncryption.KMS if own else kinesis.StreamEncryption.MANAGED,
            encryption_key=own,
            retention_period=Duration.hours(RETENTION_H),
            removal_policy=removal,
        )
        if own:
            explain(
                stream,
                "KDS3",
                "The stage's own key encrypts it, so one policy governs the access to all data.",
            )
        return stream
