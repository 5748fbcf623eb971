"""What somebody must look at: streams that fall behind, records and events that were given up, a sweep that fails.

Law: an alarm stands for something that does not mend itself; silence is no fault.
"""

from __future__ import annotations

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_sns as sns
from constructs import Construct

from infra.function import Function
from infra.keys import Keys
from infra.names import Names
from infra.schedules import Schedules
from infra.streaming import Streaming

MINUTE = Duration.minutes(1)
BEHIND_MS = 60_000


class Alarms(Construct):
    """Subscribe to `topic` to be told."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        names: Names,
        keys: Keys,
        streaming: Streaming,
        schedules: Schedules,
        sweep: Function,
        project_stream: Function,
    ) -> None:
        super().__init__(scope, construct_id)
        self.topic = sns.Topic(self, "Topic", topic_name=names.of("alarms"), master_key=keys.key, enforce_ssl=True)
        self._names = names
        self._alarm(
            "chunks-behind",
            "Clients see chunks late: project_stream does not keep up, or fails again and again.",
            project_stream.live.metric("IteratorAge", statistic="Maximum", period=MINUTE),
            threshold=BEHIND_MS,
            minutes=5,
        )
        assert streaming.source is not None, "the stream feeds nothing yet"
        self._alarm(
            "chunks-given-up",
            "Records were put aside under aws/lambda/ in the bucket: their streams have a gap.",
            cloudwatch.Metric(
                namespace="AWS/Lambda",
                metric_name="OnFailureDestinationDeliveredEventCount",
                dimensions_map={"EventSourceMappingUUID": streaming.source.ref},
                statistic="Sum",
                period=MINUTE,
            ),
        )
        self._alarm(
            "events-undelivered",
            "Events about ended executions are in the dead-letter queue; sweep does their work, later.",
            schedules.undelivered.metric_approximate_number_of_messages_visible(statistic="Maximum", period=MINUTE),
        )
        self._alarm(
            "sweep-fails",
            "Nothing finds what crashes leave: queued runs wait, dead ones stay open.",
            sweep.live.metric_errors(statistic="Sum", period=MINUTE),
            minutes=3,
        )

    def _alarm(
        self, name: str, description: str, metric: cloudwatch.IMetric, *, threshold: float = 0, minutes: int = 1
    ) -> None:
        alarm = cloudwatch.Alarm(
            self,
            "".join(word.capitalize() for word in name.split("-")),
            alarm_name=self._names.of(name),
            alarm_description=description,
            metric=metric,
            threshold=threshold,
            comparison_operator=cloudwatch.ComparisonOperator.GREATER_THAN_THRESHOLD,
            evaluation_periods=minutes,
            datapoints_to_alarm=minutes,
            treat_missing_data=cloudwatch.TreatMissingData.NOT_BREACHING,
        )
        alarm.add_alarm_action(actions.SnsAction(self.topic))
