"""Guards that come with Helix. Each function returns a guard function for any place of a `Guard`, but `named_by_user`
judges calls only.

    from helix import Agent, Guard
    from helix.guards import allowed_hosts, block_secrets

    Agent(..., guards=[Guard(call=allowed_hosts("example.com"), output=block_secrets())])

Only `BedrockGuardrail` calls a service; it requires the `bedrock` or the `aws` extra.
"""

from helix.guards.bedrock_guardrail import BedrockGuardrail
from helix.guards.checks import allowed_hosts, fits_schema, max_size
from helix.guards.secret_patterns import SECRET_PATTERNS, block_secrets, replace_secrets
from helix.guards.user_values import named_by_user

__all__ = [
    "SECRET_PATTERNS",
    "BedrockGuardrail",
    "allowed_hosts",
    "block_secrets",
    "fits_schema",
    "max_size",
    "named_by_user",
    "replace_secrets",
]
