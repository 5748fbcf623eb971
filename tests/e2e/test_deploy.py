"""`helix deploy` and `helix destroy`: the real commands and the real CDK command line deploy into the emulator's
CloudFormation.

The emulator cannot show a real account's bootstrap roles, or how long things take there.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.support.offline_cloud import PRIVATE, ROOT

from helix.cli.cloud.checks import CHECKS
from helix.local.process import Emulator

PATIENCE_S = 240
CDK = ROOT / "node_modules" / ".bin" / "cdk"
REGION = "us-east-1"
TABLES = ["helix-ship-control", "helix-ship-sessions", "helix-ship-streams"]

pytestmark = pytest.mark.timeout(600)


class Account:
    """The emulator as an AWS account, and the command line in the project's folder with credentials of that account."""

    def __init__(self, emulator: Emulator, folder: Path) -> None:
        self.emulator, self._folder = emulator, folder

    def client(self, service: str) -> Any:
        import boto3

        return boto3.client(
            service, endpoint_url=self.emulator.url, region_name=REGION, **self.emulator.credentials.options
        )

    def run(
        self, *command: str, told: str = "", patience_s: float = PATIENCE_S, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        kept = {name: value for name, value in os.environ.items() if not PRIVATE.match(name)}
        credentials = self.emulator.credentials.variables
        # CDK's own check of the template is off: it takes most of the time, and no assertion here depends on it.
        own = {"AWS_ENDPOINT_URL": self.emulator.url, "HOME": str(self._folder), "CI": "1", "CDK_VALIDATION": "false"}
        return subprocess.run(
            command,
            cwd=ROOT,
            env={**kept, **credentials, **own, **variables},
            input=told,
            capture_output=True,
            text=True,
            timeout=patience_s,
            check=False,
        )

    def helix(self, *words: str, **options: Any) -> subprocess.CompletedProcess[str]:
        more = ["--stage", "ship", "-c", "offline=true"]
        return self.run(sys.executable, "-m", "helix.cli", *words, *more, **options)

    def stacks(self) -> list[str]:
        found = self.client("cloudformation").describe_stacks()["Stacks"]
        return sorted(stack["StackName"] for stack in found if stack["StackStatus"] != "DELETE_COMPLETE")

    def tables(self) -> list[str]:
        return sorted(self.client("dynamodb").list_tables()["TableNames"])


@pytest.fixture(scope="module")
def account(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Account]:
    """Bootstrap the account with the CLI's own template, including the bucket for uploads."""
    if not CDK.is_file():
        if shutil.which("npm") is None:
            pytest.fail("npm is missing: `helix deploy` is the CDK command line, which it installs")
        subprocess.run(["npm", "ci", "--silent", "--no-audit", "--no-fund"], cwd=ROOT, check=True, timeout=PATIENCE_S)
    folder = tmp_path_factory.mktemp("account")
    emulator = Emulator(folder / "emulator", environment=os.environ)
    emulator.start()
    try:
        made = Account(emulator, folder)
        app = ["--app", f'"{sys.executable}" -m helix.infra.app', "-c", "offline=true"]
        done = made.run(str(CDK), "bootstrap", *app)
        assert done.returncode == 0, done.stdout + done.stderr
        yield made
    finally:
        emulator.close()


def row(text: str, name: str) -> str:
    return next(line.split(maxsplit=1)[1] for line in text.splitlines() if line.split()[:1] == [name])


def test_deploy_talk_deploy_again_destroy(account: Account) -> None:
    """The first deployment retains its data, so destroying it is refused. The second deployment follows the advice of the
    refusal and gives the data up."""
    assert "there is no stage 'ship' here" in account.helix("destroy", "--yes").stderr

    done = account.helix("deploy", "--yes", "-c", "retain=true", "-c", "console=http")
    assert done.returncode == 0, done.stdout + done.stderr
    page = httpx.get(row(done.stdout, "console"), trust_env=False, timeout=30)
    assert page.status_code == 200 and "<title>Helix</title>" in page.text
    url, key = row(done.stdout, "url"), row(done.stdout, "key")
    assert key.startswith("helix_") and "of user 'admin'; it is shown only now" in done.stdout
    assert url.startswith(f"ws://127.0.0.1:{account.emulator.port}/")
    assert done.stdout.count("  ok  ") == len(CHECKS) - 1, done.stdout
    assert done.stdout.count("  not run  ") == 1 and "the setting alarm_email is not set" in done.stdout
    said = account.run(sys.executable, "-m", "helix.cli", "run", "desk", "Warranty?", "--url", url, "--key", key)
    assert said.returncode == 0 and "two years" in said.stdout, said.stdout + said.stderr

    protected = account.helix("destroy", "--yes")
    assert protected.returncode == 2 and "is protected against its deletion" in protected.stderr
    again = account.helix("deploy", "--yes", "--no-check", "-c", "retain=false")
    assert again.returncode == 0, again.stderr
    assert "console" not in again.stdout and httpx.get(page.url, trust_env=False, timeout=30).status_code == 404
    assert row(again.stdout, "key") == "the first one was shown when it was made"
    assert account.tables() == TABLES

    outputs = account.client("cloudformation").describe_stacks(StackName="helix-ship")["Stacks"][0]["Outputs"]
    (name,) = [output["OutputValue"] for output in outputs if output["OutputKey"] == "BucketName"]
    storage = account.client("s3")
    storage.put_bucket_versioning(Bucket=name, VersioningConfiguration={"Status": "Enabled"})
    for text in (b"one", b"two"):
        storage.put_object(Bucket=name, Key="overflow/x", Body=text)
    storage.delete_object(Bucket=name, Key="overflow/x")

    refused = account.helix("destroy")
    assert refused.returncode == 2 and "needs confirmation" in refused.stderr
    assert "helix-ship" in account.stacks()

    gone = account.helix("destroy", "--yes")
    assert gone.returncode == 0, gone.stdout + gone.stderr
    assert f"emptied bucket {name}: 3 objects" in gone.stdout
    assert "None of its data will stay." in gone.stdout and "after 30 days" in gone.stdout
    assert account.tables() == [] and "helix-ship" not in account.stacks()
    assert name not in [found["Name"] for found in storage.list_buckets()["Buckets"]]


def test_what_a_stage_retains_is_named_and_stays(account: Account) -> None:
    """CDK's own command deploys the stage. It prints the URLs and the next steps."""
    app = ["--app", f'"{sys.executable}" -m helix.infra.app', "--require-approval", "never"]
    plain = ["-c", "stage=ship", "-c", "retain=true", *app]
    refused = account.run(str(CDK), "deploy", *plain)
    assert refused.returncode != 0 and "give -c offline=true" in refused.stdout + refused.stderr
    done = account.run(str(CDK), "deploy", "-c", "offline=true", *plain)
    assert done.returncode == 0, done.stdout + done.stderr
    printed = dict(re.findall(r"^Helix-ship\.(\w+) = (.+)$", done.stdout + done.stderr, re.MULTILINE))
    assert printed["Url"].startswith(f"ws://127.0.0.1:{account.emulator.port}/")
    created, checked = printed["NextStep"].split(" && ")
    assert checked == "helix check --stage ship"
    made = account.run(sys.executable, "-m", "helix.cli", *created.split()[1:], AWS_DEFAULT_REGION=REGION)
    assert made.returncode == 0 and made.stdout.startswith("helix_"), made.stderr
    account.client("cloudformation").update_termination_protection(
        StackName="helix-ship", EnableTerminationProtection=False
    )
    gone = account.helix("destroy", "--yes", "-c", "retain=true")
    assert gone.returncode == 0, gone.stdout + gone.stderr
    for table in TABLES:
        assert f"  will stay: table {table}\n" in gone.stdout and f"  stayed: table {table}\n" in gone.stdout
    assert account.tables() == TABLES and "helix-ship" not in account.stacks()


def test_what_is_wrong_is_said(account: Account, tmp_path: Path) -> None:
    wrong = account.helix("deploy", "--yes", "-c", "shards=many")
    assert wrong.returncode == 2 and "context key 'shards' is 'many'" in wrong.stderr
    assert "cdk deploy failed" in wrong.stderr and "Traceback" not in wrong.stderr
    elsewhere = account.helix("deploy", "--project", str(tmp_path))
    assert elsewhere.returncode == 2 and "there is no Helix project" in elsewhere.stderr
    nobody = account.helix("destroy", "--profile", "nobody")
    assert nobody.returncode == 2 and "nobody" in nobody.stderr and "Traceback" not in nobody.stderr
    stranger = account.helix("destroy", AWS_ACCESS_KEY_ID="AKIAIOSFODNN7EXAMPLE")
    assert stranger.returncode == 2 and "AWS refuses: " in stranger.stderr and "Traceback" not in stranger.stderr
