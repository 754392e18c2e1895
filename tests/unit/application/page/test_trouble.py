"""The red list: all that needs a person, worst first, and a tenant's own alone."""

import pytest

from spotline.application.page.about import NOTHING_KNOWN, About
from spotline.application.page.jobs import job_row
from spotline.application.page.now import now_view, rows_of, standing_of, tightness
from spotline.application.page.trouble import TroubleKind, troubles, troubles_of_job
from spotline.application.selector.options import SelectorOptions
from spotline.domain.events.capacity import RefusalClass
from spotline.domain.limits.spending import Spending, SpendLimit
from spotline.domain.units import NS_PER_S, ns_from_rfc3339
from tests.samples.page_logs import (
    AT_RISK,
    TENANTS,
    book_of,
    empty_market,
    every_member,
    job_named,
)


@pytest.fixture(scope="module")
def state():
    return book_of(every_member()).head


def found(state, about=NOTHING_KNOWN, tenant=""):
    return troubles(state, rows_of(state, about, tenant), about, tenant)


def test_everything_but_a_limit_that_is_not_stated_is_there(state):
    assert {trouble.kind for trouble in found(state)} == set(TroubleKind) - {TroubleKind.LIMIT_NEAR}
    assert not state.left_out


def test_what_costs_a_deadline_comes_first(state):
    kinds = [trouble.kind for trouble in found(state)]
    order = list(TroubleKind)
    assert kinds == sorted(kinds, key=order.index)
    assert found(state)[0].bad
    assert not found(state)[-1].bad


def test_each_says_what_to_do_next(state):
    assert all(trouble.next and trouble.why and trouble.what for trouble in found(state))


def test_every_refusal_class_is_told_apart(state):
    refused = [t.key for t in found(state) if t.kind is TroubleKind.REFUSED]
    assert sorted(refused) == sorted(each.value for each in RefusalClass)


def test_a_tenant_sees_its_own_alone(state):
    rows = rows_of(state, NOTHING_KNOWN, TENANTS[2])
    assert {row.status.job.tenant for row in rows} == {TENANTS[2]}
    own = troubles(state, rows, NOTHING_KNOWN, TENANTS[2])
    ids = {row.job_id for row in rows}
    of_jobs = (TroubleKind.AT_RISK, TroubleKind.STALLED, TroubleKind.AT_LIMIT)
    assert {t.key for t in own if t.kind in of_jobs} <= ids
    whole = {TroubleKind.DISAGREEMENT, TroubleKind.ORPHAN, TroubleKind.PARKED}
    assert not {t.kind for t in own} & whole


def test_a_limit_on_spending_is_told_when_it_is_near(state):
    whole = sum(state.jobs.spending.spent_in(86_400).values())
    assert whole > 0
    limit = SpendLimit(micro_usd_per_day=whole + whole // 10)
    near = About(selector=SelectorOptions(spending=Spending(total=limit).to_json()))
    told = [t for t in found(state, near) if t.kind is TroubleKind.LIMIT_NEAR]
    assert [t.what for t in told] == ["total, a day"]
    far = About(
        selector=SelectorOptions(
            spending=Spending(total=SpendLimit(micro_usd_per_day=2 * whole)).to_json()
        )
    )
    assert not [t for t in found(state, far) if t.kind is TroubleKind.LIMIT_NEAR]
    standing = standing_of(state, rows_of(state, near, ""), near)
    assert standing.cap_today_micro_usd == limit.micro_usd_per_day
    assert standing.spent_today_micro_usd == whole


def test_a_market_without_jobs_needs_nobody():
    state = book_of(empty_market()).head
    assert found(state) == ()
    view = now_view(state, [], NOTHING_KNOWN)
    assert (view.jobs, view.held.total, view.strips) == (0, 0, ())


def test_slack_is_named_by_its_slots():
    assert [tightness(slots * 1800, 1800) for slots in (-1, 0, 5, 6, 36)] == [
        "late",
        "tight",
        "tight",
        "some",
        "ample",
    ]


@pytest.mark.parametrize(
    ("slot", "said"), [(15, "nothing but spot can make it"), (21, "its deadline has passed")]
)
def test_a_job_at_risk_is_told_the_first_deadline_that_it_can_be_sure_of(slot, said):
    state = book_of(every_member()).at(slot)
    job_id = job_named(AT_RISK).job_id
    (found,) = troubles_of_job(state, job_row(state, job_id))

    now_ns = state.start_ns(slot)
    deadline_ns = job_named(AT_RISK, hours=9).deadline.at_ns
    needed_s = (deadline_ns - now_ns) // NS_PER_S - job_row(state, job_id).view.slack_s
    assert said in found.next
    assert found.command.startswith(f"spotline update {job_id[:8]} --deadline 2026-01-01T")
    stated_ns = ns_from_rfc3339(found.command.rpartition(" ")[2])
    assert 0 <= (stated_ns - now_ns) // NS_PER_S - needed_s < 60
