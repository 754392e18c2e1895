"""On-demand stock that nobody publishes, as the selector believes it: a fold over its own events.

A launch that was refused for want of capacity shows that there was none, one that was granted that
there was some. The reserve that the safety net keeps follows from it, beside what was seen of the past.
"""

from __future__ import annotations

from collections.abc import Sequence

from spotline.application.selector.job_run import JobRun
from spotline.application.selector.state import SelectorState
from spotline.domain.beliefs.stock_laws import named_stock
from spotline.domain.events.capacity import LaunchRefused, RefusalClass
from spotline.domain.events.market import SlotOpened
from spotline.domain.jobs.lot import Lot
from spotline.domain.market.offering import CapacityType
from spotline.domain.units import NS_PER_S


def open_stock(state: SelectorState, opened: SlotOpened, priors_sha256: str) -> None:
    """Let the slots of beliefs pass up to one that opens, before it is the open one."""
    beliefs, priors = state.stock_beliefs, named_stock(priors_sha256)
    if beliefs is None or priors is None:
        return
    passed = max(1, opened.slot - state.slot)
    for quoted in opened.quotes:
        offering = state.offerings[quoted.quote.offering_id]
        held_for_us = offering.reservation is not None and not offering.reservation.plan
        if quoted.quote.on_demand_available.known or held_for_us:
            beliefs.forget(offering.offering_id)
            continue
        beliefs.opened(offering.offering_id, offering.gpu_model, priors, opened.slot_s, passed)


def stock_refused(state: SelectorState, event: LaunchRefused) -> None:
    """Take a refusal of on-demand; only one for want of capacity tells of stock."""
    known = state.stock_beliefs
    if known is None or event.refusal_class not in (None, RefusalClass.NO_CAPACITY):
        return
    now_ns = state.current.ts_event_ns + state.offset_s * NS_PER_S
    known.refused(event.offering_id, now_ns, now_ns + event.retry_after_s * NS_PER_S)


def stock_granted(state: SelectorState, run: JobRun, lots: Sequence[Lot]) -> None:
    """Take what the cloud says a job holds now: more on-demand than before was launched.

    Where a part of what was asked for in the revision was refused, that is what it shows.
    """
    if state.stock_beliefs is None:
        return
    for lot in lots:
        refused = (lot.offering_id, CapacityType.ON_DEMAND) in state.refused
        if lot.on_demand > run.held_at(lot.offering_id).on_demand and not refused:
            state.stock_beliefs.granted(lot.offering_id)
