"""Laws of the comparison of log, ledger and cloud, and of what is ended as an orphan."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotline.domain.events.agreement import DisagreementKind
from spotline.domain.ledger.agreement import (
    CloudShows,
    LedgerSays,
    LogSays,
    OpenJob,
    Stranger,
    compare,
    freezes_of,
)
from spotline.domain.ledger.orphans import (
    ANY_ACCOUNT,
    Orphan,
    ReapMode,
    ReapRules,
    to_reap,
)
from spotline.domain.limits.freezes import FreezeScope
from spotline.domain.units import NS_PER_S

JOBS = st.sampled_from("abcd")
MONEY = st.dictionaries(JOBS, st.integers(0, 10**9))
SLOTS = st.integers(-1, 50)


@st.composite
def logs(draw):
    jobs = draw(st.dictionaries(JOBS, st.integers(1, 10**12)))
    last = draw(SLOTS)
    reported = draw(st.integers(-1, max(-1, last)))
    return LogSays(
        last_slot=last,
        reported_slot=reported,
        complete_slot=reported - 1,
        incarnation=draw(st.integers(0, 3)),
        jobs={name: OpenJob(tenant="t", deadline_ns=at) for name, at in jobs.items()},
        closed=draw(st.dictionaries(st.sampled_from("efg"), st.integers(-1, 50))),
        accrued=draw(MONEY),
        held=draw(st.dictionaries(st.sampled_from(["i1", "i2", "i3"]), JOBS)),
    )


@st.composite
def ledgers(draw):
    charged = draw(MONEY)
    return LedgerSays(
        latest_slot=draw(SLOTS),
        charged=charged,
        spent=charged,
        admitted=draw(st.frozensets(JOBS)),
        held=draw(st.dictionaries(st.sampled_from(["i1", "i2", "i4"]), JOBS)),
    )


@st.composite
def clouds(draw):
    shown = draw(st.frozensets(st.sampled_from(["i1", "i2", "i3", "s1", "s2"])))
    return CloudShows(
        shown=shown,
        strangers=tuple(
            Stranger(
                instance_id=name,
                job_id=draw(st.sampled_from(["", "a", "z"])),
                tenant="",
                offering_id="o",
            )
            for name in sorted(shown)
            if name.startswith("s")
        ),
    )


def agreeing(log: LogSays) -> LedgerSays:
    """The ledger that says what a log says."""
    return LedgerSays(
        latest_slot=max(log.reported_slot, -1),
        charged=log.accrued,
        spent=log.accrued,
        admitted=frozenset(log.jobs),
        held={name: job for name, job in log.held.items() if log.may_hold(job)},
    )


@given(log=logs())
def test_a_ledger_that_says_what_the_log_says_agrees_with_it(log):
    ledger = agreeing(log)

    assert compare(log, ledger, CloudShows(shown=frozenset(ledger.held))) == ()


@given(log=logs(), ledger=ledgers(), cloud=clouds())
def test_every_difference_is_told_once_in_an_order_of_its_own(log, ledger, cloud):
    found = compare(log, ledger, cloud)

    assert len(set(found)) == len(found)
    assert found == compare(
        replace(log, jobs=dict(reversed(log.jobs.items()))),
        replace(ledger, charged=dict(reversed(ledger.charged.items()))),
        replace(cloud, strangers=tuple(reversed(cloud.strangers))),
    )


@given(log=logs(), ledger=ledgers(), cloud=clouds())
def test_no_spend_no_job_and_no_instance_is_forgotten(log, ledger, cloud):
    told = {(one.kind, one.key) for one in compare(log, ledger, cloud)}

    for job_id in ledger.admitted - log.jobs.keys():
        assert (DisagreementKind.JOB_NOT_IN_LOG, job_id) in told
    for job_id in log.jobs.keys() - ledger.admitted:
        assert (DisagreementKind.NOT_IN_LEDGER, job_id) in told
    for job_id in log.accrued.keys() | ledger.charged.keys():
        accrued, charged = log.accrued.get(job_id, 0), ledger.charged.get(job_id, 0)
        if accrued > charged:
            assert (DisagreementKind.NOT_IN_LEDGER, job_id) in told
        elif charged > accrued:
            assert (DisagreementKind.CHARGE_WITHOUT_DECISION, job_id) in told
    for job_id in ledger.held.values():
        if not log.may_hold(job_id):
            assert (DisagreementKind.INSTANCE_WITHOUT_JOB, job_id) in told
    for stranger in cloud.strangers:
        assert (DisagreementKind.INSTANCE_WITHOUT_JOB, stranger.job_id or "o") in told


@given(log=logs(), ledger=ledgers(), cloud=clouds())
def test_only_what_is_undecided_is_frozen_in_the_scope_it_names(log, ledger, cloud):
    found = compare(log, ledger, cloud)
    freezes = freezes_of(found, slot=3, ts_event_ns=7)

    undecided = [one for one in found if one.continue_with]
    assert {(one.scope, one.key) for one in freezes.values()} == {
        (one.scope, one.key) for one in undecided
    }
    for one in undecided:
        concerned = [log.jobs[job_id].deadline_ns for job_id in one.affected_job_ids]
        assert concerned == sorted(concerned)
        assert one.first_deadline_ns == (concerned[0] if concerned else 0)
        if one.scope is FreezeScope.SYSTEM:
            assert set(one.affected_job_ids) == set(log.jobs)
    assert all(not one.affected_job_ids for one in found if not one.continue_with)


def test_a_later_incarnation_explains_what_the_log_lacks():
    log, ledger = LogSays(last_slot=0), LedgerSays(latest_slot=40)

    (wiped,) = compare(log, ledger, CloudShows())
    (cut,) = compare(replace(log, last_slot=9, reported_slot=9), ledger, CloudShows())

    assert (wiped.kind, cut.kind) == (DisagreementKind.LOG_WIPED, DisagreementKind.LOG_CUT)
    assert compare(replace(log, incarnation=2), ledger, CloudShows()) == ()


ORPHANS = st.builds(
    Orphan,
    instance_id=st.text("ab", min_size=1, max_size=3),
    offering_id=st.just("o"),
    account=st.sampled_from(["aws/1", "aws/2", ""]),
    installation_id=st.sampled_from(["here", "there", ""]),
    hold=st.booleans(),
    since_ns=st.integers(0, 10_000).map(lambda s: s * NS_PER_S),
)
RULES = st.builds(
    ReapRules,
    mode=st.sampled_from(ReapMode),
    installation_id=st.sampled_from(["here", ""]),
    accounts=st.sampled_from([(), ("aws/1",), (ANY_ACCOUNT,)]),
    grace_s=st.integers(0, 5000),
    at_most=st.integers(1, 3),
)


@given(
    orphans=st.lists(ORPHANS, unique_by=lambda one: one.instance_id),
    rules=RULES,
    now_s=st.integers(0, 20_000),
)
def test_only_our_own_old_and_allowed_orphans_are_ended_and_few_at_a_time(orphans, rules, now_s):
    ended = to_reap(orphans, rules, now_s * NS_PER_S)

    assert len(ended) <= rules.at_most
    for orphan in ended:
        assert rules.mode is ReapMode.REAP
        assert orphan.installation_id == rules.installation_id == "here"
        assert not orphan.hold
        assert orphan.account in rules.accounts or rules.accounts == (ANY_ACCOUNT,)
        assert now_s * NS_PER_S - orphan.since_ns >= rules.grace_s * NS_PER_S
        assert orphan.forbidden(rules) == ""
    if ended:
        left = [one for one in orphans if one not in ended and one.reap_after_ns(rules)]
        assert all(one.since_ns >= ended[0].since_ns for one in left)


@pytest.mark.parametrize(("field", "value"), [("grace_s", -1), ("at_most", 0)])
def test_rules_are_refused_by_the_field_that_is_wrong(field, value):
    with pytest.raises(ValueError, match=f"{field} must be"):
        ReapRules(**{field: value})
