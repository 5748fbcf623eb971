"""AWS list prices in US dollars: us-east-1 (N. Virginia), first tier, without free tiers and taxes, as published in 2025.

Written down by hand: nobody is asked. Look at each service's pricing page before you rely on them.
"""

from __future__ import annotations

REGION, DATE = "us-east-1", "2025"
MILLION = 1_000_000

DYNAMODB_WRITE_UNIT = 0.625 / MILLION
"""On demand, standard table class; one for each started KB of an item, two in a transaction."""
DYNAMODB_READ_UNIT = 0.125 / MILLION
"""Strongly consistent; one for each started 4 KB."""
LAMBDA_REQUEST = 0.20 / MILLION
LAMBDA_GB_S = 0.0000133334
"""arm64."""
TRANSITION = 25 / MILLION
"""Step Functions, standard; a repeated task is one too."""
KINESIS_PUT_UNIT = 0.014 / MILLION
"""A started 25 KB; provisioned, as deployed by default."""
KINESIS_SHARD_HOUR = 0.015
SOCKET_MESSAGE = 1.00 / MILLION
"""API Gateway WebSocket, a started 32 KB, either way."""
LOG_BYTE = 0.50 / 1024**3
"""CloudWatch Logs, ingested."""

PLATFORM_LOG_BYTES = 350
"""What Lambda itself writes about an invocation: START, END, REPORT."""
PUT_UNIT_BYTES = 25 * 1024
MESSAGE_BYTES = 32 * 1024

HOURS_A_MONTH = 730
KINESIS_ON_DEMAND_HOUR = 0.04
KINESIS_CONSUMER_SHARD_HOUR = 0.015
PROVISIONED_GB_S = 0.0000033334
"""Lambda, provisioned concurrency, arm64."""
KMS_KEY_MONTH = 1.00
SECRET_MONTH = 0.40
ALARM_METRIC_MONTH = 0.10
"""CloudWatch, standard resolution; for each metric that an alarm looks at."""
DASHBOARD_MONTH = 3.00
FREE_DASHBOARDS = 3
"""Of an account, with at most 50 metrics each."""
