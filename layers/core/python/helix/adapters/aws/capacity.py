"""Warm functions: provisioned concurrency for the alias that an agent's state machine calls.

Law: of the stage's functions, only those that belong to a single agent are changed. An account's concurrency is
limited, so AWS may refuse the change. In that case the refusal is logged, and runs incur cold starts. The admission
limit does not depend on warm functions.
"""

from __future__ import annotations

import asyncio
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from helix._log import get_logger
from helix.adapters.aws.calls import denial
from helix.core.errors import StoreError

ALIAS = "live"
VERB = "call_model"
"""The function that is kept warm, because runs wait for it."""
_REFUSED = frozenset(
    {
        "InvalidParameterValueException",
        "LimitExceededException",
        "ResourceConflictException",
        "ResourceNotFoundException",
    }
)
_GONE = frozenset({"ProvisionedConcurrencyConfigNotFoundException", "ResourceNotFoundException"})
logger = get_logger("helix")


class ProvisionedConcurrency:
    """The warm functions of a stage's agents. `client`: a botocore `lambda` client."""

    def __init__(self, client: Any, stage: str) -> None:
        self._client, self._stage = client, stage

    async def set_instances(self, agent: str, instances: int) -> None:
        """Keep `instances` execution environments warm. `agent` must have its own functions."""
        place = {"FunctionName": f"helix-{self._stage}-{agent}-{VERB}", "Qualifier": ALIAS}
        if instances <= 0:
            await self._call("delete_provisioned_concurrency_config", place, _GONE)
        else:
            request = {**place, "ProvisionedConcurrentExecutions": instances}
            await self._call("put_provisioned_concurrency_config", request, _REFUSED)

    async def _call(self, verb: str, request: dict[str, Any], harmless: frozenset[str]) -> None:
        try:
            await asyncio.to_thread(getattr(self._client, verb), **request)
        except ClientError as error:
            if error.response["Error"]["Code"] not in harmless:
                raise (denial(error, request) or StoreError(f"{verb} of {request['FunctionName']}: {error}")) from error
            logger.warning("%s of %s: %s", verb, request["FunctionName"], error)
        except BotoCoreError as error:
            raise StoreError(f"{verb} of {request['FunctionName']}: {error}") from error
