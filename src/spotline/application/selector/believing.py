"""Spot counts that nobody publishes, as the selector believes them: a fold over its own events.

A slot is decided on the counts that are worth asking for; what is refused or taken back bounds them for
the rest of it, as any refusal does. When it is over, the belief takes in what it has shown, and jobs are
fed back on one path of counts drawn from the belief, which agrees with all that was seen.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace

from spotline.application.selector.state import SelectorState
from spotline.domain.beliefs.count_laws import count_laws
from spotline.domain.events.capacity import LaunchRefused, RefusalClass
from spotline.domain.events.forecast import ForecastIssued
from spotline.domain.events.market import SlotOpened
from spotline.domain.forecasting.distribution import quantised
from spotline.domain.jobs.job import Job
from spotline.domain.jobs.lot import Lot
from spotline.domain.jobs.program import Holding
from spotline.domain.market.law import law_id_of
from spotline.domain.market.named_law import NamedLaw
from spotline.domain.market.offering import UNKNOWN_COUNT, Count, Provenance, Quote
from spotline.domain.market.prior_laws import named_priors
from spotline.domain.units import NS_PER_S

# Laws move slowly, and each that is learned is named and sent.
_LAWS_EVERY_SLOTS = 12
# Beyond a day the long run is all that is known.
_MOST_AHEAD = 48


def settle_beliefs(state: SelectorState) -> None:
    """End the open slot: believe what it has shown, and let its quotes show a path of counts."""
    if state.beliefs is None or state.opened is None:
        return
    held = spot_held(state)
    counts = {
        name: known.settle(name, state.slot, held[name])
        for name, known in sorted(state.beliefs.offerings.items())
    }
    state.opened = _counted(state.opened, lambda quote: counts.get(quote.offering_id))


def uncounted(state: SelectorState) -> SlotOpened | None:
    """The open slot as its source told it: what was believed is unknown again."""
    beliefs = state.beliefs
    if beliefs is None or state.opened is None:
        return state.opened
    quotes = tuple(
        replace(quoted, quote=replace(quoted.quote, spot_available=UNKNOWN_COUNT))
        if quoted.quote.offering_id in beliefs.offerings
        else quoted
        for quoted in state.opened.quotes
    )
    return replace(state.opened, quotes=quotes)


def believed_slot(state: SelectorState, opened: SlotOpened, priors_sha256: str) -> SlotOpened:
    """The slot that opens, with the counts that are worth asking for where none are published."""
    beliefs = state.beliefs
    if beliefs is None:
        return opened
    laws = count_laws(named_priors(priors_sha256), opened.slot_s)
    passed = max(1, opened.slot - state.slot)
    held = spot_held(state)

    def asked(quote: Quote) -> int | None:
        if quote.spot_available.known:
            # Its source has begun to count.
            beliefs.offerings.pop(quote.offering_id, None)
            return None
        known = beliefs.opened(
            quote,
            laws,
            passed,
            provider=state.offerings[quote.offering_id].provider,
            opened_ns=opened.ts_event_ns,
        )
        return known.to_ask_for(quote, held[quote.offering_id], opened.ts_event_ns, opened.slot_s)

    found = _counted(opened, asked)
    if not beliefs.offerings.keys() <= state.laws.keys() or not opened.slot % _LAWS_EVERY_SLOTS:
        for name, law in sorted(beliefs.laws().items()):
            state.laws[name] = NamedLaw(law_id=law_id_of(law), law=law)
    return found


def believed_forecast(state: SelectorState, issued: ForecastIssued) -> ForecastIssued:
    """The forecast with the belief's counts where none are published."""
    beliefs = state.beliefs
    if beliefs is None or not beliefs.offerings:
        return issued
    forecasts = []
    for forecast in issued.forecasts:
        known = beliefs.offerings.get(forecast.offering_id)
        if known is not None:
            ahead = known.belief.ahead(len(forecast.steps))
            steps = tuple(
                replace(step, counts=quantised(chances))
                for step, chances in zip(forecast.steps, ahead, strict=True)
            )
            forecast = replace(forecast, steps=steps)
        forecasts.append(forecast)
    return replace(issued, forecasts=tuple(forecasts))


def homes_by(
    state: SelectorState, job: Job, taken: Mapping[str, int]
) -> tuple[SlotOpened, list[SlotOpened]]:
    """The open slot and the past that a job's home is chosen by, beside what others may take.

    Where counts are believed, what matters is how much of the job spot will carry, from what is
    believed now on: that is the count that the slot shows, and the past says no more.
    """
    beliefs = state.beliefs
    past = [slot for slot, _ in state.history]
    if beliefs is None or not beliefs.offerings:
        return state.current, past
    opened = state.current
    left_ns = job.deadline.at_ns - opened.ts_event_ns
    slots = max(1, min(_MOST_AHEAD, left_ns // (opened.slot_s * NS_PER_S)))

    def carried(quote: Quote) -> int | None:
        known = beliefs.offerings.get(quote.offering_id)
        if known is None:
            return None
        others = taken.get(quote.offering_id, 0)
        share = known.belief.share_ahead(slots, others, job.max_instances)
        # Counts are whole: so many that the share of them is what is carried.
        return others + round(share * job.max_instances)

    return _counted(opened, carried), []


def believe_refused(state: SelectorState, event: LaunchRefused) -> None:
    """Take a refusal of spot; only one for want of capacity tells of the market."""
    known = None if state.beliefs is None else state.beliefs.offerings.get(event.offering_id)
    if known is None or event.refusal_class not in (None, RefusalClass.NO_CAPACITY):
        return
    now_ns = state.current.ts_event_ns + state.offset_s * NS_PER_S
    known.note_refused(event.requested, event.granted, now_ns, event.retry_after_s)


def believe_lost(state: SelectorState, offering_id: str) -> None:
    """Take that spot was taken back in the open slot: no more is there than is still held."""
    known = None if state.beliefs is None else state.beliefs.offerings.get(offering_id)
    if known is not None:
        known.note_room(0)


def replaces(state: SelectorState, before: Holding, target: Lot) -> bool:
    """Whether what is held on demand is to be kept until the spot in its place is there."""
    if state.beliefs is None or target.offering_id not in state.beliefs.offerings:
        return False
    return before.on_demand > target.on_demand and target.spot > before.spot


def spot_held(state: SelectorState) -> Counter[str]:
    """The spot that all jobs hold, by offering."""
    held: Counter[str] = Counter()
    for run in state.runs.values():
        for lot in run.held_lots:
            held[lot.offering_id] += lot.spot
    return held


def _counted(opened: SlotOpened, count_of: Callable[[Quote], int | None]) -> SlotOpened:
    """The slot with the counts that `count_of` says; None leaves a quote as it is."""
    quotes = []
    for quoted in opened.quotes:
        count = count_of(quoted.quote)
        if count is not None:
            shown = Count(instances=count, provenance=Provenance.INFERRED)
            quoted = replace(quoted, quote=replace(quoted.quote, spot_available=shown))
        quotes.append(quoted)
    return replace(opened, quotes=tuple(quotes))
