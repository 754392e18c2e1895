"""Alerts of a log: what begins, what ends, and the same ones whenever the log is read."""

from __future__ import annotations

from functools import cache

from hypothesis import given, settings
from hypothesis import strategies as st

from spotline.application.notify.alerts import Alert, AlertKind, AlertState
from spotline.application.notify.fold import QUIET_SLOTS, AlertFold
from spotline.application.notify.target import NotifyTarget
from spotline.application.page.about import NOTHING_KNOWN, About
from spotline.application.page.applied import Applied
from spotline.application.selector.options import SelectorOptions
from spotline.domain.events.lifecycle import JobOutcome
from spotline.domain.jobs.lot import Lot
from tests.samples.page_logs import (
    AT_RISK,
    LIMITS,
    LogWriter,
    applied_of,
    every_member,
    job_named,
    offerings,
)

OLD_S, FRESH_S = 40_000, 30
ACME = offerings(1)[0].offering_id


def alerts_of(log: list[Applied] | tuple[Applied, ...], about: About = NOTHING_KNOWN):
    fold = AlertFold("here", about)
    return [alert for told in log for alert in fold.fold(told)]


def fed(ages: list[int]) -> tuple[Applied, ...]:
    """A log in whose slots the quotes of one feed have these ages, and those of the other are new."""
    log = LogWriter(offerings(2))
    for age_s in ages:
        log.open(ages_s=(age_s, FRESH_S))
    return tuple(applied_of(log.entries))


@cache
def everything() -> tuple[Applied, ...]:
    return tuple(applied_of(every_member()))


def shown(alerts: list[Alert]) -> list[tuple[str, int]]:
    return [(alert.state.value, alert.slot) for alert in alerts]


def test_a_dead_feed_is_told_once_and_its_end_once_it_is_quiet():
    dead = [FRESH_S, OLD_S, OLD_S, FRESH_S, OLD_S, *[FRESH_S] * (QUIET_SLOTS + 2)]
    began, ended = found = alerts_of(fed(dead))

    assert shown(found) == [("began", 1), ("ended", 4 + QUIET_SLOTS)]
    assert {began.kind, ended.kind} == {AlertKind.FEED_DEAD}
    assert ended.began_id == began.alert_id != ended.alert_id
    assert "11.1 h" in began.says
    assert began.next
    assert (began.path, began.entry > 0, began.market_ns > 0) == ("/market", True, True)


def test_a_feed_of_which_some_quotes_are_new_is_not_dead():
    log = LogWriter(offerings(3))
    log.open(ages_s=(OLD_S, FRESH_S, FRESH_S))

    assert alerts_of(list(applied_of(log.entries))) == []


def test_a_job_that_cannot_be_in_time_is_told_and_over_with_its_end():
    log = LogWriter(offerings(2))
    job = job_named("a late one", tenant="vision", hours=2)
    log.open()
    log.submit(job)
    log.admit(job, log.offered[0])
    for _ in range(3):
        log.open()
    log.close(job, JobOutcome.MISSED_DEADLINE)
    began, ended, missed = alerts_of(list(applied_of(log.entries)))

    assert [began.kind, ended.kind, missed.kind] == [
        AlertKind.AT_RISK,
        AlertKind.AT_RISK,
        AlertKind.MISSED,
    ]
    assert [began.state, ended.state, missed.state] == list(AlertState)
    assert {alert.tenant for alert in (began, ended, missed)} == {"vision"}
    assert {alert.subject for alert in (began, ended, missed)} == {job.job_id}
    assert "h late" in began.says
    assert "40.0 % of its work, $50.00 spent" in missed.says


def test_every_end_of_a_job_is_told_as_what_it_is():
    over = {
        alert.name.removeprefix("ended "): alert.kind
        for alert in alerts_of(everything())
        if alert.state is AlertState.HAPPENED
    }

    assert over == {
        outcome.value: AlertKind.DONE if outcome is JobOutcome.COMPLETED else AlertKind.MISSED
        for outcome in JobOutcome
        if outcome is not JobOutcome.CANCELLED
    }


def test_of_a_log_with_everything_each_rule_has_something():
    about = About(selector=SelectorOptions(spending=LIMITS.to_json()))
    found = alerts_of(everything(), about)

    kinds = {alert.kind for alert in found}
    assert kinds >= {AlertKind.AT_RISK, AlertKind.MISSED, AlertKind.DONE, AlertKind.LIMIT_NEAR}
    assert AT_RISK in {alert.name for alert in found if alert.kind is AlertKind.AT_RISK}
    near = [alert for alert in found if alert.name == "total, a day"]
    assert near
    assert "% of" not in near[0].says
    assert "$2,500.00 a day is spent" in near[0].says


def test_a_tenant_hears_of_its_own_and_of_feeds():
    target = NotifyTarget(name="x", url="", tenants=("vision",), rules=tuple(AlertKind))
    mine, theirs = (
        Alert(
            alert_id=tenant,
            kind=AlertKind.DONE,
            state=AlertState.HAPPENED,
            subject="j",
            name="j",
            says="done",
            tenant=tenant,
        )
        for tenant in ("vision", "search")
    )
    feed = alerts_of(fed([OLD_S]))[0]

    assert [target.wants(alert) for alert in (mine, theirs, feed)] == [True, False, True]


@given(
    ages=st.lists(st.sampled_from((FRESH_S, OLD_S)), min_size=1, max_size=14),
    cuts=st.lists(st.integers(0, 40), max_size=4),
)
@settings(max_examples=30, deadline=None)
def test_whoever_reads_a_log_again_and_again_finds_each_alert_once(ages, cuts):
    log = fed(ages)
    whole = alerts_of(log)
    told: dict[str, Alert] = {}
    for cut in (*sorted(min(cut, len(log)) for cut in cuts), len(log)):
        # A restart knows nothing but what was told: it reads from the beginning.
        for alert in alerts_of(log[:cut]):
            assert told.setdefault(alert.alert_id, alert) == alert

    assert list(told.values()) == whole
    assert len(told) == len(whole)
    ends = [alert.began_id for alert in whole if alert.state is AlertState.ENDED]
    begins = [alert.alert_id for alert in whole if alert.state is AlertState.BEGAN]
    assert len(set(ends)) == len(ends)
    # One after another: of one feed nothing begins before the last has ended.
    assert ends == begins[: len(ends)]
    assert len(begins) - len(ends) in (0, 1)


def test_two_installations_of_one_market_have_ids_of_their_own():
    log = fed([OLD_S])
    ids = []
    for source in ("here", "there"):
        fold = AlertFold(source)
        ids += [alert.alert_id for told in log for alert in fold.fold(told)]

    assert len(ids) == len(set(ids)) == 2


def test_a_dead_feed_names_no_tenants_job():
    log = LogWriter(offerings(1))
    job = job_named("somebody else's", tenant="search", hours=200)
    log.open()
    log.submit(job)
    log.admit(job, log.offered[0])
    log.decide(job, (Lot(offering_id=ACME, spot=1),))
    log.hold(job, (Lot(offering_id=ACME, spot=1),))
    log.report()
    log.open(ages_s=(OLD_S,))
    (feed,) = alerts_of(list(applied_of(log.entries)))

    assert feed.kind is AlertKind.FEED_DEAD
    assert job.name not in feed.says + feed.next
    assert "holds" not in feed.says
