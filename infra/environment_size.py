"""A check of the size of a function's environment variables against Lambda's limit.

Law: if the variables of a function may not fit, the synthesis fails with the function's name and the largest variables.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any

from helix.infra.config import SettingsError

MAX_BYTES = 4096
"""The limit on the total size of a function's variables, in bytes:
https://docs.aws.amazon.com/lambda/latest/dg/gettingstarted-limits.html. Lambda measures them as one JSON object, as its
error message shows: https://github.com/github-aws-runners/terraform-aws-github-runner/issues/3594"""
NAME_BYTES, ARN_BYTES = 63, 128
"""The maximum length in bytes of a resolved reference: of a name, such as a bucket's, and of an ARN or URL."""
PSEUDO_BYTES = {"AWS::AccountId": 12, "AWS::Partition": 10, "AWS::Region": 16, "AWS::URLSuffix": 16}
LARGEST = 3


def check_environment(function: str, variables: Mapping[str, Any], own: Collection[str]) -> None:
    """Check that the variables fit. `variables`: the values in the template. `own`: the names of those that only this
    function has, whose references are ARNs and URLs. Raises `SettingsError`."""
    sizes = {name: len(name) + 6 + _bytes(value, name in own) for name, value in variables.items()}  # "":"",
    if (size := sum(sizes.values()) + 1) <= MAX_BYTES:
        return
    largest = sorted(sizes, key=sizes.__getitem__, reverse=True)[:LARGEST]
    listed = ", ".join(f"{name} {sizes[name]:,}" for name in largest)
    problem = f"its environment variables take up to {size:,} bytes, and Lambda has room for {MAX_BYTES:,}"
    advice = "shorten them; docs/guide/tool-settings.md#room-for-variables says where each comes from"
    raise SettingsError(f"function {function!r}: {problem}. The largest are {listed}: {advice}")


def _bytes(value: Any, is_own: bool) -> int:
    """Return the maximum size of a value in bytes."""
    match value:
        case str():
            return len(json.dumps(value, ensure_ascii=False).encode()) - 2
        case {"Fn::Join": [str(between), [*parts]]}:
            return sum(_bytes(part, is_own) for part in parts) + len(between) * (len(parts) - 1)
        case {"Ref": name}:
            return PSEUDO_BYTES.get(name, ARN_BYTES if is_own else NAME_BYTES)
        case _:
            return ARN_BYTES
