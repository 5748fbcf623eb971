"""Write layers/deps/requirements.txt of Helix's own repository: the packages that requirements.in needs on Lambda, at the
versions that are tested here.

    python -m helix.infra.lock

Law: a package that requirements.lock names gets that version, so functions run the tested versions. If only some of
`MODEL_PACKAGES` need a package, its line lists them, so that a stage can leave the package out.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from helix.infra.build import MODEL_PACKAGES, REQUIREMENTS, BuildError, pip_target
from helix.infra.config import Settings

OF_THE_RUNTIME = frozenset({"boto3", "botocore", "s3transfer"})
"""The packages of Lambda's Python runtime, 31 MB. litellm needs them only for Bedrock and S3 logging."""
NEVER_USED = frozenset({"hf-xet"})
"""The packages that functions never use. `hf-xet` (11 MB) downloads from Hugging Face, and functions do not download
models."""
HEADER = (
    "# Written by `python -m helix.infra.lock` from requirements.in and requirements.lock; boto3 comes with the runtime.\n"
    "# What follows a pin: the packages that call models, and alone need it.\n"
)


def main() -> None:
    asked = REQUIREMENTS.with_suffix(".in").read_text("utf-8").splitlines()
    base = [line for line in asked if line not in MODEL_PACKAGES]
    found = dict.fromkeys(resolve_requirements(base), "")
    for package in MODEL_PACKAGES:
        for pin in resolve_requirements([*base, package]) - {pin for pin, why in found.items() if not why}:
            found[pin] = f"{found.get(pin, '  #')} {package}"
    lines = [pin + why for pin, why in sorted(found.items())]
    REQUIREMENTS.write_text(HEADER + "\n".join(lines) + "\n", encoding="utf-8")


def resolve_requirements(requirements: Sequence[str]) -> set[str]:
    """Return the pins of everything that pip would install for these requirements. Raises `BuildError`."""
    settings = Settings()
    with tempfile.TemporaryDirectory() as folder:
        wanted = Path(folder) / "requirements.in"
        wanted.write_text("\n".join(requirements), encoding="utf-8")
        command = [
            *(sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--quiet", "--report", "-"),
            *pip_target(settings.target_architecture, settings.python),
            *("--target", "unused", "--disable-pip-version-check", "--no-input"),
            *("--requirement", str(wanted), "--constraint", "requirements.lock"),
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BuildError(f"pip could not resolve the deps layer:\n{done.stderr.strip()[-2000:]}")
    metadata = [entry["metadata"] for entry in json.loads(done.stdout)["install"]]
    pins = {f"{package['name'].lower()}=={package['version']}" for package in metadata}
    return {pin for pin in pins if pin.partition("==")[0].replace("_", "-") not in OF_THE_RUNTIME | NEVER_USED}


if __name__ == "__main__":
    main()
