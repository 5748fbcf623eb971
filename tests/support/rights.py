"""The rights of every function, as a table. `tests/infra/test_roles.py` holds the roles of the templates to it."""

from __future__ import annotations

GET, GET_SEVERAL, QUERY = "dynamodb:GetItem", "dynamodb:BatchGetItem", "dynamodb:Query"
PUT, UPDATE, DELETE, CHECK = (f"dynamodb:{verb}Item" for verb in ("Put", "Update", "Delete", "ConditionCheck"))
READ_KEY = {"kms:Decrypt", "kms:DescribeKey"}
WRITE_KEY = READ_KEY | {"kms:Encrypt", "kms:GenerateDataKey", "kms:ReEncryptFrom", "kms:ReEncryptTo"}

Rights = dict[str, set[str]]

LOG: Rights = {"log": {"logs:CreateLogStream", "logs:PutLogEvents"}}
OVERFLOW: Rights = {
    "bucket/overflow/*": {"s3:GetObject", "s3:PutObject"},
    "bucket": {"s3:ListBucket"},
    "key through s3": {"kms:Decrypt", "kms:GenerateDataKey"},
}
READ_AND_STORE_FILES: Rights = {"bucket/blobs/*": {"s3:GetObject", "s3:PutObject"}}
REMOVAL: Rights = {**OVERFLOW, "bucket/overflow/*": {"s3:GetObject", "s3:PutObject", "s3:DeleteObject"}}
WRITE_CHUNKS: Rights = {"chunks": {"kinesis:PutRecord"}, "key through kinesis": {"kms:GenerateDataKey"}}
KEY: Rights = {"key through dynamodb": WRITE_KEY}
COUNT = {GET, GET_SEVERAL, QUERY, PUT, UPDATE, DELETE}
STEP: Rights = {
    "sessions": {GET, GET_SEVERAL, QUERY, PUT, UPDATE, DELETE, CHECK},
    **KEY,
    **OVERFLOW,
    **WRITE_CHUNKS,
    **LOG,
}
START: Rights = {"machines": {"states:StartExecution"}}
WAKE: Rights = {"*": {"states:SendTaskSuccess"}}
END: Rights = {
    **STEP,
    "control": COUNT,
    "streams": {GET, QUERY},
    **START,
    **WAKE,
}
LINE: Rights = {**END, "control": COUNT | {CHECK}}
"""The functions that may put a run into the line."""
POST: Rights = {"connections": {"execute-api:ManageConnections"}}
SECRET = "arn:aws:secretsmanager:eu-west-1:123456789012:secret:openai-AbCdEf"

TABLE: dict[str, Rights] = {
    "start_run": END,
    "call_model": {
        **STEP,
        "control": COUNT | {CHECK},
        **START,
        **READ_AND_STORE_FILES,
        SECRET: {"secretsmanager:GetSecretValue"},
        "bedrock models": {"bedrock:InvokeModelWithResponseStream"},
        "bedrock guardrails": {"bedrock:ApplyGuardrail"},
    },
    "call_tool": {**STEP, **READ_AND_STORE_FILES, "control": COUNT - {QUERY} | {CHECK}},
    "finish_run": LINE,
    "fail_run": {**LINE, "undelivered": {"sqs:SendMessage", "sqs:GetQueueUrl", "sqs:GetQueueAttributes"}},
    "sweep": {
        **LINE,
        **REMOVAL,
        "bucket/blobs/*": {"s3:DeleteObject"},
        "streams": {GET, QUERY, PUT},
        "executions": {"states:DescribeExecution"},
    },
    "project_stream": {
        "streams": {GET, QUERY, PUT, UPDATE, DELETE},
        "sessions": {GET, CHECK},
        **KEY,
        **OVERFLOW,
        "bucket/failed/*": {"s3:PutObject"},
        "bucket/aws/lambda/*": {"s3:PutObject"},
        **POST,
        "chunks": {
            "kinesis:DescribeStream",
            "kinesis:DescribeStreamSummary",
            "kinesis:GetRecords",
            "kinesis:GetShardIterator",
            "kinesis:ListShards",
        },
        "consumer": {"kinesis:SubscribeToShard", "kinesis:DescribeStreamConsumer"},
        "key through kinesis": {"kms:Decrypt"},
        **LOG,
    },
    "ws_authorize": {"control": {GET}, "key through dynamodb": READ_KEY, **LOG},
    "ws_connect": {"streams": {PUT}, **KEY, **LOG},
    "ws_disconnect": {"streams": {QUERY, DELETE}, **KEY, **LOG},
    "ws_message": {
        **LINE,
        **REMOVAL,
        **READ_AND_STORE_FILES,
        "streams": {GET, QUERY, PUT, UPDATE, DELETE, CHECK},
        "executions": {"states:StopExecution"},
        "logs": {"logs:FilterLogEvents"},
        **POST,
    },
    "govern": {
        "control": COUNT | {CHECK},
        "sessions": {GET, GET_SEVERAL, QUERY},
        **KEY,
        **OVERFLOW,
        **WRITE_CHUNKS,
        **START,
        "sweep": {"lambda:InvokeFunction"},
        "aliases": {"lambda:PutProvisionedConcurrencyConfig", "lambda:DeleteProvisionedConcurrencyConfig"},
        "notices": {"sns:Publish"},
        "key through sns": {"kms:Decrypt", "kms:GenerateDataKey"},
        "*": {"cloudwatch:GetMetricData"},
        **LOG,
    },
    "health": {
        "control": {GET, GET_SEVERAL, QUERY},
        "sessions": {GET},
        "key through dynamodb": READ_KEY,
        "token": {"secretsmanager:GetSecretValue"},
        "key through secretsmanager": {"kms:Decrypt"},
        **LOG,
    },
}
