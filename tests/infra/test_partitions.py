"""A stage can be deployed into every partition of AWS, because no ARN names one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.infra.conftest import DEPLOYED, ROOT, run_app
from tests.infra.templates import Assembly
from tests.support.synthesis import Synthesiser

pytestmark = pytest.mark.timeout(400)  # the first test waits for the synthesis
LITERAL = "arn:" + "aws"


@pytest.mark.parametrize("folder", ["infra", "functions", "layers", "examples"])
def test_no_source_names_a_partition(folder: str) -> None:
    files = [file for file in (ROOT / folder).rglob("*.py") if not file.is_symlink()]
    found = [str(file.relative_to(ROOT)) for file in files if LITERAL in file.read_text(encoding="utf-8")]
    assert files and found == []


def test_no_template_names_a_partition(deployed: Assembly, production: Assembly) -> None:
    """The only exception is the ARN from the settings."""
    for assembly in (deployed, production):
        for template in assembly.templates:
            assert LITERAL not in json.dumps(template.text).replace(DEPLOYED["model_secrets"], "")


@pytest.mark.parametrize(("region", "why"), [("cn-north-1", "ICP registration"), ("us-gov-west-1", "GovCloud")])
def test_cloudfront_is_refused_where_it_cannot_serve(
    python: Synthesiser, tmp_path: Path, region: str, why: str
) -> None:
    done = run_app(python, {"console": "cloudfront", "region": region}, tmp_path / "out")
    said = done.stderr.strip().splitlines()[-1]
    assert done.returncode == 1 and said.startswith("infra: context key 'console' is 'cloudfront': ")
    assert why in said and said.endswith(f"choose console=http in region {region!r}")
