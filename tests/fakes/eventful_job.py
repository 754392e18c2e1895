"""A job to which everything has happened that a page can show, appended to the small run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from spotline.application.page.applied import Applied
from spotline.domain.events.allocation import AllocationDecided
from spotline.domain.events.capacity import (
    CapacityLost,
    CapacityReported,
    CostAccrued,
    InterruptionKind,
    InterruptionNoticed,
    InterruptionWithdrawn,
    LaunchRefused,
    RefusalClass,
)
from spotline.domain.events.event import Event
from spotline.domain.events.lifecycle import (
    JobAdmitted,
    JobExited,
    JobQuoted,
    JobRetryScheduled,
    JobSubmitted,
    JobUpdated,
)
from spotline.domain.events.market import SlotOpened
from spotline.domain.events.training import (
    CheckpointCommitted,
    CheckpointFailed,
    CheckpointFault,
    CheckpointKind,
    JobSilent,
)
from spotline.domain.jobs.job import DeadlineKind, Job
from spotline.domain.jobs.lot import JobHolding, Lot
from spotline.domain.jobs.outlook import JobOutlook
from spotline.domain.market.offering import CapacityType
from spotline.domain.policies.answer import DecisionReason, Move, Yielded
from tests.fakes.page_log import small_log

JOB_ID = "e7e27fu1"
OTHER_ID = "0ther000"


def eventful_log() -> list[Applied]:
    """The small run to the slot of its first admission, and what happens to one more job in that."""
    told: list[Applied] = []
    for found in small_log():
        told.append(found)
        if isinstance(found.event, JobAdmitted):
            home = found.event.offering_id
            break
    job = next(each.event.job for each in told if isinstance(each.event, JobSubmitted))
    opened = [each.event for each in told if isinstance(each.event, SlotOpened)][-1]
    deadline = replace(
        job.deadline,
        kind=DeadlineKind.HARD,
        at_ns=opened.ts_event_ns + 3_600_000_000_000,
        expires_ns=opened.ts_event_ns + 3_600_000_000_000,
    )
    own = replace(job, job_id=JOB_ID, name="<b>eventful</b>", deadline=deadline)
    seq = told[-1].seq
    for event in happenings(own, home, opened):
        seq += 1
        told.append(
            Applied(
                event=event,
                seq=seq,
                kind=type(event).__name__,
                event_id=f"{seq:032x}",
                cause_id=f"{seq - 1:032x}",
            )
        )
    return told


def happenings(job: Job, home: str, opened: SlotOpened) -> Iterator[Event]:
    """Everything, in an order that may be."""
    slot, now_ns = opened.slot, opened.ts_event_ns
    whose = {"job_id": JOB_ID, "tenant": job.tenant}
    yield JobSubmitted(job=job, ts_event_ns=now_ns)
    yield JobQuoted(**whose, slot=slot, outlook=quote(slot, now_ns))
    yield JobAdmitted(
        **whose,
        slot=slot,
        policy_id="sdp",
        offering_id=home,
        deadline_slot=slot + 2,
        weight_ppb=1,
    )
    yield JobUpdated(**whose, job=job, ts_event_ns=now_ns + 1)
    for revision, reason in enumerate(DecisionReason):
        yield AllocationDecided(
            **whose,
            slot=slot,
            revision=revision,
            offset_s=revision,
            policy_id="sdp",
            lots=(Lot(offering_id=home, spot=2),),
            reason=reason,
            forecast_used=True,
            explanation=f"as {reason.value} says",
            move=Move(from_offering_id=home, overhead_s=90, cost_micro_usd=5)
            if revision == 1
            else None,
            yielded=Yielded(
                offering_id=home, spot=1, to_job_id=OTHER_ID, gain_micro_usd=-7 + revision
            ),
        )
    for refusal in RefusalClass:
        yield LaunchRefused(
            **whose,
            command_id="c",
            offering_id=home,
            capacity_type=CapacityType.ON_DEMAND,
            slot=slot,
            requested=3,
            granted=1,
            detail=f"provider said {refusal.name}",
            refusal_class=refusal,
            retry_after_s=60,
        )
    yield report(slot, 20, home, 2)
    yield InterruptionNoticed(
        **whose,
        offering_id=home,
        instance_ids=("i-1", "i-2"),
        slot=slot,
        offset_s=30,
        lead_s=120,
        kind=InterruptionKind.CAPACITY_RECLAIMED,
    )
    yield InterruptionWithdrawn(
        **whose, offering_id=home, instance_ids=("i-1",), slot=slot, offset_s=40
    )
    yield CapacityLost(
        **whose, offering_id=home, instance_ids=("i-1", "i-2"), slot=slot, offset_s=150
    )
    yield report(slot, 160, home, 0)
    yield CostAccrued(
        **whose,
        offering_id=home,
        quota_pool="",
        capacity_type=CapacityType.SPOT,
        slot=slot,
        instances=2,
        held_s=140,
        price_micro_usd=1_000_000,
        cost_micro_usd=77_778,
    )
    yield from program_of(whose, slot, now_ns)


def program_of(whose: dict[str, str], slot: int, now_ns: int) -> Iterator[Event]:
    """What its program and agents say."""
    yield CheckpointCommitted(
        **whose,
        generation=1,
        step=40,
        done=0.5,
        uri="s3://bucket/40",
        sha256="ab",
        size_bytes=1,
        kind=CheckpointKind.PERIODIC,
        save_s=9,
        ts_event_ns=now_ns + 170_000_000_000,
    )
    yield CheckpointFailed(
        **whose,
        generation=1,
        step=50,
        fault=CheckpointFault.DAMAGED,
        detail="no digest",
        ts_event_ns=now_ns + 180_000_000_000,
    )
    yield JobSilent(
        **whose, instance_id="i-1", since_ns=now_ns, ts_event_ns=now_ns + 190_000_000_000
    )
    yield JobExited(
        **whose,
        generation=1,
        exit_code=137,
        detail="killed",
        ts_event_ns=now_ns + 200_000_000_000,
    )
    yield JobRetryScheduled(
        **whose, slot=slot, retry=1, not_before_ns=now_ns + 600_000_000_000, detail="exit code 137"
    )


def report(slot: int, offset_s: int, home: str, spot: int) -> CapacityReported:
    """What the cloud says that the job holds, alone."""
    held = JobHolding(
        job_id=JOB_ID, lots=(Lot(offering_id=home, spot=spot),), instance_ids=("i-1", "i-2")[:spot]
    )
    return CapacityReported(
        slot=slot,
        revision=0,
        offset_s=offset_s,
        settled=False,
        holdings=(held,) if spot else (),
    )


def quote(slot: int, now_ns: int) -> JobOutlook:
    """What was expected when it was handed over."""
    return JobOutlook(
        slot=slot,
        futures=100,
        on_time_probability_ppm=970_000,
        expected_cost_micro_usd=5_000_000,
        cost_p10_micro_usd=4_000_000,
        cost_p50_micro_usd=5_000_000,
        cost_p90_micro_usd=6_000_000,
        finish_p10_ns=now_ns + 3_000_000_000_000,
        finish_p50_ns=now_ns + 3_300_000_000_000,
        finish_p90_ns=now_ns + 3_600_000_000_000,
        expected_utility_micro_usd=7_000_000,
    )
