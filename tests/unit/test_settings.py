"""The environment of a process as one typed value."""

from __future__ import annotations

import logging

import pytest

from helix.core.errors import InvalidInputError
from helix.runtime.settings import ProcessSettings, read_settings


def test_an_empty_environment_gives_the_defaults() -> None:
    assert read_settings({}) == ProcessSettings("helix.db", 15.0, (), logging.WARNING)
    assert read_settings({"HELIX_DB": " ", "HELIX_LEASE_SECONDS": ""}) == ProcessSettings()


def test_every_variable_is_read() -> None:
    environment = {
        "HELIX_DB": "a.db",
        "HELIX_LEASE_SECONDS": "2.5",
        "HELIX_AGENTS": "one.agents, two.py,",
        "HELIX_LOG": "debug",
    }
    assert read_settings(environment) == ProcessSettings("a.db", 2.5, ("one.agents", "two.py"), logging.DEBUG)


@pytest.mark.parametrize(
    ("name", "value"),
    [("HELIX_LEASE_SECONDS", v) for v in ("soon", "0", "-1", "nan", "inf")] + [("HELIX_LOG", "loud")],
)
def test_a_wrong_value_names_its_variable(name: str, value: str) -> None:
    with pytest.raises(InvalidInputError, match=f"{name} is '{value}'"):
        read_settings({name: value})
