"""The environment of offline functions, which contains only this machine's variables. Secrets are stored in the offline
account at the places that the project names, with values from this process's environment.

Law: a function reads everything from the same place and with the same permission as on AWS.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from helix.core.tool_settings import SecretPlace
from helix.local.process import OfflineError

MACHINE = (
    *("PATH", "HOME", "USER", "LOGNAME", "LANG", "LANGUAGE", "TZ", "TMPDIR", "LD_LIBRARY_PATH", "VIRTUAL_ENV"),
    *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"),
    "HELIX_LOG_CONTENT",
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"),
)
"""The variables that functions inherit: program paths, locale, proxies, and whether logs contain the text of messages."""
Client = Callable[[str], Any]


def machine_variables(environment: Mapping[str, str]) -> dict[str, str]:
    return {
        name: value
        for name, value in environment.items()
        if name.upper() in MACHINE or name.startswith(("LC_", "DYLD_"))
    }


def store_secrets(client: Client, places: Mapping[SecretPlace, str], environment: Mapping[str, str]) -> None:
    """Store values from the environment in the secrets that tools read. Raises `OfflineError` with the name of each missing
    variable."""
    if missing := {name: place for place, name in places.items() if not environment.get(name)}:
        lines = ", ".join(f"{name} (deployed: {str(place)!r})" for name, place in sorted(missing.items()))
        example = next(iter(sorted(missing)))
        raise OfflineError(f"secrets of [tool.helix.secrets] have no value here: {lines}; put {example}=... into .env")
    stored: dict[tuple[str, str], str | dict[str, str]] = {}
    for place, name in places.items():
        key, value = (place.service, place.id), environment[name]
        if not place.field:
            stored[key] = value
            continue
        fields = stored.setdefault(key, {})
        if isinstance(fields, dict):
            fields[place.field] = value
    for (service, id), text in stored.items():
        whole = json.dumps(text) if isinstance(text, dict) else text
        if service == "ssm":
            client("ssm").put_parameter(Name=_name(id), Value=whole, Type="SecureString", Overwrite=True)
        else:
            store_secret(client("secretsmanager"), _name(id), whole)


def store_secret(client: Any, name: str, text: str) -> None:
    try:
        known = client.get_secret_value(SecretId=name)["SecretString"]
    except client.exceptions.ResourceNotFoundException:
        client.create_secret(Name=name, SecretString=text)
        return
    if known != text:
        client.put_secret_value(SecretId=name, SecretString=text)


def _name(id: str) -> str:
    """Return the name of a secret. Raises `OfflineError` for an ARN, because its account does not exist offline."""
    if id.startswith("arn:"):
        problem = "names an account that is not here: name the secret in [tool.helix.secrets] without its ARN"
        raise OfflineError(f"{id!r} {problem}, or give the stage a table of its own")
    return id
