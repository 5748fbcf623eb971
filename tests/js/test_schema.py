"""The types of the TypeScript client agree with those of the service."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

CLIENT = Path(__file__).parents[2] / "clients" / "js"


def _schema_script() -> Any:
    spec = importlib.util.spec_from_file_location("client_schema", CLIENT / "schema.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_schema_is_that_of_the_service() -> None:
    stored = (CLIENT / "schema.json").read_text(encoding="utf-8")
    assert stored == _schema_script().text(), "python clients/js/schema.py, then in clients/js: npm run generate"
