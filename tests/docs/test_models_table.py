"""The table of providers in docs/guide/models.md matches the code."""

from __future__ import annotations

import re

from tests.docs.documents import ROOT

from helix.adapters.models.choice import LITELLM, PACKAGES, extra_of
from helix.runtime.models import variables_of

GUIDE = ROOT / "docs" / "guide" / "models.md"
INTERFACES = {
    "boto3": "Converse",
    "openai": "Responses; Chat Completions where a base URL names another server",
    "anthropic": "Messages",
    LITELLM: "the provider's own",
}
HEAD = ["| Models | Interface | Package | Install | Variables, one of |", "|---|---|---|---|---|"]


def table() -> str:
    rows = [
        f"| `{provider}/...` | {INTERFACES[package]} | {package} | `pip install 'helix-agents[{extra_of(package)}]'` | "
        f"{', '.join(f'`{name}`' for name in variables_of(f'{provider}/x'))} |"
        for provider, package in PACKAGES.items()
    ]
    litellm = "[litellm](https://docs.litellm.ai/docs/providers)"
    install = f"`pip install 'helix-agents[{extra_of(LITELLM)}]'`"
    rows.append(f"| all others | {INTERFACES[LITELLM]} | {litellm} | {install} | `<PROVIDER>_API_KEY` |")
    return "\n".join([*HEAD, *rows])


def test_the_guide_has_the_providers_as_the_code_calls_them() -> None:
    shown = re.search(r"<!-- providers -->\n(.*)\n<!-- /providers -->", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    assert shown is not None and shown[1] == table()
