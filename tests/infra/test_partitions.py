"""A stage can be deployed into every partition of AWS: no ARN names one."""

from __future__ import annotations

import json

import pytest
from tests.infra.conftest import DEPLOYED, ROOT
from tests.infra.templates import Assembly

pytestmark = pytest.mark.timeout(400)  # the first test waits for the synthesis
LITERAL = "arn:" + "aws"


@pytest.mark.parametrize("folder", ["infra", "functions", "layers", "examples"])
def test_no_source_names_a_partition(folder: str) -> None:
    files = [file for file in (ROOT / folder).rglob("*.py") if not file.is_symlink()]
    found = [str(file.relative_to(ROOT)) for file in files if LITERAL in file.read_text(encoding="utf-8")]
    assert files and found == []


def test_no_template_names_a_partition(deployed: Assembly, production: Assembly) -> None:
    """Except in the ARN that the settings gave."""
    for assembly in (deployed, production):
        for template in assembly.templates:
            assert LITERAL not in json.dumps(template.text).replace(DEPLOYED["model_secrets"], "")
