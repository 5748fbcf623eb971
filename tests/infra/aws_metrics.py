"""AWS's own metrics that the templates may name, by namespace and dimensions, as AWS documents them.

Law: this list comes from AWS's documentation, and not from `infra/`. Each entry names the page.
"""

from __future__ import annotations

_DOCUMENTED: dict[tuple[str, frozenset[str]], str] = {
    # docs.aws.amazon.com/lambda/latest/dg/monitoring-metrics-types.html
    ("AWS/Lambda", frozenset({"FunctionName"})): (
        "Invocations Errors Throttles Duration PostRuntimeExtensionsDuration IteratorAge ConcurrentExecutions"
        " DeadLetterErrors DestinationDeliveryFailures AsyncEventsReceived AsyncEventAge AsyncEventsDropped"
        " ProvisionedConcurrencySpilloverInvocations ProvisionedConcurrencyInvocations"
    ),
    ("AWS/Lambda", frozenset({"FunctionName", "Resource"})): (
        "Invocations Errors Throttles Duration IteratorAge ConcurrentExecutions ProvisionedConcurrencyInvocations"
        " ProvisionedConcurrencySpilloverInvocations ProvisionedConcurrentExecutions"
        " ProvisionedConcurrencyUtilization"
    ),
    ("AWS/Lambda", frozenset({"EventSourceMappingUUID"})): (
        "PolledEventCount FilteredOutEventCount InvokedEventCount FailedInvokeEventCount DroppedEventCount"
        " OnFailureDestinationDeliveredEventCount DeletedEventCount"
    ),
    # docs.aws.amazon.com/step-functions/latest/dg/procedure-cw-metrics.html
    ("AWS/States", frozenset({"StateMachineArn"})): (
        "ExecutionTime ExecutionThrottled ExecutionsAborted ExecutionsFailed ExecutionsStarted ExecutionsSucceeded"
        " ExecutionsTimedOut ExecutionsRedriven RedrivenExecutionsSucceeded"
    ),
    # docs.aws.amazon.com/streams/latest/dev/monitoring-with-cloudwatch.html
    ("AWS/Kinesis", frozenset({"StreamName"})): (
        "GetRecords.Bytes GetRecords.IteratorAgeMilliseconds GetRecords.Latency GetRecords.Records GetRecords.Success"
        " IncomingBytes IncomingRecords PutRecord.Bytes PutRecord.Latency PutRecord.Success PutRecords.ThrottledRecords"
        " ReadProvisionedThroughputExceeded WriteProvisionedThroughputExceeded"
    ),
    # docs.aws.amazon.com/amazondynamodb/latest/developerguide/metrics-dimensions.html
    ("AWS/DynamoDB", frozenset({"TableName"})): (
        "ConditionalCheckFailedRequests ConsumedReadCapacityUnits ConsumedWriteCapacityUnits ReadThrottleEvents"
        " WriteThrottleEvents TransactionConflict TimeToLiveDeletedItemCount OnDemandMaxReadRequestUnits"
        " OnDemandMaxWriteRequestUnits"
    ),
    # docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-available-cloudwatch-metrics.html
    ("AWS/SQS", frozenset({"QueueName"})): (
        "ApproximateAgeOfOldestMessage ApproximateNumberOfMessagesDelayed ApproximateNumberOfMessagesNotVisible"
        " ApproximateNumberOfMessagesVisible NumberOfMessagesDeleted NumberOfMessagesReceived NumberOfMessagesSent"
    ),
    # docs.aws.amazon.com/sns/latest/dg/sns-monitoring-using-cloudwatch.html
    ("AWS/SNS", frozenset({"TopicName"})): (
        "NumberOfMessagesPublished NumberOfNotificationsDelivered NumberOfNotificationsFailed"
        " NumberOfNotificationsFilteredOut PublishSize"
    ),
    # docs.aws.amazon.com/apigateway/latest/developerguide/http-api-metrics.html
    # docs.aws.amazon.com/apigateway/latest/developerguide/apigateway-websocket-api-logging.html
    ("AWS/ApiGateway", frozenset({"ApiId"})): (
        "4xx 5xx Count DataProcessed IntegrationLatency Latency"
        " ConnectCount MessageCount IntegrationError ClientError ExecutionError"
    ),
}
PERCENTILES = ("p50", "p95", "p99")
STATISTICS = frozenset({"Sum", "Maximum", *PERCENTILES})


def documented(namespace: str, dimensions: frozenset[str]) -> frozenset[str]:
    """Return the names of the metrics. Raise `KeyError` for dimensions that the namespace does not have."""
    return frozenset(_DOCUMENTED[namespace, dimensions].split())
