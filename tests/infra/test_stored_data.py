"""The stored data in the templates: its retention, encryption, logs, names, tags and outputs."""

from __future__ import annotations

import json

import pytest
from tests.infra.templates import PROFILES, Assembly, text

from helix.adapters.aws.overflow import EXPIRY_DAYS, expiring_prefix
from helix.infra.verbs import SIZES

pytestmark = pytest.mark.timeout(400)  # the first test waits for the synthesis


@pytest.mark.parametrize("table", ["sessions", "streams", "control"])
def test_tables_are_encrypted_backed_up_and_paid_by_request(deployed: Assembly, table: str) -> None:
    properties = deployed.main.one("DynamoDB::Table", TableName=f"helix-dev-{table}")
    assert [(k["AttributeName"], k["KeyType"]) for k in properties["KeySchema"]] == [("pk", "HASH"), ("sk", "RANGE")]
    assert properties["BillingMode"] == "PAY_PER_REQUEST"
    assert properties["PointInTimeRecoverySpecification"]["PointInTimeRecoveryEnabled"] is True
    assert properties["TimeToLiveSpecification"] == {"AttributeName": "ttl", "Enabled": True}
    key = {"Fn::GetAtt": [deployed.main.id_of("KMS::Key"), "Arn"]}
    assert properties["SSESpecification"] == {"KMSMasterKeyId": key, "SSEEnabled": True, "SSEType": "KMS"}


def test_a_stage_chooses_what_the_tables_of_each_step_take_at_once(deployed: Assembly, production: Assembly) -> None:
    """CloudFormation changes it in place:
    https://docs.aws.amazon.com/AWSCloudFormation/latest/UserGuide/aws-properties-dynamodb-table-warmthroughput.html"""
    found = {p["TableName"]: p.get("WarmThroughput") for p in production.main.of("DynamoDB::Table").values()}
    warm = {"WriteUnitsPerSecond": 20_000}
    assert found == {"helix-prod-sessions": warm, "helix-prod-streams": warm, "helix-prod-control": None}
    assert not [p for p in deployed.main.of("DynamoDB::Table").values() if "WarmThroughput" in p]


def test_everything_at_rest_is_encrypted_with_the_stages_key(deployed: Assembly) -> None:
    template = deployed.main
    key = f"<{template.id_of('KMS::Key')}"
    assert template.one("KMS::Key")["EnableKeyRotation"] is True
    (rule,) = template.one("S3::Bucket")["BucketEncryption"]["ServerSideEncryptionConfiguration"]
    assert text(rule["ServerSideEncryptionByDefault"]["KMSMasterKeyID"]).startswith(key)
    assert text(template.one("Kinesis::Stream")["StreamEncryption"]["KeyId"]).startswith(key)
    assert text(template.one("SecretsManager::Secret")["KmsKeyId"]).startswith(key)
    assert template.one("SQS::Queue")["SqsManagedSseEnabled"] is True
    for group in template.of("Logs::LogGroup").values():
        assert text(group["KmsKeyId"]).startswith(key)


def test_the_bucket_is_closed(deployed: Assembly) -> None:
    bucket = deployed.main.one("S3::Bucket")
    assert set(bucket["PublicAccessBlockConfiguration"].values()) == {True}
    policy = deployed.main.one("S3::BucketPolicy")["PolicyDocument"]["Statement"]
    denied = [json.dumps(s["Condition"]) for s in policy if s["Effect"] == "Deny"]
    assert any('"aws:SecureTransport": "false"' in condition for condition in denied)
    prefixes = {rule.get("Prefix"): rule.get("ExpirationInDays") for rule in bucket["LifecycleConfiguration"]["Rules"]}
    kept: dict[str | None, int | None] = {f"overflow/{expiring_prefix(days)}": days for days in EXPIRY_DAYS}
    wanted: dict[str | None, int | None] = {None: None, "failed/": 14, "aws/lambda/": 14, **kept}
    assert prefixes == wanted, "objects that sessions refer to never expire"


def test_every_log_is_named_and_ends(deployed: Assembly) -> None:
    names = set()
    for template in deployed.templates:
        for group in template.of("Logs::LogGroup").values():
            assert group["RetentionInDays"] == 30
            names.add(group["LogGroupName"])
    own = {f"/aws/lambda/helix-dev-{p}-{v}" for p in ("heavy", "quick") for v in ("call_model", "call_tool")}
    assert names == {
        *(f"/aws/lambda/helix-dev-{verb}" for verb in SIZES),
        *own,
        *(f"/aws/vendedlogs/states/helix-dev-{profile}" for profile in PROFILES),
        "/aws/vendedlogs/apigateway/helix-dev-sockets",
        "/aws/vendedlogs/apigateway/helix-dev-health",
    }


def test_production_outlives_its_stack_and_development_does_not(deployed: Assembly, production: Assembly) -> None:
    """The resources of a failed first deployment are deleted, because they would block the next one."""
    kept = ("DynamoDB::Table", "S3::Bucket", "Kinesis::Stream", "KMS::Key")
    for assembly, policies in ((deployed, ("Delete", "Delete")), (production, ("RetainExceptOnCreate", "Retain"))):
        for type_ in kept:
            for id_ in assembly.main.of(type_):
                resource = assembly.main.resources[id_]
                assert (resource["DeletionPolicy"], resource["UpdateReplacePolicy"]) == policies


def test_nothing_with_a_fixed_name_outlives_a_failed_first_deployment(deployed: Assembly, production: Assembly) -> None:
    """`Retain` would keep it, and so would deletion protection, which `helix deploy` therefore sets afterwards."""
    for assembly in (deployed, production):
        for template in assembly.templates:
            for id_, resource in template.resources.items():
                properties = resource.get("Properties", {})
                named = [key for key in properties if key in ("Name", f"{resource['Type'].split('::')[-1]}Name")]
                assert resource.get("DeletionPolicy") != "Retain" or not named, id_
                assert not properties.get("DeletionProtectionEnabled"), id_


def test_names_carry_the_stage(production: Assembly) -> None:
    whole = json.dumps(production.main.text)
    assert "helix-prod-" in whole and "helix-dev" not in whole
    manifest = json.loads((production.folder / "manifest.json").read_text())
    stack = manifest["artifacts"]["Helix-prod"]["properties"]
    assert (stack["stackName"], stack["terminationProtection"]) == ("helix-prod", True)


def test_tags_are_on_everything_that_takes_them(deployed: Assembly) -> None:
    wanted = {"helix:stage": "dev", "team": "ai", "cost": "42"}
    for template in deployed.templates:
        for type_ in (
            "Lambda::Function",
            "DynamoDB::Table",
            "Kinesis::Stream",
            "IAM::Role",
            "StepFunctions::StateMachine",
        ):
            for properties in template.of(type_).values():
                assert {tag["Key"]: tag["Value"] for tag in properties["Tags"]} == wanted
    manifest = json.loads((deployed.folder / "manifest.json").read_text())
    assert manifest["artifacts"]["Helix-dev"]["properties"]["tags"] == wanted


STORED = {
    "KeysKeyFE944A9C": "KMS::Key",
    "StorageSessionsFCE686BD": "DynamoDB::Table",
    "StorageStreamsB3E214EF": "DynamoDB::Table",
    "StorageControl30152705": "DynamoDB::Table",
    "StorageBucket5CB7C8EA": "S3::Bucket",
    "StreamingChunksF054D80F": "Kinesis::Stream",
    "EndpointsTokenC8369FCA": "SecretsManager::Secret",
}


def test_what_stores_data_keeps_its_logical_id(deployed: Assembly, production: Assembly, offline: Assembly) -> None:
    """Another id would be another resource, so CloudFormation would create it anew and delete the old one."""
    for assembly in (deployed, production, offline):
        kinds = {id_: resource["Type"].removeprefix("AWS::") for id_, resource in assembly.main.resources.items()}
        assert {id_: kind for id_, kind in kinds.items() if kind in STORED.values()} == STORED


def test_the_outputs_say_where_everything_is(deployed: Assembly, offline: Assembly) -> None:
    for assembly in (deployed, offline):
        assert set(assembly.main.text["Outputs"]) == {
            *("Url", "ManagementUrl", "SessionsTable", "StreamsTable", "ControlTable", "BucketName", "FilesUrl"),
            *("ChunkStream", "MachinePattern", "MachineArns", "AlarmTopicArn", "NoticeTopicArn", "Region"),
            *(
                "Concurrency",
                "NextStep",
                "StreamingMode",
                "HealthUrl",
                "MetricsSecretArn",
                "AgentsDashboard",
                "PlumbingDashboard",
            ),
        }
    outputs = {name: text(output["Value"]) for name, output in deployed.main.text["Outputs"].items()}
    assert outputs["Url"].startswith("wss://<") and outputs["Url"].endswith("/dev")
    assert outputs["HealthUrl"].startswith("https://<") and outputs["HealthUrl"].endswith("/health")
    assert outputs["NextStep"] == "helix keys create --stage dev --user admin && helix check --stage dev"
    shown = deployed.main.of("CloudWatch::Dashboard")
    for name in ("AgentsDashboard", "PlumbingDashboard"):
        assert outputs[name].strip("<>") in shown
