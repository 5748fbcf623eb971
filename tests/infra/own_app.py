"""A user's own CDK app: a stage in a stack with other resources, and another stage in its own stack."""

from __future__ import annotations

import sys
from pathlib import Path

from aws_cdk import App, Stack, Tags
from aws_cdk import aws_certificatemanager as acm
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_s3 as s3

from helix.infra import Helix, HelixStack

PROJECT = Path(__file__).resolve().parents[2]
CERTIFICATE = "arn:aws:acm:eu-west-1:123456789012:certificate/12345678-1234-1234-1234-123456789012"

outdir, deps = sys.argv[1:]
app = App(outdir=outdir, context={"nobody_knows": "this key"})
mine = Stack(app, "Mine")
Tags.of(mine).add("owner", "me")
key = kms.Key(mine, "Key")
documents = s3.Bucket(mine, "Documents", encryption_key=key)  # without what AwsSolutions-S1 and -S10 require
network = ec2.Vpc.from_vpc_attributes(
    mine,
    "Network",
    vpc_id="vpc-01234567",
    availability_zones=["eu-west-1a", "eu-west-1b"],
    private_subnet_ids=["subnet-01234567", "subnet-89abcdef"],
)
database = ec2.SecurityGroup(mine, "Database", vpc=network)
helix = Helix(
    mine,
    "Helix",
    project=PROJECT,
    stage="one",
    settings={"deps": deps, "agents": "resourceful_agents", "tags": "team=ai"},
    encryption_key=key,
    permissions_boundary=iam.ManagedPolicy.from_managed_policy_name(mine, "Boundary", "developers"),
    vpc=network,
    domain_name="agents.example.com",
    certificate=acm.Certificate.from_certificate_arn(mine, "Certificate", CERTIFICATE),
)
documents.grant_read(helix.tool_role())
documents.grant_read(helix.tool_role("heavy"))
caller = lambda_.Function(
    mine,
    "Caller",
    runtime=lambda_.Runtime.PYTHON_3_13,
    handler="index.handler",
    code=lambda_.Code.from_inline("handler = print"),
    environment=helix.environment,
)
helix.grant_run(caller)
reader = iam.Role(mine, "Reader", assumed_by=iam.ServicePrincipal("ec2.amazonaws.com"))
helix.grant_read_sessions(reader)
helix.grant_read_streams(reader)
database.connections.allow_from(helix.connections, ec2.Port.tcp(5432))
two = HelixStack(app, "Two", project=PROJECT, stage="two", settings={"deps": deps, "agents": "inline_agents"})
s3.Bucket.from_bucket_name(two, "Handbooks", "handbooks").grant_read(two.helix.tool_role())
app.synth()
