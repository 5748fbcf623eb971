"""Principals as text: all are different, and no one's prefix begins with another's."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helix.core.errors import NotAuthenticatedError
from helix.gateway.authoriser import Principal, prefix_of
from helix.services.claim_input import SESSION_ID

NAMES = st.text(alphabet="ab/:=%é|", min_size=1, max_size=4)
PRINCIPALS = st.builds(Principal, NAMES, st.none() | NAMES)


@given(PRINCIPALS, PRINCIPALS)
def test_different_principals_have_different_texts_and_apart_prefixes(one: Principal, other: Principal) -> None:
    if one != other:
        assert str(one) != str(other)
        assert not prefix_of(str(one)).startswith(prefix_of(str(other)))


@given(PRINCIPALS)
def test_a_prefix_begins_a_session_id(principal: Principal) -> None:
    assert SESSION_ID.fullmatch(f"{prefix_of(str(principal))}x")


def test_usual_names_stay_readable() -> None:
    assert str(Principal("ada@example.com")) == "ada@example.com"
    assert str(Principal("auth0|7", "acme")) == "acme/auth0=7C7"
    assert (prefix_of("ada"), prefix_of("acme/ada"), prefix_of(None)) == ("ada:", ":acme:ada:", "")


@pytest.mark.parametrize("user, tenant", [("", None), ("ada", ""), ("x" * 257, None), ("é" * 43, None)])
def test_what_names_nobody_is_refused(user: str, tenant: str | None) -> None:
    with pytest.raises(NotAuthenticatedError):
        Principal(user, tenant)
