"""The CDK app: `python -m helix.infra.app [-c KEY=VALUE ...] [-o FOLDER]`, or through the CDK command line.

Law: the assembly depends only on the package, the project in the working directory, and context. The synthesis does not
query any account, and the assembly does not depend on this machine unless offline=true.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from aws_cdk import App, Environment

from helix.infra.build import BuildError
from helix.infra.config import DEFAULT_STAGE, SettingsError, pairs, read_settings
from helix.infra.packages import LockError
from helix.infra.stack import HelixStack
from helix.local.node import node_advice
from helix.runtime.project import HelixProject, NoProjectError, ProjectError, find_project, read_project, shipped

FLAGS = {**json.loads(shipped("cdk.json").read_text(encoding="utf-8"))["context"], "aws:cdk:version-reporting": False}
"""The app's feature flags. They are those that CDK recommends, even if the project has no cdk.json."""


def build(project: HelixProject, context: Mapping[str, Any] | None = None, outdir: str | None = None) -> App:
    """Create the app without synthesising it. `context` overrides the project's settings, and the CDK CLI's context
    overrides both.

    Raises `SettingsError` for an invalid setting, `ProjectError`, and `BuildError` if a layer cannot be built.
    """
    app = App(outdir=outdir, analytics_reporting=False, context={**FLAGS, **project.context, **(context or {})})
    given = app.node.get_all_context()
    settings = read_settings({**project.settings(given.get("stage", DEFAULT_STAGE)), **given})
    HelixStack(
        app,
        f"Helix-{settings.stage}",
        project=project.root,
        stage=settings.stage,
        env=Environment(account=settings.account, region=settings.region),
    )
    return app


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m helix.infra.app", description="Synthesise the CloudFormation templates."
    )
    parser.add_argument("-c", "--context", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("-o", "--output", default=None, help="the folder to write; cdk.out by default")
    given = parser.parse_args(arguments)
    if (advice := node_advice()) is not None:
        sys.stderr.write(f"infra: {advice}\n")
    try:
        project = read_project(find_project(Path.cwd()))
        outdir = given.output or os.environ.get("CDK_OUTDIR") or str(project.root / "cdk.out")
        build(project, pairs(given.context), outdir).synth()
    except (SettingsError, BuildError, LockError, NoProjectError, ProjectError) as error:
        sys.exit(f"infra: {error}")
    except RuntimeError as error:  # the only exception that jsii raises
        if "ValidationFailed" not in str(error):
            raise
        sys.exit(f"infra: a cdk-nag rule above is broken, and it is not suppressed with a reason. {error}")


if __name__ == "__main__":
    main()
