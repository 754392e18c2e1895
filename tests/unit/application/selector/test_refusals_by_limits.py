"""A limit of ours that refuses a launch bounds those for whom it holds, and nobody else."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spotline.application.allocation.messages import AllocateRequest, JobTask
from spotline.application.market_ingest.handler import IngestHandler, IngestOptions
from spotline.application.selector.options import SelectorOptions
from spotline.application.spec import Outcome
from spotline.domain.events.allocation import AllocationAnswered, CallOutcome
from spotline.domain.events.capacity import CapacityReported, LaunchRefused, RefusalClass
from spotline.domain.events.forecast import ForecastOverdue
from spotline.domain.events.lifecycle import JobSubmitted
from spotline.domain.events.market import MarketOpened
from spotline.domain.jobs.lot import JobHolding, Lot
from spotline.domain.limits.freezes import FreezeScope
from spotline.domain.market.offering import CapacityType
from spotline.domain.policies.answer import DecisionReason, JobAnswer
from spotline.replay.jobs import generated_jobs
from tests.unit.application.selector.test_revisions import MARKET, Driver

HELD = 2
JOBS = {"one": "acme", "two": "acme", "three": "other"}


class Slot:
    """A slot in which three jobs of two tenants were decided and hold two spot instances each."""

    def __init__(self) -> None:
        self.driver = Driver(SelectorOptions(rehearsals=0))
        offerings = MARKET.offerings
        self.driver.feed(
            MarketOpened(
                offerings=offerings,
                slot_s=MARKET.slot_s,
                first_slot_start_ns=MARKET.start_ns,
                source="test",
            )
        )
        job = generated_jobs(MARKET, 1, 2)[0]
        for job_id, tenant in JOBS.items():
            stated = replace(
                job, job_id=job_id, tenant=tenant, offerings=(offerings[0].offering_id,)
            )
            self.driver.feed(JobSubmitted(job=stated, ts_event_ns=0))
        starts = MARKET.slot_starts_ns()
        slot = next(s for s in range(MARKET.slots) if starts[s] >= job.start_ns)
        self.driver.feed(IngestHandler(MARKET, IngestOptions()).slot_events(slot)[-1])
        asked = self.driver.feed(ForecastOverdue(slot=slot, waited_ms=1))
        self.state = self.driver.state
        self.home = self.state.runs["one"].offering_id
        self._answer(asked)

    def _answer(self, asked: Outcome) -> None:
        answers = tuple(
            JobAnswer(
                job_id=job_id,
                policy_id=self.state.runs[job_id].policy_id,
                lots=(Lot(offering_id=self.home, spot=4),),
                reason=DecisionReason.POLICY,
                memory=(0, -1, 0),
            )
            for job_id in self.state.order
        )
        self.driver.feed(
            AllocationAnswered(
                slot=self.state.slot,
                revision=0,
                request_digest=asked.calls[0].digest,
                outcome=CallOutcome.ANSWERED,
                answers=answers,
            )
        )

    def refuse(
        self,
        job_id: str,
        scope: FreezeScope | None,
        kind: CapacityType = CapacityType.SPOT,
        refusal_class: RefusalClass = RefusalClass.LIMIT,
    ) -> None:
        self.driver.feed(
            LaunchRefused(
                command_id="c",
                job_id=job_id,
                tenant=JOBS[job_id],
                offering_id=self.home,
                capacity_type=kind,
                slot=self.state.slot,
                requested=2,
                granted=0,
                detail="test",
                refusal_class=refusal_class,
                limit_scope=scope,
            )
        )

    def asked_again(self) -> dict[str, JobTask]:
        """What the allocator is asked for the rest of the slot, by job."""
        report = CapacityReported(
            slot=self.state.slot,
            revision=self.state.revision,
            offset_s=0,
            settled=False,
            holdings=tuple(
                JobHolding(job_id=job_id, lots=(Lot(offering_id=self.home, spot=HELD),))
                for job_id in sorted(JOBS)
            ),
        )
        request = self.driver.feed(report).calls[0].request
        assert isinstance(request, AllocateRequest)
        return {task.job.job_id: task for task in request.tasks}


def test_the_limit_of_a_job_bounds_that_job_alone() -> None:
    slot = Slot()
    slot.refuse("one", FreezeScope.JOB)

    tasks = slot.asked_again()

    assert {name: task.most_spot for name, task in tasks.items()} == {
        "one": HELD,
        "two": None,
        "three": None,
    }
    assert {task.most_on_demand for task in tasks.values()} == {None}
    assert slot.state.caps == {}


def test_the_limit_of_a_tenant_bounds_its_jobs() -> None:
    slot = Slot()
    slot.refuse("two", FreezeScope.TENANT)

    tasks = slot.asked_again()

    assert {name: task.most_spot for name, task in tasks.items()} == {
        "one": HELD,
        "two": HELD,
        "three": None,
    }
    assert slot.state.caps == {}


@pytest.mark.parametrize(
    "scope", [FreezeScope.SYSTEM, FreezeScope.ACCOUNT, FreezeScope.OFFERING, None]
)
def test_a_limit_of_all_bounds_all(scope: FreezeScope | None) -> None:
    slot = Slot()
    slot.refuse("one", scope)

    tasks = slot.asked_again()

    assert {task.most_spot for task in tasks.values()} == {None}
    assert slot.state.caps == {(slot.home, CapacityType.SPOT): 3 * HELD}


def test_a_limit_bounds_one_kind_and_ends_with_the_slot() -> None:
    slot = Slot()
    slot.refuse("one", FreezeScope.JOB, CapacityType.ON_DEMAND)

    tasks = slot.asked_again()

    assert (tasks["one"].most_spot, tasks["one"].most_on_demand) == (None, 0)
    opened = slot.state.current
    start_ns = opened.ts_event_ns + opened.slot_s * 10**9
    slot.driver.feed(replace(opened, slot=opened.slot + 1, ts_event_ns=start_ns))
    assert slot.state.own_caps == {}


def test_a_job_does_not_return_to_where_its_limit_has_refused_it() -> None:
    slot = Slot()
    slot.refuse("one", FreezeScope.JOB)
    slot.asked_again()
    other = next(o.offering_id for o in MARKET.offerings if o.offering_id != slot.home)

    assert slot.state.own_cap("one", slot.home, CapacityType.SPOT) == HELD
    assert slot.state.own_cap("one", other, CapacityType.SPOT) is None


@pytest.mark.parametrize("scope", list(FreezeScope))
def test_no_limit_of_ours_says_that_there_is_no_on_demand(scope: FreezeScope) -> None:
    slot = Slot()
    before = slot.state.stock[slot.home][-1]
    slot.refuse("one", scope, CapacityType.ON_DEMAND)

    assert before > 0
    assert slot.state.stock[slot.home][-1] == before


def test_a_refusal_by_the_cloud_still_bounds_all() -> None:
    slot = Slot()
    slot.refuse("one", None, CapacityType.ON_DEMAND, RefusalClass.NO_CAPACITY)

    tasks = slot.asked_again()

    assert {task.most_on_demand for task in tasks.values()} == {None}
    assert slot.state.caps == {(slot.home, CapacityType.ON_DEMAND): 0}
    assert slot.state.stock[slot.home][-1] == 0
