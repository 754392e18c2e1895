"""What progress reports of running jobs are evidence of, and what is published on it."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from spotline.application.configurator.monitoring import (
    LEAST_REPORTS,
    LEAST_REPORTS_OF_A_RUN,
    LIVE_STACK,
    MonitoringState,
    fold,
    follows,
)
from spotline.domain.configuration.configuration import Configuration, Method, RunOutcome
from spotline.domain.configuration.provenance import (
    JobConfiguration,
    OriginKind,
    ParameterOrigin,
)
from spotline.domain.events.capacity import CapacityLost, CapacityReported
from spotline.domain.events.event import Event
from spotline.domain.events.knowledge import RunMeasured, ThroughputReestimated
from spotline.domain.events.lifecycle import (
    JobClosed,
    JobOutcome,
    JobProgressReported,
    JobSubmitted,
)
from spotline.domain.jobs.job import Job, Throughput, Work
from spotline.domain.jobs.lot import JobHolding, Lot
from spotline.domain.units import NS_PER_S
from tests.fakes.allocator import (
    EAST,
    SLOT_NS,
    SLOT_S,
    START_NS,
    WEST,
    market_opened,
    slot_opened,
)
from tests.fakes.allocator import job as plain_job

P4D, P3 = "p4d.24xlarge", "p3.16xlarge"
GPU = "a100-40gb"
BELIEVED = 1_000.0  # tokens per instance-hour


def completed_job(
    *, kinds: dict[str, OriginKind] | None = None, weak: bool = True, **changes: object
) -> Job:
    """A job in tokens with a soft deadline whose rates are predicted, unless `kinds` says otherwise."""
    kinds = kinds or {}
    one = replace(
        plain_job(counts=(1, 2, 4), deadline_slots=90, late_slots=10),
        work=Work(amount=40_000.0, unit="tokens"),
        throughputs=(
            Throughput(offering=P4D, alpha=BELIEVED),
            Throughput(offering=P3, alpha=BELIEVED / 2),
        ),
        configuration=JobConfiguration(
            configuration=Configuration(
                model_name="granite-3.1-8b",
                method=Method.LORA,
                gpu_model=GPU,
                gpus=32,
                nodes=4,
                tokens_per_sample=1024,
                batch_size=128,
            ),
            weak_scaling=weak,
            success_ppm=990_000,
            stack="sfttrainer",
            origins=tuple(
                ParameterOrigin(
                    parameter=f"throughput.{key}",
                    value="",
                    kind=kinds.get(key, OriginKind.PREDICTED),
                    low=500.0,
                    high=2_000.0,
                )
                for key in (P4D, P3)
            ),
        ),
    )
    return replace(one, **changes)  # type: ignore[arg-type]


class Watched:
    """A job that is watched from its submission on."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.state = MonitoringState()
        opened = market_opened()
        gpus = tuple(
            replace(one, gpu_model=GPU if one.offering_id == EAST else "v100")
            for one in opened.offerings
        )
        self.feed(replace(opened, offerings=gpus))
        self.feed(JobSubmitted(job=job, ts_event_ns=START_NS))
        self.feed(slot_opened(0))

    def feed(self, event: Event) -> tuple[Event, ...]:
        """Handle an event and what follows, as the configurator does."""
        fold(self.state, event)
        found = follows(self.state, event)
        for one in found:
            fold(self.state, one)
        return found

    def hold(self, *lots: Lot, slot: int = 0, offset_s: int = 0) -> None:
        holdings = (JobHolding(job_id=self.job.job_id, lots=lots),) if lots else ()
        self.feed(
            CapacityReported(
                slot=slot, revision=0, offset_s=offset_s, settled=True, holdings=holdings
            )
        )

    def rate(self, per_instance: float, instances: int = 4, at_s: int = 0) -> tuple[Event, ...]:
        return self.feed(
            JobProgressReported(
                job_id=self.job.job_id,
                tenant=self.job.tenant,
                done=0.0,
                ts_event_ns=START_NS + at_s * NS_PER_S if at_s else 0,
                rate_per_hour=per_instance * instances,
                instances=instances,
            )
        )

    def done(self, amount: float, at_s: int) -> tuple[Event, ...]:
        return self.feed(
            JobProgressReported(
                job_id=self.job.job_id,
                tenant=self.job.tenant,
                done=amount,
                ts_event_ns=START_NS + at_s * NS_PER_S,
            )
        )

    def close(self) -> tuple[Event, ...]:
        return self.feed(
            JobClosed(
                job_id=self.job.job_id,
                tenant=self.job.tenant,
                slot=9,
                outcome=JobOutcome.COMPLETED,
                policy_id="sdp",
                cost_micro_usd=0,
                value_micro_usd=0,
                progress_ppm=1_000_000,
            )
        )

    @property
    def counted(self) -> tuple[int, int]:
        """Reports that were used and that were not."""
        return self.state.used, self.state.ignored


def running(**changes: object) -> Watched:
    """A job on four spot instances of EAST since the first slot opened."""
    watched = Watched(completed_job(**changes))  # type: ignore[arg-type]
    watched.hold(Lot(offering_id=EAST, spot=4))
    return watched


def the_one(events: tuple[Event, ...]) -> ThroughputReestimated:
    (event,) = events
    assert isinstance(event, ThroughputReestimated)
    return event


# --- measured rates ---------------------------------------------------------------------------


def test_the_second_report_that_agrees_replaces_all_throughputs() -> None:
    watched = running()

    quiet = watched.rate(500.0)
    event = the_one(watched.rate(490.0))

    assert quiet == ()
    assert (event.job_id, event.tenant, event.reports) == (
        watched.job.job_id,
        watched.job.tenant,
        LEAST_REPORTS,
    )
    measured, other = event.throughputs
    assert (measured.offering, other.offering) == (P4D, P3)
    assert measured.rate_per_hour(4) == pytest.approx(4 * 500.0, rel=0.08)
    # Half of the error, on the log scale, is expected of the type that was not measured.
    halved = BELIEVED / 2 * (event.factor_ppm / 1e6) ** 0.5
    assert other.rate_per_hour(1) == pytest.approx(halved, rel=0.02)
    assert event.factor_ppm / 1e6 == pytest.approx(0.5, rel=0.08)
    assert 0 < event.half_width_ppm < event.factor_ppm / 4
    assert "2 reports" in event.explanation


def test_what_was_said_is_not_said_again() -> None:
    watched = running()
    for rate in (500.0, 490.0, 510.0, 500.0):
        watched.rate(rate)

    again = [watched.rate(500.0 + step) for step in (5.0, -5.0, 0.0, 8.0)]

    assert again == [()] * 4


def test_a_hard_deadline_is_planned_at_the_low_end_of_what_is_measured() -> None:
    soft, hard = running(), running(deadline=plain_job(deadline_slots=90).deadline)
    soft.rate(500.0)
    hard.rate(500.0)

    estimated, cautious = the_one(soft.rate(490.0)), the_one(hard.rate(490.0))

    # The estimate is the same, what is planned with is not: for every instance type alike.
    assert cautious.factor_ppm == estimated.factor_ppm
    shares = [
        low.rate_per_hour(4) / mean.rate_per_hour(4)
        for low, mean in zip(cautious.throughputs, estimated.throughputs, strict=True)
    ]
    low_end = 1 - estimated.half_width_ppm / estimated.factor_ppm
    assert shares == pytest.approx([low_end] * 2, rel=0.02)
    assert 0.8 < low_end < 0.97


def test_of_two_reports_that_disagree_the_sane_one_is_believed() -> None:
    watched = running()

    assert watched.rate(BELIEVED / 10) == ()
    assert watched.rate(BELIEVED) == ()


def test_rates_as_believed_are_nothing_new() -> None:
    watched = running()

    said = [watched.rate(BELIEVED * (1 + step)) for step in (0.03, -0.03, 0.01, -0.01) * 4]

    assert not any(said)
    assert watched.counted == (16, 0)


def test_one_report_ten_times_off_changes_nothing() -> None:
    watched = running()
    for _ in range(4):
        watched.rate(BELIEVED)

    assert watched.rate(BELIEVED / 10) == ()


def test_a_rate_that_comes_back_is_followed_back() -> None:
    watched = running()
    for _ in range(6):
        watched.rate(500.0)
    said = [event for _ in range(60) for event in watched.rate(BELIEVED)]

    assert said
    last = said[-1]
    assert isinstance(last, ThroughputReestimated)
    assert last.throughputs[0].rate_per_hour(4) == pytest.approx(4 * BELIEVED, rel=0.08)


def test_several_counts_give_a_table() -> None:
    watched = running()
    said: list[Event] = []
    for _ in range(8):
        for count, share in ((1, 1.0), (2, 0.85), (4, 0.7)):
            said += watched.rate(BELIEVED * share, instances=count)

    last = said[-1]
    assert isinstance(last, ThroughputReestimated)
    table = last.throughputs[0].table
    assert len(table) == 4
    assert table[0] > table[1] / 2 > table[3] / 4
    # Three is not a count of this job.
    assert table[2] == 0.0
    # And the job can have it.
    assert replace(watched.job, throughputs=last.throughputs).max_instances == 4


@pytest.mark.parametrize(
    "instances",
    [pytest.param(3, id="not an allowed count"), pytest.param(0, id="on nothing")],
)
def test_a_rate_on_a_count_that_cannot_be_is_ignored(instances: int) -> None:
    watched = running()

    watched.feed(
        JobProgressReported(
            job_id=watched.job.job_id,
            tenant=watched.job.tenant,
            done=1.0,
            rate_per_hour=100.0,
            instances=instances,
        )
    )

    assert watched.counted == (0, 1)


def test_a_rate_before_anything_was_held_is_ignored() -> None:
    watched = Watched(completed_job())

    assert watched.rate(500.0) == ()
    assert watched.counted == (0, 1)


def test_a_rate_measured_before_a_move_is_not_one_of_the_new_home() -> None:
    watched = running()
    watched.feed(slot_opened(1))
    watched.hold(Lot(offering_id=WEST, spot=4), slot=1)

    watched.rate(500.0, at_s=SLOT_S - 1)

    assert watched.counted == (0, 1)


def test_jobs_nobody_submitted_are_passed_over() -> None:
    watched = running()
    stranger = JobProgressReported(
        job_id="stranger", tenant="t", done=1.0, rate_per_hour=5.0, instances=1
    )

    assert watched.feed(stranger) == ()
    assert watched.counted == (0, 0)


# --- progress over time -----------------------------------------------------------------------


def progress(watched: Watched, *, every_s: int = 60, first_s: int = 300, number: int = 8) -> None:
    """Reports of work done at half the believed rate, on four instances."""
    for step in range(number):
        at_s = first_s + step * every_s
        watched.done(4 * BELIEVED / 2 * at_s / 3600, at_s)


def test_work_done_between_two_reports_is_a_rate() -> None:
    watched = running()
    progress(watched)

    (believed, _) = watched.state.jobs[watched.job.job_id].believed
    # Minutes say less than whole reports: the prediction still pulls a little.
    assert believed.rate_per_hour(4) == pytest.approx(2_000.0, rel=0.1)
    assert watched.counted == (7, 1)


def test_while_an_overhead_may_be_pending_progress_is_no_rate() -> None:
    watched = running()
    launch_s = watched.job.overheads.launch_s

    assert launch_s > 30
    watched.done(1.0, launch_s - 20)
    watched.done(2.0, launch_s - 10)

    assert watched.counted == (0, 2)


def test_a_change_between_two_reports_breaks_the_interval() -> None:
    watched = running()
    watched.done(100.0, 300)
    watched.hold(Lot(offering_id=EAST, spot=2), offset_s=310)
    watched.done(200.0, 590)

    assert watched.counted == (0, 2)


def test_an_interruption_that_is_made_good_at_once_breaks_it_too() -> None:
    watched = running()
    watched.done(100.0, 300)
    watched.feed(
        CapacityLost(
            job_id=watched.job.job_id,
            tenant=watched.job.tenant,
            offering_id=EAST,
            instance_ids=("i-1",),
            slot=0,
            offset_s=320,
        )
    )
    watched.hold(Lot(offering_id=EAST, spot=4), offset_s=320)
    watched.done(200.0, 330)

    assert watched.counted == (0, 2)


def test_a_platform_that_counts_in_steps_is_averaged_over_them() -> None:
    watched = running()
    for step in range(12):
        # Work shows at every third report only.
        watched.done(4 * 500.0 * (step - step % 3 + 3) * 20 / 3600, 300 + step * 20)

    one = watched.state.jobs[watched.job.job_id]
    rates = [kept.observation.measured_per_hour for kept in one.evidence[P4D]]
    assert rates == pytest.approx([2_000.0] * 3)


@pytest.mark.parametrize("at_s", [250, 300], ids=["out of order", "twice"])
def test_reports_that_do_not_move_on_in_time_are_ignored(at_s: int) -> None:
    watched = running()
    watched.done(100.0, 300)
    watched.done(150.0, at_s)

    assert watched.counted == (0, 2)


def test_a_platform_on_another_clock_is_not_taken_at_its_word() -> None:
    watched = running()
    year_s = 365 * 24 * 3600
    for step in range(5):
        watched.rate(500.0, at_s=year_s + step)

    assert watched.counted == (0, 5)


# --- what may be replaced ---------------------------------------------------------------------


def test_what_a_user_stated_stays() -> None:
    watched = running(configuration=None)

    assert [watched.rate(500.0) for _ in range(10)] == [()] * 10


def test_a_user_stated_rate_neither_changes_nor_teaches_of_others() -> None:
    watched = running(kinds={P4D: OriginKind.USER})
    on_stated = [watched.rate(500.0) for _ in range(5)]
    watched.feed(slot_opened(1))
    watched.hold(Lot(offering_id=WEST, spot=4), slot=1)
    said = [event for _ in range(5) for event in watched.rate(BELIEVED)]

    assert not any(on_stated)
    last = said[-1]
    assert isinstance(last, ThroughputReestimated)
    assert last.throughputs[0] == watched.job.throughputs[0]
    assert last.throughputs[1].rate_per_hour(4) == pytest.approx(4 * BELIEVED, rel=0.08)


def test_a_deadline_that_hangs_on_it_makes_a_smaller_difference_matter() -> None:
    # 40,000 tokens at 4,000 per hour: ten hours on four instances.
    loose = running()
    soon_ns = START_NS + 61 * SLOT_NS
    tight = running(deadline=replace(loose.job.deadline, at_ns=soon_ns))
    slower = [BELIEVED * 0.96] * 8

    assert not any(loose.rate(one) for one in slower)
    assert any(tight.rate(one) for one in slower)


# --- what is learned for good -----------------------------------------------------------------


def test_a_closed_job_teaches_its_configuration_at_every_count_measured() -> None:
    watched = running()
    for _ in range(LEAST_REPORTS_OF_A_RUN):
        watched.rate(900.0, instances=4)
        watched.rate(1_800.0, instances=2)
    watched.rate(100.0, instances=1)

    runs = watched.close()

    found = {}
    for event in runs:
        assert isinstance(event, RunMeasured)
        assert (event.job_id, event.run.stack) == (watched.job.job_id, LIVE_STACK)
        assert event.run.outcome is RunOutcome.SUCCEEDED
        found[event.run.configuration.gpus] = event.run
    assert sorted(found) == [16, 32]
    assert found[32].tokens_per_s == pytest.approx(900.0 * 4 / 3600)
    assert (found[32].configuration.nodes, found[32].configuration.batch_size) == (4, 128)
    assert found[16].tokens_per_s == pytest.approx(1_800.0 * 2 / 3600)
    assert (found[16].configuration.nodes, found[16].configuration.batch_size) == (2, 64)


def test_with_a_constant_global_batch_the_batch_stays() -> None:
    watched = running(weak=False)
    for _ in range(LEAST_REPORTS_OF_A_RUN):
        watched.rate(900.0, instances=2)

    (event,) = watched.close()

    assert isinstance(event, RunMeasured)
    assert (event.run.configuration.gpus, event.run.configuration.batch_size) == (16, 128)


def test_rates_on_another_gpu_are_no_runs_of_the_configuration() -> None:
    watched = Watched(completed_job())
    watched.hold(Lot(offering_id=WEST, spot=4))
    for _ in range(5):
        watched.rate(900.0)

    assert watched.close() == ()


def test_a_job_without_a_configuration_teaches_nothing() -> None:
    watched = running(configuration=None)
    for _ in range(5):
        watched.rate(900.0)

    assert watched.close() == ()


def test_after_its_end_a_job_is_forgotten_and_its_late_reports_ignored() -> None:
    watched = running()
    watched.rate(500.0)
    watched.close()

    assert watched.rate(500.0) == ()
    watched.feed(slot_opened(1))
    assert watched.state.jobs == {}


# --- what a log may hold ----------------------------------------------------------------------


def test_work_too_small_to_be_a_rate_is_ignored() -> None:
    watched = running()
    later_s = SLOT_S + 300

    watched.done(0.0, at_s=later_s)
    said = watched.done(5e-324, at_s=later_s + 200)

    assert said == ()
    assert watched.counted == (0, 2)


def test_a_rate_measured_before_a_moved_job_computes_is_not_of_its_new_home() -> None:
    watched = running()
    watched.feed(slot_opened(1))
    watched.hold(Lot(offering_id=WEST, spot=4), slot=1)
    overheads = watched.job.overheads
    ready_s = SLOT_S + max(overheads.launch_s, overheads.migrate_s)

    early = watched.rate(300.0, at_s=ready_s - 1)
    counted_early = watched.counted
    watched.rate(300.0, at_s=ready_s)

    assert early == ()
    assert counted_early == (0, 1)
    assert watched.counted == (1, 1)


def test_a_hard_deadline_is_not_planned_anew_because_an_interval_narrows() -> None:
    watched = running(deadline=plain_job(deadline_slots=90).deadline)
    watched.rate(500.0)
    factors = [the_one(watched.rate(490.0)).throughputs[0].rate_per_hour(4)]

    for number in range(30):
        for event in watched.rate(500.0 if number % 2 else 490.0):
            assert isinstance(event, ThroughputReestimated)
            factors.append(event.throughputs[0].rate_per_hour(4))

    assert all(after / before > 1.05 for before, after in pairwise(factors))


def test_a_reestimate_of_other_throughputs_leaves_those_of_the_job() -> None:
    watched = running()
    strange = ThroughputReestimated(
        job_id=watched.job.job_id,
        tenant=watched.job.tenant,
        throughputs=(Throughput(offering="elsewhere", alpha=1.0),),
        reports=2,
        factor_ppm=1,
        half_width_ppm=1,
    )

    watched.feed(strange)
    watched.rate(500.0)

    assert isinstance(the_one(watched.rate(490.0)), ThroughputReestimated)


def test_seconds_of_work_are_not_learned_for_good() -> None:
    watched = running()
    start_s = SLOT_S + 300

    for second in range(0, 12, 2):
        watched.done(1.0 + 0.5 * second, at_s=start_s + second)

    assert watched.counted[0] >= 3
    assert watched.close() == ()
