"""AWS list prices in US dollars: us-east-1 (N. Virginia), first tier, without free tiers and taxes, as published in
2025.

They were written down by hand and are not looked up anywhere. Look at each service's pricing page before you rely on
them.
"""

from __future__ import annotations

REGION, DATE = "us-east-1", "2025"
MILLION = 1_000_000

DYNAMODB_WRITE_UNIT = 0.625 / MILLION
"""On demand, standard table class: one unit for each started KB of an item, two in a transaction."""
DYNAMODB_READ_UNIT = 0.125 / MILLION
"""Strongly consistent: one unit for each started 4 KB."""
LAMBDA_REQUEST = 0.20 / MILLION
LAMBDA_GB_S = 0.0000133334
"""A GB-second on arm64."""
TRANSITION = 25 / MILLION
"""A transition of a standard state machine. A repeated task counts as one too."""
KINESIS_PUT_UNIT = 0.014 / MILLION
"""Each started 25 KB. Provisioned, as deployed by default."""
KINESIS_SHARD_HOUR = 0.015
SOCKET_MESSAGE = 1.00 / MILLION
"""Each started 32 KB of a message through API Gateway WebSocket, in either direction."""
LOG_BYTE = 0.50 / 1024**3
"""A byte that CloudWatch Logs ingests."""

PLATFORM_LOG_BYTES = 350
"""The size of the lines that Lambda itself logs about an invocation: START, END, REPORT."""
PUT_UNIT_BYTES = 25 * 1024
MESSAGE_BYTES = 32 * 1024

HOURS_A_MONTH = 730
KINESIS_ON_DEMAND_HOUR = 0.04
KINESIS_CONSUMER_SHARD_HOUR = 0.015
PROVISIONED_GB_S = 0.0000033334
"""A GB-second of Lambda's provisioned concurrency on arm64."""
KMS_KEY_MONTH = 1.00
SECRET_MONTH = 0.40
ALARM_METRIC_MONTH = 0.10
"""A month of each metric that a CloudWatch alarm watches, in standard resolution."""
DASHBOARD_MONTH = 3.00
FREE_DASHBOARDS = 3
"""The number of dashboards of an account that are free, with at most 50 metrics each."""
