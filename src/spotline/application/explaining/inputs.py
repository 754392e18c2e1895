"""What a decision was made from: quotes, forecast, laws, weights, progress, with ages and ids."""

from __future__ import annotations

from collections.abc import Iterator

from spotline.application.explaining.facts import DecidedTurn, JobFacts, counted, lot_text, usd_text
from spotline.application.explaining.messages import DecisionInput
from spotline.application.explaining.trail import LogMark, Trail, TrailEvent
from spotline.domain.events.allocation import AllocationAnswered
from spotline.domain.events.capacity import CapacityLost, InterruptionNoticed, LaunchRefused
from spotline.domain.events.forecast import ForecastIssued
from spotline.domain.events.market import SlotOpened
from spotline.domain.market.offering import Count
from spotline.domain.policies.answer import DecisionReason
from spotline.domain.units import NS_PER_S, PPM

_PPB = 1_000_000_000
_MOST_WEIGHTS = 3


def inputs_of(trail: Trail, turn: DecidedTurn) -> tuple[DecisionInput, ...]:
    """List what a decision was made from."""
    job = turn.jobs.get(trail.decision.job_id)
    found = [*_quotes(trail, turn, job), *_forecast(trail, turn, job)]
    if job is not None:
        found += [*_tables(trail, turn, job), *_weights(trail, turn, job)]
        found += [_progress(trail, turn, job), _capacity(trail, turn, job)]
    found += _happenings(trail, turn)
    return tuple(found)


def _input(
    kind: str, text: str, turn: DecidedTurn, mark: LogMark | None = None, name: str = ""
) -> DecisionInput:
    then_ns = 0 if mark is None else mark.ts_event_ns
    age_s = max(0, turn.market.now_ns - then_ns) // NS_PER_S if then_ns else 0
    seq = 0 if mark is None else mark.seq
    return DecisionInput(kind=kind, id=name, seq=seq, age_s=age_s, text=text)


def _first(trail: Trail, kind: type[object]) -> TrailEvent | None:
    """The slot's own event of a kind before the decision."""
    slot = trail.decision.slot
    return next(
        (
            found
            for found in trail.before()
            if isinstance(found.event, kind) and getattr(found.event, "slot", slot) == slot
        ),
        None,
    )


def _quotes(trail: Trail, turn: DecidedTurn, job: JobFacts | None) -> Iterator[DecisionInput]:
    """The quotes of the offerings the job could be on, its own first."""
    slot = _first(trail, SlotOpened)
    places = [] if job is None else [job.offering_id, *(place for place, _, _ in job.tables)]
    places += [lot.offering_id for lot in trail.decision.lots]
    ages = {quoted.quote.offering_id: quoted for quoted in turn.market.opened.quotes}
    for offering_id in dict.fromkeys(places):
        quoted = ages.get(offering_id)
        if quoted is None:
            continue
        quote = quoted.quote
        yield DecisionInput(
            kind="quote",
            id=offering_id,
            seq=0 if slot is None else slot.mark.seq,
            age_s=quoted.age_s + turn.market.offset_s,
            text=(
                f"spot {usd_text(quote.spot_price_micro_usd)}/h"
                f"{_listed(quoted.listed_spot_price_micro_usd)}, {_count(quote.spot_available)}; "
                f"on-demand {usd_text(quote.on_demand_price_micro_usd)}/h"
                f"{_listed(quoted.listed_on_demand_price_micro_usd)}, "
                f"{_count(quote.on_demand_available)}"
            ),
        )


def _listed(price_micro_usd: int) -> str:
    """What is listed, where the price is this buyer's own."""
    return f" (listed at {usd_text(price_micro_usd)})" if price_micro_usd else ""


def _count(count: Count) -> str:
    return f"{count.instances} {count.provenance.value}" if count.known else "count unknown"


def _forecast(trail: Trail, turn: DecidedTurn, job: JobFacts | None) -> Iterator[DecisionInput]:
    issued = _first(trail, ForecastIssued)
    if issued is None or not isinstance(issued.event, ForecastIssued):
        yield _input("forecast", "none for this slot", turn)
        return
    reason = turn.market.forecast_reason
    home = "" if job is None else job.offering_id
    said = []
    for forecast in issued.event.forecasts:
        if forecast.offering_id == home and forecast.steps:
            step = forecast.steps[0]
            mean = sum(c.instances * c.probability_ppm for c in step.counts) / PPM
            said.append(
                f"next slot {usd_text(step.spot_price_micro_usd)}/h and {mean:.1f} spot expected"
            )
    said += [
        f"error {score.count_crps_milli / 1000:.2f} instances, persistence's "
        f"{score.persistence_crps_milli / 1000:.2f}"
        for score in issued.event.scores
        if score.offering_id == home and score.step == 1
    ]
    share = turn.market.shares_ppm.get(home, PPM)
    if reason is DecisionReason.POLICY:
        said.append(f"believed to {share * 100 / PPM:.0f} %")
    else:
        said.append(f"not used: {turn.market.fault or reason.value.replace('_', ' ')}")
    mark = LogMark(
        seq=issued.mark.seq,
        event_id=issued.mark.event_id,
        ts_event_ns=issued.mark.ts_event_ns or turn.market.opened.ts_event_ns,
    )
    yield _input("forecast", "; ".join(said), turn, mark, issued.event.model_id)


def _tables(trail: Trail, turn: DecidedTurn, job: JobFacts) -> Iterator[DecisionInput]:
    if not job.tables:
        yield _input("table", "none: no law of its offering is known yet", turn)
    for offering_id, table_id, law_id in job.tables:
        mark = trail.laws.get(law_id)
        yield _input("law", f"how {offering_id} goes from slot to slot", turn, mark, law_id)
        yield _input("table", f"value table on {offering_id}", turn, trail.table, table_id)


def _weights(trail: Trail, turn: DecidedTurn, job: JobFacts) -> Iterator[DecisionInput]:
    drawn = [
        f"{policy_id} {weight * 100 / _PPB:.1f} %"
        for policy_id, weight in job.weights_ppb
        if weight
    ]
    own = dict(job.weights_ppb).get(job.policy_id)
    text = f"{job.policy_id} was drawn at admission"
    if own is not None:
        text += f" with weight {own * 100 / _PPB:.1f} %"
        best = ", ".join(drawn[:_MOST_WEIGHTS])
        text += f"; the greatest were {best}, of {len(drawn)}"
    yield _input("weights", text, turn, trail.admitted, job.policy_id)


def _progress(trail: Trail, turn: DecidedTurn, job: JobFacts) -> DecisionInput:
    text = f"{job.done_ppm / 10_000:.1f} % done"
    mark = None
    if job.reported:
        marks = [mark for mark in (trail.progress, trail.checkpoint) if mark is not None]
        mark = max(marks, key=lambda found: found.seq, default=None)
        text += ", as its program says" + (f" (start {job.generation})" if job.generation else "")
    else:
        text += ", by the formula from what was held"
    if job.saved_ppm is not None:
        text += f"; {job.saved_ppm / 10_000:.1f} % in its newest checkpoint"
    return _input("progress", text, turn, mark)


def _capacity(trail: Trail, turn: DecidedTurn, job: JobFacts) -> DecisionInput:
    return _input("capacity", f"held {lot_text(job.held_lots)}", turn, trail.capacity)


def _happenings(trail: Trail, turn: DecidedTurn) -> Iterator[DecisionInput]:
    """What the cloud said of the job in this slot, and what the allocator answered."""
    decision = trail.decision
    for found in trail.before():
        event = found.event
        if isinstance(event, AllocationAnswered):
            if found.mark.event_id == trail.cause_id:
                text = f"request {event.request_digest[:12]}: {event.outcome.value}"
                yield _input("answer", text, turn, found.mark, event.request_digest)
        elif getattr(event, "job_id", "") != decision.job_id:
            continue
        elif isinstance(event, InterruptionNoticed):
            text = f"{counted(len(event.instance_ids), 'instance')} to go {event.lead_s} s later"
            yield _input("notice", text, turn, found.mark, event.offering_id)
        elif isinstance(event, CapacityLost) and event.slot == decision.slot:
            text = f"{counted(len(event.instance_ids), 'instance')} lost"
            yield _input("loss", text, turn, found.mark, event.offering_id)
        elif isinstance(event, LaunchRefused) and event.slot == decision.slot:
            text = f"{event.granted} of {event.requested} granted: {event.detail}"
            yield _input("refusal", text, turn, found.mark, event.offering_id)
