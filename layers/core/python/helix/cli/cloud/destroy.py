"""`helix destroy`: delete a stage. The command lists the retained resources before and after the deletion.

Law: the command stops all runs before the deletion and waits at most `stopping.PATIENCE_S` for them. CloudFormation
determines which resources it retains. Only buckets and tables that the stack's own template does not retain are emptied and
unprotected.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Annotated

import typer

from helix.adapters.system import SystemClock
from helix.cli.cloud.deploy import Deployment, Target, aws_errors
from helix.cli.cloud.stack import Deployed, empty_bucket, protect_tables, read_stage, release_failed
from helix.cli.cloud.stopping import Stopping, schedules_off
from helix.cli.output import COMPLETED, STOPPED, RefusedError, ask, say, write
from helix.runtime.tables import open_stage


def destroy(given: Deployment, yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask")] = False) -> int:
    target = Target(given)
    with aws_errors():
        release_failed(target.client("cloudformation"), target.stack)
        deployed = read_stage(target.client("cloudformation"), target.stack)
        if deployed is None:
            raise RefusedError(
                f"there is no stage {target.stage!r} here: no stack {target.stack!r} in this account and region"
            )
        if deployed.protected:
            raise RefusedError(
                f"stage {target.stage!r} is protected against its deletion, because it retains its data. To delete the "
                "data too, deploy it with -c retain=false first; to keep the data, disable the stack's termination "
                "protection"
            )
        write(f"Stage {target.stage!r} in account {deployed.account} has {len(deployed.resources)} resources.")
        _show_retained(deployed, "will stay", "None of its data will stay.")
        if not (yes or _confirm(target.stage)):
            say("nothing was deleted")
            return STOPPED
        delete_stage(target, deployed)
    write(f"\nStage {target.stage!r} is deleted.")
    _show_retained(deployed, "stayed", "Nothing of its data stayed.")
    return COMPLETED


def delete_stage(target: Target, deployed: Deployed) -> None:
    """Stop the runs, and delete the stack with the resources that it does not retain."""
    with schedules_off(target.client("events"), deployed):
        _stop(target, deployed)
        _delete(target, deployed)


def _confirm(stage: str) -> bool:
    if not sys.stdin.isatty():
        raise RefusedError(f"deleting stage {stage!r} needs confirmation: answer at a terminal, or add --yes")
    return ask("This deletes it, sessions and all. Type its name to continue: ") == stage


def _show_retained(deployed: Deployed, words: str, otherwise: str) -> None:
    for resource in deployed.retained:
        write(f"  {words}: {resource.words}")
    if not deployed.retained:
        write(f"  {otherwise}")
    if deployed.key:
        write(f"  KMS deletes key {deployed.key} after 30 days; until then it can be restored.")


def _stop(target: Target, deployed: Deployed) -> None:
    store = open_stage(target.client, target.stack) if deployed.tables(retained=True) else None
    stopping = Stopping(target.client, deployed, f"{target.stack}-fail_run", store, SystemClock())
    if left := asyncio.run(stopping.stop()):
        say(f"{left} runs or executions have not ended in time; the deletion goes on without waiting for them")


def _delete(target: Target, deployed: Deployed) -> None:
    """Delete the stack. If that fails because functions that were still running wrote to an emptied bucket, empty it and
    retry. By then the functions have been deleted."""
    protect_tables(target.client("dynamodb"), deployed)
    _empty(target, deployed)
    try:
        target.cdk("destroy", "--force")
    except RefusedError:
        if not _empty(target, deployed):
            raise
        target.cdk("destroy", "--force")


def _empty(target: Target, deployed: Deployed) -> int:
    """Empty the buckets that will be deleted, and return the number of deleted objects."""
    storage, count = target.client("s3"), 0
    for bucket in deployed.buckets:
        count += (found := empty_bucket(storage, bucket))
        write(f"  emptied bucket {bucket}: {found} objects")
    return count
