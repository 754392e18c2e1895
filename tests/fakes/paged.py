"""Stories told to the page's state, and pages made of it."""

from __future__ import annotations

from collections.abc import Mapping

from spotline.adapters.page.asked import PageAsked
from spotline.adapters.page.pages import PAGES
from spotline.adapters.page.rendering import rendered
from spotline.adapters.page.shell import Shell
from spotline.application.page.applied import Applied
from spotline.application.page.state import PageState
from spotline.contracts.access import Caller, Role
from spotline.contracts.subjects import KINDS
from spotline.domain.events.capacity import (
    CapacityLost,
    CapacityReported,
    CostAccrued,
    LaunchRefused,
    ProvisioningCommanded,
    RefusalClass,
)
from spotline.domain.events.event import Event
from spotline.domain.events.lifecycle import JobSubmitted
from spotline.domain.jobs.job import Job
from spotline.domain.jobs.lot import JobHolding, Lot
from spotline.domain.market.offering import CapacityType
from spotline.domain.units import cost_micro_usd
from tests.fakes.allocator import EAST, SLOT_S, START_NS, job, market_opened, slot_opened
from tests.fakes.board import BoardStory

SPOT_PRICE, ON_DEMAND_PRICE = 3_000_000, 10_000_000


class PageStory(BoardStory):
    """A job's story, told to a page's state; `other` tells of another job in the same log."""

    def __init__(self, stated: Job | None = None) -> None:
        super().__init__(stated)
        self.state = PageState()

    def tell(self, *events: Event) -> PageStory:
        for event in events:
            seq = self.state.seq + 1
            told = Applied(event=event, seq=seq, kind=KINDS[type(event)], event_id=str(seq))
            self.state.fold(told)
            assert not self.state.left_out
        return self

    def other(self, stated: Job) -> PageStory:
        """Another job, handed over now; the story goes on with it."""
        self.job = stated
        return self.tell(JobSubmitted(job=stated, ts_event_ns=START_NS))

    def commanded(self, target: Lot, *, transfer: int = 0) -> PageStory:
        return self.of_job(
            ProvisioningCommanded,
            command_id=f"c{self.state.seq}",
            quota_pool="us-east-1",
            slot=self.slot,
            revision=0,
            offset_s=0,
            target=target,
            transfer_cost_micro_usd=transfer,
        )

    def charged(
        self,
        instances: int,
        *,
        kind: CapacityType = CapacityType.SPOT,
        slot: int | None = None,
        offering_id: str = EAST,
    ) -> PageStory:
        """A bill of the open slot, or of `slot`, held all through it."""
        price = SPOT_PRICE if kind is CapacityType.SPOT else ON_DEMAND_PRICE
        return self.of_job(
            CostAccrued,
            offering_id=offering_id,
            quota_pool="us-east-1",
            capacity_type=kind,
            slot=self.slot if slot is None else slot,
            instances=instances,
            held_s=SLOT_S if instances else 0,
            price_micro_usd=price if instances else 0,
            cost_micro_usd=cost_micro_usd(price, instances, SLOT_S) if instances else 280_000,
        )

    def holds(self, *names: str, offset_s: int = 0) -> PageStory:
        """The cloud says that the job holds so much spot."""
        lots = (Lot(offering_id=EAST, spot=len(names)),) if names else ()
        holding = JobHolding(job_id=self.job.job_id, lots=lots, instance_ids=names)
        return self.tell(
            CapacityReported(
                slot=self.slot,
                revision=0,
                offset_s=offset_s,
                settled=True,
                holdings=(holding,) if names else (),
            )
        )

    def taken(self, *names: str, offset_s: int = 0) -> PageStory:
        return self.of_job(
            CapacityLost,
            offering_id=EAST,
            instance_ids=names,
            slot=self.slot,
            offset_s=offset_s,
        )

    def turned_away(self, why: RefusalClass, *, retry_after_s: int = 0) -> PageStory:
        return self.of_job(
            LaunchRefused,
            command_id="c",
            offering_id=EAST,
            capacity_type=CapacityType.SPOT,
            slot=self.slot,
            requested=2,
            granted=0,
            detail="none left",
            refusal_class=why,
            retry_after_s=retry_after_s,
        )


def paid_story(**stated: object) -> PageStory:
    """A job that held two spot in slot 0, and was charged for them when slot 1 opened."""
    story = PageStory(job(instance_hours=1.0, **stated))
    story.tell(market_opened(), JobSubmitted(job=story.job, ts_event_ns=START_NS))
    two = Lot(offering_id=EAST, spot=2)
    story.tell(slot_opened(0)).admitted().decided((two,)).commanded(two)
    story.slot = 1
    story.tell(slot_opened(1)).advanced(300_000, (two,), 1_000_000).charged(2, slot=0)
    return story


def of_tenant(tenant: str) -> Caller:
    return Caller(subject=tenant, role=Role.OWNER, tenant=tenant)


def page_text(
    state: PageState,
    path: str,
    query: Mapping[str, str] | None = None,
    *,
    caller: Caller | None = None,
    found: Mapping[str, object] | None = None,
    params: Mapping[str, str] | None = None,
) -> str:
    """A page as it is sent; `path` is that of its route."""
    page = next(page for page in PAGES if page.path == path)
    asked = PageAsked(path=path, query=query or {}, params=params or {}, caller=caller)
    shell = Shell(path=path, query=query or {}, tenant=asked.tenant, seq=state.seq, source="a test")
    return rendered(
        page.template, shell=shell, state=state, **page.build(state, asked, found or {})
    )
