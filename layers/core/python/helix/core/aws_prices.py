"""AWS list prices in US dollars, as published in 2025: us-east-1 (N. Virginia), first pricing tier, excluding free
tiers and taxes.

The prices were entered by hand and are never updated automatically. Check each service's pricing page before you rely
on them.
"""

from __future__ import annotations

REGION, DATE = "us-east-1", "2025"
MILLION = 1_000_000

DYNAMODB_WRITE_UNIT = 0.625 / MILLION
"""The on-demand price in the standard table class. An item uses one unit per KB, rounded up, and two in a
transaction."""
DYNAMODB_READ_UNIT = 0.125 / MILLION
"""The price of a strongly consistent read: one unit per 4 KB, rounded up."""
LAMBDA_REQUEST = 0.20 / MILLION
LAMBDA_GB_S = 0.0000133334
"""The price of a GB-second on arm64."""
TRANSITION = 25 / MILLION
"""The price of a state transition in a standard workflow. A retried task counts as another transition."""
KINESIS_PUT_UNIT = 0.014 / MILLION
"""The price of a PUT payload unit (25 KB, rounded up) in provisioned mode, the default deployment."""
KINESIS_SHARD_HOUR = 0.015
SOCKET_MESSAGE = 1.00 / MILLION
"""The price of 32 KB (rounded up) of an API Gateway WebSocket message, in either direction."""
LOG_BYTE = 0.50 / 1024**3
"""The price of one byte ingested by CloudWatch Logs."""

PLATFORM_LOG_BYTES = 350
"""The size of the lines that Lambda itself logs per invocation: START, END and REPORT."""
PUT_UNIT_BYTES = 25 * 1024
MESSAGE_BYTES = 32 * 1024

HOURS_A_MONTH = 730
KINESIS_ON_DEMAND_HOUR = 0.04
KINESIS_CONSUMER_SHARD_HOUR = 0.015
PROVISIONED_GB_S = 0.0000033334
"""The price of a GB-second of Lambda provisioned concurrency on arm64."""
KMS_KEY_MONTH = 1.00
SECRET_MONTH = 0.40
ALARM_METRIC_MONTH = 0.10
"""The monthly price of each metric of a CloudWatch alarm, at standard resolution."""
DASHBOARD_MONTH = 3.00
FREE_DASHBOARDS = 3
"""The number of free dashboards per account, with at most 50 metrics each."""
