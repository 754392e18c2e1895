"""Probes of offerings that publish no counts: what they would tell, which are sent, what they found."""

from __future__ import annotations

from collections.abc import Sequence

from spotline.application.selector.believing import spot_held
from spotline.application.selector.job_run import JobRun, RunPhase
from spotline.application.selector.options import SelectorOptions
from spotline.application.selector.state import SelectorState
from spotline.application.spec import Context
from spotline.domain.beliefs.probes import PricedProbe, ProbeOdds, ProbeWorth, probe_price
from spotline.domain.events.allocation import AllocationAnswered
from spotline.domain.events.capacity import (
    OfferingProbed,
    ProbeCommanded,
    ProvisioningCommanded,
    RefusalClass,
)
from spotline.domain.events.event import Event
from spotline.domain.limits.freezes import Purchase
from spotline.domain.market.offering import CapacityType
from spotline.domain.units import NS_PER_S


def probe_odds(
    state: SelectorState, run: JobRun, offering_id: str, options: SelectorOptions
) -> ProbeOdds | None:
    """What asking an offering would tell a job; None where nobody asks.

    Nobody asks where counts are published or instances are held, inside a slot, on paper, before the
    provider or the ration lets it be asked again, or for what is not bought there.
    """
    if not options.probes or state.beliefs is None or state.offset_s or state.mode.on_paper:
        return None
    known = state.beliefs.offerings.get(offering_id)
    if known is None or state.current.ts_event_ns < known.cool_until_ns or known.is_bounded:
        return None
    if not state.probes.has_rested(offering_id, options.probe_ration, state.slot):
        return None
    if spot_held(state)[offering_id] or _is_frozen(state, run, offering_id):
        return None
    return known.belief.probe_odds(run.job.max_instances)


def _is_frozen(state: SelectorState, run: JobRun, offering_id: str) -> bool:
    purchase = Purchase(
        job_id=run.job.job_id,
        tenant=run.job.tenant,
        offering_id=offering_id,
        account=state.offerings[offering_id].account,
        capacity_type=CapacityType.SPOT,
    )
    return state.freezes.blocking(purchase) is not None


def probes_of(
    state: SelectorState,
    answered: AllocationAnswered,
    finished: Sequence[Event],
    ctx: Context,
    options: SelectorOptions,
) -> tuple[ProbeCommanded, ...]:
    """The probes of a slot: what its answers say they are worth, within the ration.

    `finished` is what the answers came to: what is launched in the same slot tells by itself. Of an
    offering only the job counts, and pays, that gains most: what it takes there others do not find.
    """
    if not answered.probe_worths or state.offset_s:
        return ()
    opened = state.current
    quotes = {quoted.quote.offering_id: quoted.quote for quoted in opened.quotes}
    launched = {
        event.target.offering_id for event in finished if isinstance(event, ProvisioningCommanded)
    }
    worths: dict[str, list[ProbeWorth]] = {}
    for worth in answered.probe_worths:
        if worth.offering_id not in launched and _pays(state, worth.job_id):
            worths.setdefault(worth.offering_id, []).append(worth)
    offered = []
    for offering_id, wanted in sorted(worths.items()):
        price = quotes[offering_id].spot_price_micro_usd
        first = max(wanted, key=lambda worth: (worth.gain_micro_usd, worth.job_id))
        offered.append(
            PricedProbe(worth=first, price_micro_usd=probe_price(price, first.instances))
        )
    chosen = state.probes.chosen(offered, options.probe_ration, state.slot, opened.slot_s)
    return tuple(
        ProbeCommanded(
            command_id=ctx.derive_id(f"probe:{probe.worth.offering_id}"),
            job_id=probe.worth.job_id,
            tenant=state.runs[probe.worth.job_id].job.tenant,
            quota_pool=state.offerings[probe.worth.offering_id].quota_pool,
            slot=state.slot,
            revision=state.revision,
            offset_s=state.offset_s,
            offering_id=probe.worth.offering_id,
            instances=probe.worth.instances,
            gain_micro_usd=probe.worth.gain_micro_usd,
            price_micro_usd=probe.price_micro_usd,
        )
        for probe in chosen
    )


def _pays(state: SelectorState, job_id: str) -> bool:
    run = state.runs.get(job_id)
    return run is not None and run.phase is RunPhase.RUNNING and run.ending is None


def note_probe(
    state: SelectorState, event: ProbeCommanded | OfferingProbed, options: SelectorOptions
) -> None:
    """Keep a probe that was sent, and take what one of the open slot has found and cost."""
    if isinstance(event, ProbeCommanded):
        state.probes.note(event.slot, event.offering_id, event.price_micro_usd)
        state.probes.forget(event.slot, options.probe_ration, state.current.slot_s)
        return
    if event.slot != state.slot:
        return
    run = state.runs.get(event.job_id)
    if run is not None and run.phase is RunPhase.RUNNING:
        run.probed_micro_usd += event.cost_micro_usd
    known = None if state.beliefs is None else state.beliefs.offerings.get(event.offering_id)
    if known is None:
        return
    now_ns = state.current.ts_event_ns + state.offset_s * NS_PER_S
    if event.refusal_class in (None, RefusalClass.NO_CAPACITY):
        known.note_probed(event.requested, event.granted, now_ns, event.retry_after_s)
    else:
        known.note_probed(event.granted, event.granted, now_ns, 0)
