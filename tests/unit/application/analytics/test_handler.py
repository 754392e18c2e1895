"""Statistics are a function of what was observed: not of order, repetition or restarts."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spotline.application.analytics.handler import StatisticsFold
from spotline.application.analytics.options import StatisticsOptions
from spotline.application.analytics.store import StatisticsStore
from spotline.contracts.build import event_of
from spotline.contracts.errors import ContractError
from spotline.domain.events.allocation import AllocationDecided
from spotline.domain.events.capacity import CostAccrued, SlotDecided
from spotline.domain.events.forecast import ForecastIssued
from spotline.domain.events.lifecycle import JobAdmitted, JobClosed, JobOutcome, JobSubmitted
from spotline.domain.events.market import SlotOpened
from spotline.domain.events.placement import PipelineSubmitted, PlacementEnd, PlacementEnded
from spotline.domain.events.selection import PolicyWeight, PolicyWeightsUpdated
from spotline.domain.events.statistics import MarketStatisticsIssued, PlatformStatisticsIssued
from spotline.domain.jobs.job import Deadline, DeadlineKind
from spotline.domain.market.offering import CapacityType
from spotline.domain.market.slot_quote import SlotQuote
from spotline.domain.policies.answer import DecisionReason
from spotline.domain.statistics.windows import WindowSpec
from spotline.domain.units import NS_PER_S
from tests.depth import examples
from tests.fakes.batch_statistics import batch, latest
from tests.fakes.recorded_run import small_run
from tests.fakes.statistics_log import (
    folded,
    generated,
    in_batches,
    shuffled,
    stored,
    take,
)
from tests.samples.events import JOB, PIPELINE, QUOTE, START_NS

SPECS = ((300, 300), (900, 300), (3600, 1800))
WINDOWS = tuple(WindowSpec(size_s=size, hop_s=hop) for size, hop in SPECS)
DAY_S = 86_400
PATIENT = StatisticsOptions(windows=WINDOWS, grace_s=30 * DAY_S, history_s=60 * DAY_S)
HASTY = StatisticsOptions(windows=WINDOWS, grace_s=1800, history_s=7200)

runs = st.builds(
    dict,
    seed=st.integers(0, 10**6),
    slots=st.integers(1, 24),
    slot_s=st.sampled_from([120, 300, 420, 600, 1800, 3600]),
)


@settings(max_examples=examples(30), deadline=None)
@given(run=runs, seed=st.integers(0, 10**6), reach=st.sampled_from([0, 3, 15, 1000]))
def test_latest_revisions_equal_a_batch_whatever_the_order_and_however_often(run, seed, reach):
    log = generated(**run)
    entries = stored(log, shuffled(len(log), seed, reach=reach))

    issues = folded(entries, PATIENT)

    assert latest(one.event for one in issues) == batch(entries, SPECS)


@settings(max_examples=examples(30), deadline=None)
@given(run=runs, seed=st.integers(0, 10**6))
def test_two_orders_of_the_same_events_end_in_the_same_results(run, seed):
    log = [one for one in generated(**run) if type(one[0]).__name__ != "ForecastIssued"]
    # The last slot comes last, so that both close the same windows.
    last = max(i for i, (event, _, _) in enumerate(log) if isinstance(event, SlotOpened))
    orders = [[*range(len(log))], shuffled(len(log), seed, reach=50)]
    orders = [[i for i in order if i != last] + [last] for order in orders]

    plain, mixed = (folded(stored(log, order, stored_ns="index"), PATIENT) for order in orders)

    assert latest(one.event for one in plain) == latest(one.event for one in mixed)


class Persisted:
    """A store as a crash may leave it: every key as of the last commit, or later."""

    NAMES = ("observations", "issued", "counters")

    def __init__(self) -> None:
        self.store = StatisticsStore()
        self.committed = {name: {} for name in self.NAMES}
        self.seq = 0

    def commit(self, seq: int) -> None:
        self.committed = {name: dict(getattr(self.store, name)) for name in self.NAMES}
        self.seq = seq

    def crash(self, dice: Random) -> StatisticsStore:
        left = {}
        for name in self.NAMES:
            now, before = getattr(self.store, name), self.committed[name]
            kept = {}
            for key in dict.fromkeys([*now, *before]):  # in an order that a seed repeats
                version = now.get(key) if dice.random() < 0.5 else before.get(key)
                if version is not None:
                    kept[key] = version
            left[name] = kept
        self.store = StatisticsStore(**left)
        return self.store


@settings(max_examples=examples(30), deadline=None)
@given(
    run=runs,
    seed=st.integers(0, 10**6),
    reach=st.sampled_from([0, 5, 40]),
    options=st.sampled_from([PATIENT, HASTY]),
    most=st.sampled_from([1, 2, 7]),
)
def test_killed_again_and_again_it_issues_the_very_same(run, seed, reach, options, most):
    if options is HASTY:
        # Nothing is repeated when it is forgotten already, but much comes after the grace.
        run = {**run, "slot_s": 300}
    log = generated(**run)
    entries = in_batches(stored(log, shuffled(len(log), seed, reach=reach)), most=most)
    undisturbed = StatisticsStore()
    expected = {one.event_id: one for one in folded(entries, options, store=undisturbed)}
    dice, persisted, place = Random(seed), Persisted(), 0
    published, fold = {}, StatisticsFold(options, persisted.store)

    while place < len(entries):
        fresh = take(fold, entries[place])
        for one in fresh:
            assert published.setdefault(one.event_id, one) == one
        if dice.random() < 0.9:
            # Published, but killed before that was noted.
            fold.issued(fresh)
            place += 1
            done = place == len(entries) or entries[place].place == 0
            if done and dice.random() < 0.2:
                persisted.commit(entries[place - 1].seq)
                fold.forget(persisted.seq)
            if dice.random() < 0.9:
                continue
        # Within an entry, too: it is taken again from its beginning.
        fold = StatisticsFold(options, persisted.crash(dice))
        place = sum(entry.seq <= persisted.seq for entry in entries)

    assert published == expected
    assert fold.late == StatisticsFold(options, undisturbed).late


@settings(max_examples=examples(30), deadline=None)
@given(run=runs, seed=st.integers(0, 10**6), reach=st.sampled_from([3, 15, 60, 300]))
def test_what_is_issued_does_not_depend_on_when_it_forgets(run, seed, reach):
    log = generated(**run)
    entries = stored(log, shuffled(len(log), seed, reach=reach, twice=0.2))
    dice = Random(seed)

    at_once, never, sometimes = (
        folded(entries, HASTY, forgetting=forgetting)
        for forgetting in (True, False, lambda: dice.random() < 0.05)
    )

    assert at_once == never == sometimes


# --- whatever can be decoded ------------------------------------------------------------------

NUMBERS = st.integers(-3, 40)
IDS = st.sampled_from(["a", "b", "a b"])
AMOUNTS = st.sampled_from([-5, 0, 1, 10**9])
TIMES_NS = NUMBERS.map(lambda n: START_NS + n * 300 * NS_PER_S) | st.just(-1)


def an(event_type, **fields):
    return st.builds(event_type, **fields)


ANYTHING = st.one_of(
    an(
        SlotOpened,
        slot=NUMBERS,
        ts_event_ns=TIMES_NS,
        slot_s=st.sampled_from([300, 300, 0, -1, 1, 1800, 2**31 - 1]),
        quotes=st.lists(
            an(
                SlotQuote,
                quote=st.sampled_from([1, 5 * 10**6]).map(
                    lambda price: replace(QUOTE, spot_price_micro_usd=price)
                ),
                age_s=st.just(0),
            ),
            max_size=2,
        ).map(tuple),
    ),
    an(ForecastIssued, slot=NUMBERS, model_id=IDS, forecasts=st.just(()), scores=st.just(())),
    an(JobSubmitted, job=IDS.map(lambda one: replace(JOB, job_id=one)), ts_event_ns=TIMES_NS),
    an(
        JobAdmitted,
        job_id=IDS,
        tenant=IDS,
        slot=NUMBERS,
        policy_id=IDS,
        offering_id=IDS,
        deadline_slot=NUMBERS,
        weight_ppb=AMOUNTS,
    ),
    an(
        PipelineSubmitted,
        pipeline=IDS.map(lambda one: replace(PIPELINE, job_id=one)),
        ts_event_ns=TIMES_NS,
    ),
    an(
        PlacementEnded,
        job_id=IDS,
        tenant=IDS,
        ts_event_ns=TIMES_NS,
        end=st.sampled_from(PlacementEnd),
        iterations_done=AMOUNTS,
        cost_micro_usd=AMOUNTS,
    ),
    an(
        CostAccrued,
        job_id=IDS,
        tenant=IDS,
        offering_id=IDS | st.just(QUOTE.offering_id),
        quota_pool=IDS,
        capacity_type=st.sampled_from(CapacityType),
        slot=NUMBERS,
        instances=st.integers(0, 9),
        held_s=st.integers(0, 1800),
        price_micro_usd=AMOUNTS,
        cost_micro_usd=AMOUNTS,
    ),
    an(
        JobClosed,
        job_id=IDS,
        tenant=IDS,
        slot=NUMBERS,
        outcome=st.sampled_from(JobOutcome),
        policy_id=IDS,
        cost_micro_usd=AMOUNTS,
        value_micro_usd=AMOUNTS,
        progress_ppm=AMOUNTS,
    ),
    an(
        PolicyWeightsUpdated,
        round=NUMBERS,
        job_id=IDS,
        rule=IDS,
        weights=st.lists(
            an(PolicyWeight, policy_id=IDS, weight_ppb=AMOUNTS, utility_micro_usd=AMOUNTS),
            max_size=2,
        ).map(tuple),
        rehearsed_slot=st.sampled_from([-1, -1, 2]),
        utility_floor_micro_usd=AMOUNTS,
        utility_ceiling_micro_usd=AMOUNTS,
    ),
    an(
        AllocationDecided,
        job_id=IDS,
        tenant=IDS,
        slot=NUMBERS,
        revision=st.sampled_from([0, 0, 1]),
        offset_s=st.just(0),
        policy_id=IDS,
        lots=st.just(()),
        reason=st.just(DecisionReason.POLICY),
        forecast_used=st.booleans(),
        explanation=IDS,
    ),
    an(
        SlotDecided,
        slot=NUMBERS,
        revision=st.sampled_from([0, 0, 1]),
        offset_s=st.just(0),
        commands=st.just(0),
    ),
)


def can_be_decoded(event):
    try:
        event_of(stored([(event, "e", "")], [0])[0])
    except ContractError:
        return False
    return True


@settings(max_examples=examples(100), deadline=None)
@given(
    told=st.lists(
        st.tuples(
            ANYTHING.filter(can_be_decoded),
            st.sampled_from(["x", "y z", ""]) | st.integers(0, 40).map(lambda n: f"e{n}"),
        ),
        max_size=40,
    ),
    seed=st.integers(0, 10**6),
)
def test_anything_that_can_be_decoded_is_taken_and_loaded_again(told, seed):
    log = [(event, f"e{number}", cause) for number, (event, cause) in enumerate(told)]
    entries = stored(log, shuffled(len(log), seed, reach=5))
    dice, store, issues = Random(seed), StatisticsStore(), []
    fold = StatisticsFold(HASTY, store)

    for entry in entries:
        if dice.random() < 0.2:
            fold = StatisticsFold(HASTY, store)
        fresh = take(fold, entry)
        fold.issued(fresh)
        issues.extend(fresh)
        if dice.random() < 0.3:
            fold.forget(entry.seq)

    assert issues == folded(entries, HASTY, forgetting=False)


def test_pipeline_and_job_of_one_id_do_not_mix():
    job_id = "a"
    weights = (PolicyWeight(policy_id="p", weight_ppb=1, utility_micro_usd=7),)
    log = [
        opened(0),
        (
            PipelineSubmitted(pipeline=replace(PIPELINE, job_id=job_id), ts_event_ns=START_NS),
            "pipeline",
            "",
        ),
        (
            JobAdmitted(
                job_id=job_id,
                tenant="t",
                slot=0,
                policy_id="p",
                offering_id="o",
                deadline_slot=3,
                weight_ppb=1,
            ),
            "admitted",
            "",
        ),
        (
            PolicyWeightsUpdated(
                round=1,
                job_id=job_id,
                rule="r",
                weights=weights,
                rehearsed_slot=-1,
                utility_floor_micro_usd=0,
                utility_ceiling_micro_usd=0,
            ),
            "weights",
            "slot-0",
        ),
        opened(1),
        opened(2),
    ]

    issues = folded(stored(log, range(len(log))), HASTY)

    figures = [i.event.total.regret for i in issues if getattr(i.event, "tenant", "") == "t"]
    assert figures
    assert all((one.jobs, one.best_utility_micro_usd) == (1, 7) for one in figures)


def test_jobs_that_never_close_and_what_is_said_again_of_them_expire():
    store = StatisticsStore()
    fold = StatisticsFold(HASTY, store)
    start_s = START_NS // NS_PER_S
    deadline = Deadline(
        kind=DeadlineKind.HARD, at_ns=(start_s + 600) * NS_PER_S, expires_ns=START_NS + 600 * 10**9
    )
    log, kept = [opened(0), opened(1)], []
    for slot in range(2, 100):
        job_id = f"job-{slot}"
        job = replace(JOB, job_id=job_id, deadline=deadline)
        log.append(opened(slot))
        for again in range(3):
            log.append((JobSubmitted(job=job, ts_event_ns=START_NS), f"{job_id}-{again}", ""))
            ended = PlacementEnded(
                job_id=f"pipeline-{slot}",
                tenant="t",
                ts_event_ns=START_NS,
                end=PlacementEnd.COMPLETED,
                iterations_done=1,
                cost_micro_usd=1,
            )
            log.append((ended, f"end-{slot}-{again}", ""))

    for entry in stored(log, range(len(log))):
        fold.issued(take(fold, entry))
        fold.forget(entry.seq)
        assert fold.sizes()["observations"] == len(store.observations)
        kept.append(len(store.observations))

    assert max(kept) == max(kept[: len(kept) // 2]) < 100


def test_loaded_before_an_entry_it_knows_nothing_from_there_on():
    log = generated(3, slots=24, slot_s=600)
    entries = stored(log, range(len(log)))
    half = len(entries) // 2
    before, whole = StatisticsStore(), StatisticsStore()
    folded(entries[:half], PATIENT, store=before, forgetting=False)
    folded(entries, PATIENT, store=whole, forgetting=False)
    fold = StatisticsFold.unloaded(PATIENT, whole)

    slices = sum(1 for _ in fold.load(before_seq=entries[half].seq))

    assert slices
    assert whole.observations == before.observations
    assert fold.watermark_s == StatisticsFold(PATIENT, before).watermark_s


def test_a_recorded_run_equals_its_batch():
    log = small_run()
    options = StatisticsOptions()

    issues = folded(log, options)

    specs = [(one.size_s, one.hop_s) for one in options.windows]
    assert len(issues) > 500
    assert latest(one.event for one in issues) == batch(log, specs)


# --- what windows mean ------------------------------------------------------------------------


def opened(slot, *, count=1, price=4_000_000, slot_s=300):
    quote = replace(
        QUOTE,
        spot_price_micro_usd=price,
        spot_available=replace(QUOTE.spot_available, instances=count),
    )
    event = SlotOpened(
        slot=slot,
        ts_event_ns=START_NS + slot * slot_s * NS_PER_S,
        slot_s=slot_s,
        quotes=(SlotQuote(quote=quote, age_s=0),),
    )
    return event, f"slot-{slot}", ""


def issues_of(slots, options=HASTY):
    entries = stored(slots, range(len(slots)))
    return [one.event for one in folded(entries, options)]


def test_window_closes_when_the_slot_after_the_next_one_opens():
    fold = StatisticsFold(HASTY)
    entries = stored([opened(slot) for slot in range(3)], range(3))

    counts = [len(take(fold, entry)) for entry in entries]

    # Of the windows that end with slot 0, one of five minutes and the first quarter hour.
    assert counts == [0, 0, 2]
    assert fold.watermark_s == START_NS // NS_PER_S + 300


def test_prices_weigh_by_the_time_they_were_quoted():
    hour_slots = [
        opened(slot, price=price, slot_s=1800)
        for slot, price in enumerate([1_000_000, 2_000_000, 4_000_000, 4_000_000])
    ]

    events = issues_of(hour_slots)

    hours = [one for one in events if one.window_s == 3600]
    assert [one.figures.spot_price.mean_micro_usd for one in hours] == [1_000_000, 1_500_000]
    price = hours[1].figures.spot_price
    assert (price.spread_micro_usd, price.changes, price.change_ppm) == (1_000_000, 1, 1_000_000)


def test_transition_counts_in_the_window_in_which_the_second_slot_opens():
    events = issues_of([opened(slot, count=count) for slot, count in enumerate([0, 3, 3, 0, 0, 0])])

    five = {one.ts_event_ns: one.figures for one in events if one.window_s == 300}

    assert [(one.ups, one.downs) for one in five.values()] == [(0, 0), (1, 0), (0, 0), (0, 1)]
    quarter = [one.figures for one in events if one.window_s == 900]
    assert [(one.ups, one.downs) for one in quarter] == [(0, 0), (1, 0), (1, 0), (1, 1)]
    whole = quarter[2]
    assert (whole.available_ppm, whole.mean_available_run_s) == (666_666, 600)
    assert [(one.instances, one.held_s) for one in whole.counts] == [(0, 300), (3, 600)]


def test_window_shorter_than_a_slot_is_issued_where_the_slot_opens_only():
    events = issues_of([opened(slot, slot_s=1800) for slot in range(4)])

    ends_s = [one.ts_event_ns // NS_PER_S for one in events if one.window_s == 300]

    start_s = START_NS // NS_PER_S
    assert ends_s == [start_s + 300, start_s + 2100]


def test_late_slot_is_merged_within_the_grace_as_the_next_revision():
    slots = [opened(slot, price=1_000_000 * (slot + 1)) for slot in range(8)]
    entries = stored(slots, [0, 2, 3, 4, 1, 5, 6])
    fold, seen = StatisticsFold(HASTY), []
    for entry in entries:
        fresh = take(fold, entry)
        fold.issued(fresh)
        seen.append([(i.event.window_s, i.event.revision, i.event.late) for i in fresh])

    # Slot 1 comes when its window has closed; with the next slot that opens it is made up for.
    # The windows behind it see that the price changed at their beginning.
    assert (300, 0, 1) in seen[5]
    assert (900, 1, 1) in seen[5]
    assert (300, 1, 0) in seen[5]
    assert all(revision == 0 for _, revision, _ in seen[6])
    assert (fold.late.merged, fold.late.dropped) == (1, 0)


def test_what_comes_after_the_grace_is_counted_and_changes_nothing_closed():
    slots = [opened(slot) for slot in range(40)]
    order = [0, *range(2, 12), 1, *range(12, 40)]
    options = replace(HASTY, grace_s=600)
    entries = stored(slots, order)
    fold = StatisticsFold(options)
    issues = []
    for entry in entries:
        fresh = take(fold, entry)
        fold.issued(fresh)
        issues.extend(fresh)

    assert (fold.late.merged, fold.late.dropped) == (0, 1)
    # Only the hour that was still within its grace holds it.
    assert {i.event.window_s for i in issues if i.event.late or i.event.revision} <= {3600}


def test_state_does_not_grow_with_the_log():
    options = replace(HASTY, grace_s=0, history_s=3600)
    store = StatisticsStore()
    fold = StatisticsFold(options, store)
    sizes = []
    log = generated(3, slots=400, slot_s=300, jobs=6)
    for entry in stored(log, range(len(log))):
        fold.issued(take(fold, entry))
        fold.forget(entry.seq)
        sizes.append((fold.sizes(), len(store.observations), len(store.issued)))

    middle, end = sizes[len(sizes) // 2], sizes[-1]
    assert end[0]["slots"] <= 20
    assert end[0]["panes"] <= 2 * middle[0]["panes"]
    assert end[1] <= 2 * middle[1] <= len(log) / 3
    assert end[2] <= 2 * middle[2]
    # What is derived and not needed is dropped now and then, what is loaded is just what is needed.
    loaded = StatisticsFold(options, store).sizes()
    assert loaded.pop("panes") <= end[0].pop("panes")
    assert loaded == end[0]


def test_totals_hold_every_tenant_and_policies_add_up_to_them():
    log = generated(11, slots=24, slot_s=600, jobs=4)
    issues = folded(stored(log, range(len(log))), PATIENT)

    platform = [i.event for i in issues if isinstance(i.event, PlatformStatisticsIssued)]

    by_window = {}
    for one in platform:
        by_window.setdefault((one.window_s, one.ts_event_ns), {})[one.tenant] = one
    assert any(len(tenants) > 2 for tenants in by_window.values())
    for tenants in by_window.values():
        whole = tenants["*"].total.spend.spend_micro_usd
        named = [one for name, one in tenants.items() if name != "*"]
        assert whole == sum(one.total.spend.spend_micro_usd for one in named)
        for one in tenants.values():
            spend = sum(p.figures.spend.spend_micro_usd for p in one.policies)
            assert spend == one.total.spend.spend_micro_usd


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"windows": ()}, "windows"),
        ({"windows": (*WINDOWS, WINDOWS[0])}, "windows"),
        ({"grace_s": -1}, "grace_s"),
        ({"delay_slots": -1}, "delay_slots"),
        ({"history_s": 60}, "history_s"),
    ],
)
def test_options_that_make_no_sense_are_refused(change, field):
    with pytest.raises(ValueError, match=field):
        replace(HASTY, **change)


@pytest.mark.parametrize(("size_s", "hop_s"), [(0, 0), (300, 0), (300, 200), (300, 600)])
def test_windows_that_do_not_tile_are_refused(size_s, hop_s):
    with pytest.raises(ValueError, match="windows must be a multiple"):
        WindowSpec(size_s=size_s, hop_s=hop_s)


def test_every_issue_is_of_the_slot_that_led_to_it():
    entries = stored([opened(slot) for slot in range(6)], range(6))

    issues = folded(entries, HASTY)

    ids = [one.event_id for one in issues]
    assert len(set(ids)) == len(ids)
    assert {one.causation_id for one in issues} <= {f"slot-{slot}" for slot in range(6)}
    assert all(isinstance(one.event, MarketStatisticsIssued) for one in issues)
