"""The environment of the command line: the project's `.env`, and the packages that are installed."""

from __future__ import annotations

import os
from collections.abc import Iterator, MutableMapping
from pathlib import Path

from helix.cli.output import RefusedError
from helix.core.errors import HelixError

EXTRAS = {
    **dict.fromkeys(("boto3", "botocore", "aws_lambda_powertools", "jwt"), "aws"),
    **dict.fromkeys(("aws_cdk", "cdk_nag", "constructs"), "infra"),
    **dict.fromkeys(("psutil", "watchfiles", "prometheus_client", "httpx"), "fleet"),
    **dict.fromkeys(("litellm", "tiktoken"), "models"),
    "textual": "cli",
    "websockets": "client",
    "redis": "redis",
    **dict.fromkeys(("mcp", "mcp_types", "h11", "uvicorn", "starlette"), "mcp"),
    "opentelemetry": "otel",
    "anthropic": "anthropic",
    "openai": "openai",
}
"""The extra of Helix that installs each package. Packages that are not listed belong to the extra `local`."""


def explain_missing_package(module: str, command: str = "") -> str:
    """Return the error message for a `module` that `command` needs and cannot import."""
    package = module.partition(".")[0]
    extra = "local" if command.startswith("cloud.") else EXTRAS.get(package, "local")
    return f"{package} is not installed: pip install 'helix-agents[{extra}]'"


def load_environment(place: Path, environment: MutableMapping[str, str] = os.environ) -> None:
    """Set environment variables from the project's `.env`, then from `[tool.helix.environment]`. Variables that are already
    set are kept."""
    from helix.runtime.project import find_project, read_project  # `helix --version` does not need pydantic

    try:
        root = find_project(place)
    except HelixError:  # a command that needs a project reports the error
        return
    for name, value in [*_read_variables(root / ".env"), *read_project(root).tools.of(None).environment.items()]:
        environment.setdefault(name, value)


def _read_variables(file: Path) -> Iterator[tuple[str, str]]:
    """Yield the variables of a file of NAME=VALUE lines, whose values may be quoted."""
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return
    except UnicodeDecodeError as error:
        raise RefusedError(f".env is not UTF-8: {error}") from error
    for line in map(str.strip, text.splitlines()):
        name, equals, value = line.removeprefix("export ").partition("=")
        value = value.strip()
        if equals and value and not line.startswith("#"):
            quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "'\""
            yield name.strip(), value[1:-1] if quoted else value
