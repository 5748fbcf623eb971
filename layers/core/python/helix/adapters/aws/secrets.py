"""Secrets for tools and models, from Secrets Manager and the Parameter Store of Systems Manager.

Law: the values of secrets stay in this process's memory. Errors and logs never contain them. All are read together and
cached for `FRESH_S`. After that time a rotated secret takes effect. Values change only between two calls. A tool's call
fails if its secret is deleted or access to it is denied. If the service is unavailable, the call fails only if no value
is cached.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from helix._log import get_logger
from helix.adapters.aws.calls import denial
from helix.core.config import LLMConfig
from helix.core.context import secrets_of
from helix.core.errors import InvalidInputError, SecretNotFoundError, StoreError
from helix.core.steps import AnyStepResult, ErrorStepResult
from helix.core.tool_settings import SecretPlace
from helix.ports.clock import Clock
from helix.ports.model import BaseAdapter, LLMGenerateInput

FRESH_S = 300.0
REFUSALS = frozenset(
    {
        "AccessDenied",
        "AccessDeniedException",
        "DecryptionFailure",
        "InvalidRequestException",  # it is marked for deletion
        "ParameterNotFound",
        "ResourceNotFoundException",
        "ValidationException",
    }
)
"""The error codes of permanent errors, which a retry cannot fix."""

logger = get_logger(__name__)


class AwsSecrets:
    """The secrets of tools. `places` maps the names that tools read to the places of the secrets. `client` returns the
    boto3 client for a service."""

    def __init__(self, places: Mapping[str, SecretPlace], client: Callable[[str], Any], clock: Clock) -> None:
        self._places, self._client, self._clock = dict(places), client, clock
        self._texts: dict[str, str] = {}
        self._read_at = float("-inf")
        declared = ", ".join(sorted(places)) or "none"
        self.text = secrets_of(self._texts, f"[tool.helix.secrets] of pyproject.toml declares {declared}")

    def refresh(self) -> None:
        """Read all secrets, unless they are fresh. Raises `StoreError`, or a `SecretNotFoundError` that names the
        missing secret and its place."""
        now = self._clock.now()
        if now - self._read_at < FRESH_S:
            return
        held: dict[tuple[str, str], str] = {}
        try:
            for name, place in self._places.items():
                if (key := (place.service, place.id)) not in held:
                    held[key] = self._read(name, place)
                self._texts[name] = _field(name, place, held[key])
        except StoreError as error:
            if self._places.keys() - self._texts.keys():
                raise
            logger.warning("the secrets could not be read again, and their previous values stay in use: %s", error)
        self._read_at = now

    def _read(self, name: str, place: SecretPlace) -> str:
        try:
            client = self._client(place.service)
            if place.service == "ssm":
                return str(client.get_parameter(Name=place.id, WithDecryption=True)["Parameter"]["Value"])
            return str(client.get_secret_value(SecretId=place.id).get("SecretString") or "")
        except ClientError as error:
            code = error.response["Error"]["Code"]
            if code in REFUSALS:
                raise SecretNotFoundError(f"secret {name!r} cannot be read from {str(place)!r}: {code}") from None
            raise StoreError(f"secret {name!r} cannot be read from {str(place)!r} now: {code}") from error
        except BotoCoreError as error:
            raise StoreError(f"secret {name!r} cannot be read from {str(place)!r} now: {error}") from error


class ModelKeys:
    """The variables of model providers, such as OPENAI_API_KEY. They are set in `environment`. `names`: names or ARNs
    of secrets, each a JSON object of variables."""

    def __init__(
        self, names: Sequence[str], client: Callable[[str], Any], clock: Clock, environment: MutableMapping[str, str]
    ) -> None:
        self._names, self._client, self._clock, self._environment = names, client, clock, environment
        self._variables: dict[str, str] = {}
        self._read_at = float("-inf")

    @property
    def known(self) -> bool:
        return bool(self._variables)

    def refresh(self, *, at_once: bool = False) -> bool:
        """Read all secrets if they are older than `FRESH_S`, or `at_once`. Returns whether a variable has changed. The
        first failure to read raises `StoreError`, or `InvalidInputError` for a secret that is not a JSON object of
        strings. Later failures are logged, and the known keys stay in use."""
        now = self._clock.now()
        if now - self._read_at < FRESH_S and not at_once:
            return False
        found: dict[str, str] = {}
        try:
            for name in self._names:
                found |= self._read(name)
        except (StoreError, InvalidInputError) as error:
            if not self._variables:
                raise
            logger.warning("the models' keys could not be read again, and their previous values stay in use: %s", error)
            found = self._variables
        self._read_at = now
        if found == self._variables:
            return False
        self._variables = found
        self._environment.update(found)
        return True

    def _read(self, name: str) -> dict[str, str]:
        try:
            variables = json.loads(self._client("secretsmanager").get_secret_value(SecretId=name)["SecretString"])
        except (BotoCoreError, ClientError) as error:
            failed = denial(error, {"SecretId": name}) or StoreError(f"the secret {name!r} cannot be read: {error}")
            raise failed from error
        except (KeyError, ValueError):
            variables = None
        if not isinstance(variables, dict) or not all(isinstance(value, str) for value in variables.values()):
            raise InvalidInputError(f"the secret {name!r} must be a JSON object whose values are strings")
        return variables


class RotatedKeys(BaseAdapter):
    """An adapter around `model`. If the provider refuses the key, `refresh` reads the keys again and returns whether
    one has changed. In that case the model is called once more."""

    def __init__(self, model: BaseAdapter, refresh: Callable[[], bool]) -> None:
        self._model, self._refresh = model, refresh
        self.repeats_failures = model.repeats_failures

    def configured(self, config: LLMConfig) -> LLMConfig:
        return self._model.configured(config)

    def prepare(self, config: LLMConfig) -> None:
        self._model.prepare(config)

    async def generate_step(self, request: LLMGenerateInput) -> AnyStepResult:
        result = await self._model.generate_step(request)
        refused = isinstance(result, ErrorStepResult) and result.code == "authentication"
        if not (refused and await asyncio.to_thread(self._refresh)):
            return result
        again = await self._model.generate_step(request)
        return again.model_copy(update={"usage": result.usage + again.usage})


def _field(name: str, place: SecretPlace, text: str) -> str:
    if place.field:
        try:
            text = json.loads(text)[place.field]
        except (ValueError, KeyError, TypeError, IndexError):
            problem = f"does not hold a JSON object with the field {place.field!r}"
            raise SecretNotFoundError(f"secret {name!r}: {str(place)!r} {problem}") from None
    if not isinstance(text, str) or not text:
        raise SecretNotFoundError(f"secret {name!r}: {str(place)!r} does not hold a non-empty string")
    return text
