"""What is said when a slot opens: the quotes that are believed, the doubts, and what they freeze."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass

from spotline.domain.events.event import Event
from spotline.domain.events.freeze import BuyingFrozen, BuyingUnfrozen
from spotline.domain.events.limits import QuoteQuarantined
from spotline.domain.events.market import QuoteObserved
from spotline.domain.limits.freezes import Freeze, FreezeReason, FreezeScope
from spotline.domain.limits.market_doubts import OfferingJudged
from spotline.domain.limits.price_sanity import PriceField
from spotline.domain.market.offering import CapacityType, Quote

NO_SLOT = -1
"""The slot of what is found between slots, by who follows a feed."""

_REASONS = {FreezeReason.PRICE: "price", FreezeReason.STALE_QUOTES: "stale"}


def freeze_id(reason: FreezeReason, offering_id: str) -> str:
    """The id of the freeze that a doubt about an offering begins."""
    return f"{_REASONS[reason]}:{offering_id}"


def is_own(named: str) -> bool:
    """Whether market_ingest begins and ends the freeze of this id."""
    return named.partition(":")[0] in _REASONS.values()


def stale_offerings(begun: Iterable[str]) -> tuple[str, ...]:
    """The offerings of which nothing was said for too long, by the ids of the freezes begun."""
    prefix = freeze_id(FreezeReason.STALE_QUOTES, "")
    return tuple(sorted(named.removeprefix(prefix) for named in begun if named.startswith(prefix)))


def doubted_by_reason(begun: Iterable[str]) -> dict[FreezeReason, int]:
    """How many offerings are doubted for each reason, by the ids of the freezes begun."""
    prefixes = [named.partition(":")[0] for named in begun]
    return {reason: prefixes.count(prefix) for reason, prefix in _REASONS.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotMoment:
    """When something is judged: the slot that opens (`NO_SLOT`: none), ns since the epoch."""

    slot: int
    ts_event_ns: int


def quote_events(each: OfferingJudged, before: Quote | None, was_doubted: bool) -> Iterator[Event]:
    """What is new in a quote: the quote itself, or each price of it that is not believed.

    Parameters
    ----------
    before
        What was said of the offering in the slot before.
    was_doubted
        Whether a price of it was doubted then.
    """
    said, doubts = each.judged.said, each.judged.doubts
    new = said != before
    if not doubts:
        if new:
            yield QuoteObserved(quote=said)
        return
    for doubt in doubts:
        if new or not was_doubted:
            yield QuoteQuarantined(
                quote=said,
                field=doubt.field.value,
                lowest_micro_usd=doubt.lowest_micro_usd,
                highest_micro_usd=doubt.highest_micro_usd,
                detail=doubt.detail,
            )


def freeze_events(
    found: Sequence[OfferingJudged], begun: Container[str], moment: SlotMoment
) -> Iterator[BuyingFrozen | BuyingUnfrozen]:
    """Begin a freeze where a doubt is new, and end it where the doubt is gone.

    `begun` are the ids of those that were begun and not ended, in force or lifted by a person.
    """
    for each in found:
        for reason, detail in _troubles(each):
            named = freeze_id(reason, each.offering.offering_id)
            if detail and named not in begun:
                yield frozen(each.offering.offering_id, reason, detail, moment)
            elif not detail and named in begun:
                yield BuyingUnfrozen(
                    freeze_id=named,
                    detail=_OVER[reason],
                    slot=moment.slot,
                    ts_event_ns=moment.ts_event_ns,
                )


_OVER = {
    FreezeReason.PRICE: "its price is believed again",
    FreezeReason.STALE_QUOTES: "there is a newer quote",
}


def _troubles(each: OfferingJudged) -> Iterator[tuple[FreezeReason, str]]:
    # As long as what was believed last is not too old, it is what spot is bought by.
    doubts = each.judged.doubts if each.outdated else ()
    # On-demand first: a wrong list price makes spot look wrong, too.
    first = min(doubts, key=lambda doubt: doubt.field is PriceField.SPOT, default=None)
    yield FreezeReason.PRICE, "" if first is None else first.detail
    yield FreezeReason.STALE_QUOTES, _silence(each) if each.stale_after_s else ""


def _silence(each: OfferingJudged) -> str:
    return (
        f"nothing was said of {each.offering.offering_id} for more than {each.stale_after_s} s, "
        "so nobody knows what it costs"
    )


def frozen(offering_id: str, reason: FreezeReason, detail: str, moment: SlotMoment) -> BuyingFrozen:
    """No new spot of an offering: it ends by itself when the reason is gone."""
    return BuyingFrozen(
        freeze=Freeze(
            freeze_id=freeze_id(reason, offering_id),
            scope=FreezeScope.OFFERING,
            key=offering_id,
            reason=reason,
            detail=detail,
            capacity_type=CapacityType.SPOT,
            slot=moment.slot,
            ts_event_ns=moment.ts_event_ns,
        )
    )
