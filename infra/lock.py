"""Write layers/deps/requirements.txt: what requirements.in needs on Lambda, in the versions that are tested here.

    python -m infra.lock

Law: a package that requirements.lock names gets that version, so functions run what the tests ran.
"""

from __future__ import annotations

import json
import subprocess
import sys

from infra.build import REQUIREMENTS, ROOT, BuildError, pip_target
from infra.config import Settings

OF_THE_RUNTIME = frozenset({"boto3", "botocore", "s3transfer"})
"""Lambda's Python runtime brings them, 31 MB; litellm asks for them for Bedrock and S3 logging only."""
NEVER_USED = frozenset({"hf-xet"})
"""Downloads from Hugging Face, 11 MB: nothing downloads models in a function."""
HEADER = (
    "# Written by `python -m infra.lock` from requirements.in and requirements.lock; boto3 comes with the runtime.\n"
)


def main() -> None:
    settings = Settings()
    command = [
        *(sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--quiet", "--report", "-"),
        *pip_target(settings.target_architecture, settings.python),
        *("--target", "unused", "--disable-pip-version-check", "--no-input"),
        *("--requirement", str(REQUIREMENTS.with_suffix(".in")), "--constraint", str(ROOT / "requirements.lock")),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BuildError(f"pip could not resolve the deps layer:\n{done.stderr.strip()[-2000:]}")
    wanted = [entry["metadata"] for entry in json.loads(done.stdout)["install"]]
    left_out = OF_THE_RUNTIME | NEVER_USED
    pins = sorted(f"{package['name'].lower()}=={package['version']}" for package in wanted)
    retained = [pin for pin in pins if pin.partition("==")[0].replace("_", "-") not in left_out]
    REQUIREMENTS.write_text(HEADER + "\n".join(retained) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
