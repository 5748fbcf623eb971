"""Guards against secrets in texts and in JSON: keys and tokens whose form their issuers document."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from helix.core.guards import GuardContext, GuardFunction
from helix.core.json import JsonValue
from helix.core.verdicts import Allow, AnyVerdict, Block, Replace

SECRET_PATTERNS: Mapping[str, re.Pattern[str]] = {
    name: re.compile(pattern)
    for name, pattern in {
        "private key": r"-----BEGIN [A-Z0-9 ]{0,30}PRIVATE KEY(?: BLOCK)?-----"
        r"(?:(?:(?!-----)[\s\S]){0,20000}-----END [A-Z0-9 ]{1,40}-----|[A-Za-z0-9+/=\s]{0,20000})",
        "AWS access key": r"\b(?:AKIA|ASIA)[A-Z2-7]{16}\b",
        "GitHub token": r"\b(?:gh[pousr]_[A-Za-z0-9]{36,255}|github_pat_[A-Za-z0-9_]{22,255})\b",
        "GitLab token": r"\bglpat-[A-Za-z0-9_-]{20,300}",
        "Slack token": r"\bxox[abeoprs]-[A-Za-z0-9-]{10,300}",
        "Stripe key": r"\b[sr]k_(?:live|test)_[A-Za-z0-9]{16,300}",
        "Google API key": r"\bAIza[A-Za-z0-9_-]{35}",
        "OpenAI key": r"\bsk-(?!ant-)[A-Za-z0-9_-]{20,300}",
        "Anthropic key": r"\bsk-ant-[A-Za-z0-9_-]{20,300}",
        "npm token": r"\bnpm_[A-Za-z0-9]{36}\b",
        "JSON Web Token": r"\beyJ[A-Za-z0-9_-]{8,1000}\.eyJ[A-Za-z0-9_-]{8,20000}\.[A-Za-z0-9_-]{8,1000}",
    }.items()
}
"""The patterns by name. Each repetition has a limit, so that no text takes quadratic time to search. A secret without a
recognisable form, such as a password, is not found."""


def block_secrets(patterns: Mapping[str, re.Pattern[str]] = SECRET_PATTERNS) -> GuardFunction:
    """Return a guard that blocks a value with a secret. The reason names the kind of secret, not the secret."""

    def secrets(value: Any, context: GuardContext) -> AnyVerdict:
        found = sorted({name for text in texts(value) for name, pattern in patterns.items() if pattern.search(text)})
        return Block(f"it contains: {', '.join(found)}") if found else Allow()

    return secrets


def replace_secrets(
    patterns: Mapping[str, re.Pattern[str]] = SECRET_PATTERNS, *, replacement: str = "[secret]"
) -> GuardFunction:
    """Return a guard that replaces each secret in a value, also in the keys of JSON objects."""

    def cleaned(value: JsonValue) -> JsonValue:
        match value:
            case str():
                for pattern in patterns.values():
                    value = pattern.sub(lambda _: replacement, value)
                return value
            case list():
                return [cleaned(item) for item in value]
            case dict():
                return {str(cleaned(key)): cleaned(item) for key, item in value.items()}
            case _:
                return value

    def secrets(value: Any, context: GuardContext) -> AnyVerdict:
        new = cleaned(value)
        return Allow() if new == value else Replace(new)

    return secrets


def texts(value: JsonValue) -> Iterator[str]:
    """Yield each text in a JSON value, including the keys of objects."""
    match value:
        case str():
            yield value
        case list():
            for item in value:
                yield from texts(item)
        case dict():
            for key, item in value.items():
                yield key
                yield from texts(item)
