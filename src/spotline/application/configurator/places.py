"""The places of a market: where a draft may run, and how much has been seen there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from spotline.application.admission import Refused, all_refused
from spotline.application.configurator.futures import most_seen
from spotline.application.market_view import MarketView
from spotline.domain.configuration.gpus import GpuFacts, UnknownGpu, gpu_facts
from spotline.domain.jobs.draft import JobDraft
from spotline.domain.jobs.job import Throughput
from spotline.domain.market.offering import Offering, Quote

# More instances than these are never chosen for an owner, only taken from him.
MOST_CHOSEN_INSTANCES = 64


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Place:
    """Where a job can run at one throughput: `key` is the instance type, or what is stated for it.

    `most_instances` is the largest count that one of its offerings is known to have had, and
    `MOST_CHOSEN_INSTANCES` where its on-demand stock is unknown, which is taken as plenty, as in
    all planning. `most_spot` is the largest spot count seen.
    """

    key: str
    instance_type: str
    gpu: GpuFacts
    gpus_per_instance: int
    offerings: tuple[Offering, ...]
    most_instances: int
    most_spot: int
    stated: Throughput | None = None


# --- places -----------------------------------------------------------------------------------


def places_of(draft: JobDraft, market: MarketView) -> tuple[Place, ...] | Refused:
    """The places of the market that the draft leaves open, by key, or why there is none."""
    refused = _unknown_names(draft, market)
    if refused is not None:
        return refused
    wanted = ""
    if draft.gpu_model:
        try:
            wanted = gpu_facts(draft.gpu_model).name
        except UnknownGpu as error:
            return Refused(field="draft.gpu_model", message=str(error))
    quoted = {slot_quote.quote.offering_id for slot_quote in market.quotes}
    grouped: dict[str, list[tuple[Offering, Throughput | None]]] = {}
    for offering in sorted(market.offerings, key=lambda one: one.offering_id):
        named = {offering.offering_id, offering.instance_type}
        # Of what a job is to run is decided on what can be had at any time.
        reserved = offering.reservation is not None
        if (reserved or offering.offering_id not in quoted) or (
            draft.offerings and not named & {*draft.offerings}
        ):
            continue
        stated = _stated_for(draft, offering)
        if _facts_of(offering) is not None and wanted in ("", _gpu_name(offering)):
            key = offering.instance_type
            if stated is not None and stated.offering == offering.offering_id:
                key = offering.offering_id
            grouped.setdefault(key, []).append((offering, stated))
    if not grouped:
        return _nowhere(draft, market, wanted)
    most_spot = _most_spot(market)
    most = {
        one.quote.offering_id: _most_instances(one.quote, most_spot.get(one.quote.offering_id, 0))
        for one in market.quotes
    }
    return tuple(_place(key, grouped[key], most, most_spot) for key in sorted(grouped))


def _place(
    key: str,
    members: Sequence[tuple[Offering, Throughput | None]],
    most: Mapping[str, int],
    most_spot: Mapping[str, int],
) -> Place:
    first, stated = members[0]
    offerings = tuple(offering for offering, _ in members)
    return Place(
        key=key,
        instance_type=first.instance_type,
        gpu=gpu_facts(first.gpu_model),
        gpus_per_instance=first.gpus_per_instance,
        offerings=offerings,
        most_instances=max(most[offering.offering_id] for offering in offerings),
        most_spot=max(1, *(most_spot[offering.offering_id] for offering in offerings)),
        stated=stated,
    )


def _facts_of(offering: Offering) -> GpuFacts | None:
    try:
        return gpu_facts(offering.gpu_model)
    except UnknownGpu:
        return None


def _gpu_name(offering: Offering) -> str:
    facts = _facts_of(offering)
    return "" if facts is None else facts.name


def _stated_for(draft: JobDraft, offering: Offering) -> Throughput | None:
    for key in (offering.offering_id, offering.instance_type, "*"):
        for throughput in draft.throughputs:
            if throughput.offering == key:
                return throughput
    return None


def _unknown_names(draft: JobDraft, market: MarketView) -> Refused | None:
    known = {offering.offering_id for offering in market.offerings}
    known |= {offering.instance_type for offering in market.offerings}
    return all_refused(
        Refused(
            field=f"draft.offerings[{index}]",
            message=f"must be a known offering or instance type, was {name!r}; known are "
            f"{', '.join(sorted(known))}",
        )
        for index, name in enumerate(draft.offerings)
        if name not in known
    )


def _nowhere(draft: JobDraft, market: MarketView, wanted: str) -> Refused:
    if not market.quotes:
        return Refused(
            field="draft.offerings",
            message="cannot be chosen from yet: no slot of the market has opened",
        )
    there = sorted(
        {
            f"{offering.instance_type} ({offering.gpu_model or 'no GPU stated'})"
            for offering in market.offerings
        }
    )
    within = f" within {', '.join(draft.offerings)}" if draft.offerings else ""
    if wanted:
        return Refused(
            field="draft.gpu_model",
            message=f"must be on the market{within}, was {draft.gpu_model!r}; there are "
            f"{', '.join(there)}",
        )
    return Refused(
        field="draft.offerings",
        message=f"must leave an instance type with a known GPU and a quote{within}; there are "
        f"{', '.join(there)}",
    )


def _most_spot(market: MarketView) -> dict[str, int]:
    """The largest spot count seen of every offering; where none is known, all that is chosen."""
    seen = most_seen(market)
    return {
        offering.offering_id: min(
            MOST_CHOSEN_INSTANCES, seen.get(offering.offering_id, MOST_CHOSEN_INSTANCES)
        )
        for offering in market.offerings
    }


def _most_instances(quote: Quote, most_spot: int) -> int:
    stock = quote.on_demand_available
    return max(1, most_spot, stock.instances) if stock.known else MOST_CHOSEN_INSTANCES
