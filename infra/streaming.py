"""The chunk stream: between the functions that write chunks and the one that projects them.

Law: encrypted with the stage's key; read from the oldest record that was not processed, one consumer at a time for each
partition key. What the event source gives up on is put aside in the bucket, never dropped: Lambda repeats a batch until
an hour before Kinesis forgets it. Choosing the consumer or leaving it out replaces the event source mapping, and the new
one begins with the oldest record, so that none is lost: project_stream skips what is on the log.
"""

from __future__ import annotations

from aws_cdk import Duration, RemovalPolicy
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kinesis as kinesis
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from infra.config import Settings
from infra.function import Function
from infra.keys import Keys
from infra.nag import explain
from infra.names import Names
from infra.storage import Storage

WRITE_CHUNKS = ("kinesis:PutRecord",)
READ_STREAM = (
    "kinesis:DescribeStream",
    "kinesis:DescribeStreamSummary",
    "kinesis:GetRecords",
    "kinesis:GetShardIterator",
    "kinesis:ListShards",
)
BATCH = 100
LANES = 10
"""Batches of one shard in work at once: a slow socket holds up its own lane, not the others."""
RETENTION_H = 24
GIVE_UP_S = (RETENTION_H - 1) * 3600
"""While Kinesis still has the records: Lambda writes them to the bucket."""
UNLIMITED = -1


class Streaming(Construct):
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
        self._keys = keys
        on_demand = settings.shards == 0
        self.stream = kinesis.Stream(
            self,
            "Chunks",
            stream_name=names.of("chunks"),
            stream_mode=kinesis.StreamMode.ON_DEMAND if on_demand else kinesis.StreamMode.PROVISIONED,
            shard_count=None if on_demand else settings.shards,
            encryption=kinesis.StreamEncryption.KMS,
            encryption_key=keys.key,
            retention_period=Duration.hours(RETENTION_H),
            removal_policy=removal,
        )
        explain(self.stream, "KDS3", "The stage's own key: who may decrypt chunks is decided with everything else.")
        self.consumer: kinesis.CfnStreamConsumer | None = None
        if settings.enhanced_fan_out:
            self.consumer = kinesis.CfnStreamConsumer(
                self, "Consumer", consumer_name=names.of("projector"), stream_arn=self.stream.stream_arn
            )
        self.source: lambda_.CfnEventSourceMapping | None = None

    def grant_put(self, grantee: iam.IGrantable) -> None:
        iam.Grant.add_to_principal(grantee=grantee, actions=list(WRITE_CHUNKS), resource_arns=[self.stream.stream_arn])
        self._keys.grant_use(grantee, services=["kinesis"], actions=["kms:GenerateDataKey"])

    def grant_read(self, grantee: iam.IGrantable) -> None:
        arn = self.stream.stream_arn
        iam.Grant.add_to_principal(grantee=grantee, actions=list(READ_STREAM), resource_arns=[arn])
        self._keys.grant_use(grantee, services=["kinesis"], actions=["kms:Decrypt"])
        if self.consumer is not None:
            iam.Grant.add_to_principal(
                grantee=grantee,
                actions=["kinesis:SubscribeToShard", "kinesis:DescribeStreamConsumer"],
                resource_arns=[self.consumer.attr_consumer_arn],
            )

    def feed(self, function: Function, *, storage: Storage) -> None:
        """Let the stream invoke `function`, which needs the rights to read it."""
        self.grant_read(function.role)
        storage.grant_set_aside(function.role)
        self.source = lambda_.CfnEventSourceMapping(
            self,
            "Source",
            event_source_arn=self.consumer.attr_consumer_arn if self.consumer else self.stream.stream_arn,
            function_name=function.live.function_arn,
            starting_position="TRIM_HORIZON",
            batch_size=BATCH,
            parallelization_factor=LANES,
            bisect_batch_on_function_error=True,
            function_response_types=["ReportBatchItemFailures"],
            maximum_record_age_in_seconds=GIVE_UP_S,
            maximum_retry_attempts=UNLIMITED,
            destination_config=lambda_.CfnEventSourceMapping.DestinationConfigProperty(
                on_failure=lambda_.CfnEventSourceMapping.OnFailureProperty(destination=storage.bucket.bucket_arn)
            ),
            metrics_config=lambda_.CfnEventSourceMapping.MetricsConfigProperty(metrics=["EventCount"]),
        )
        # Lambda tries the role when the mapping is made: its policy must be there first.
        self.source.node.add_dependency(function.role)
