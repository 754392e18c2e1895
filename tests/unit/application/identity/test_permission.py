"""What a caller may, and how a token is shown."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotline.application.identity.bearer import bearer_token
from spotline.application.identity.permission import (
    DenialKind,
    role_denial,
    tenant_denial,
    whole_denial,
)
from spotline.contracts.access import GRPC_ACTIONS, HTTP_ACTIONS, Caller, Reach, Role
from spotline.contracts.errors import Unauthenticated

ACTIONS = st.sampled_from([*GRPC_ACTIONS.values(), *HTTP_ACTIONS.values()])
TENANTS = st.sampled_from(("", "research", "rival"))
CALLERS = st.builds(Caller, subject=st.just("ann"), role=st.sampled_from(Role), tenant=TENANTS)


@given(action=ACTIONS, caller=CALLERS)
def test_a_role_is_denied_where_it_is_not_in_the_row(action, caller):
    denial = role_denial(action, caller)

    assert (denial is None) == (caller.role in action.roles)
    if denial is not None:
        assert denial.kind is DenialKind.ROLE
        assert all(role.value in denial.detail for role in action.roles)


@given(action=ACTIONS, caller=CALLERS, tenant=TENANTS)
def test_nobody_reaches_beyond_his_tenant(action, caller, tenant):
    whole, theirs = whole_denial(action, caller), tenant_denial(action, caller, tenant)

    if not caller.tenant:
        assert (whole, theirs) == (None, None)
    if caller.tenant and action.reach is Reach.WHOLE:
        assert whole is not None
        assert whole.kind is DenialKind.TENANT
    if caller.tenant and action.reach is Reach.TENANT:
        assert (theirs is None) == (tenant in ("", caller.tenant))


@given(scheme=st.sampled_from(("Bearer", "bearer", "BEARER")), token=st.from_regex(r"\A[!-~]+\Z"))
def test_a_bearer_token_is_read(scheme, token):
    assert bearer_token(f"{scheme} {token}") == token


@pytest.mark.parametrize("said", [None, "", "Bearer", "Bearer ", "Basic secret", "secret"])
def test_what_shows_no_token_is_refused_without_being_said_again(said):
    with pytest.raises(Unauthenticated) as caught:
        bearer_token(said)

    assert "authorization: expected `Bearer TOKEN`" in str(caught.value)
    assert "secret" not in str(caught.value)
