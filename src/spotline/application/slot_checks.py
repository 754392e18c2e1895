"""Slots that nobody can go on from, and slots that lack something: what consumers make of them."""

from __future__ import annotations

from dataclasses import replace

from spotline.application.unfit import Unfit
from spotline.domain.events.market import SlotOpened
from spotline.domain.units import NS_PER_S

# A market whose clock went on while nobody was there skips slots, each of which is billed and
# settled: two weeks of minutes, more than two years of hours.
MOST_SKIPPED_SLOTS = 20_000


def check_slot(opened: SlotOpened, last_slot: int, last_ns: int) -> None:
    """Refuse a slot that cannot be gone on from.

    Parameters
    ----------
    last_slot, last_ns
        The slot before and when it opened; -1 and 0 for none.

    Raises
    ------
    Unfit
        It lies too far ahead, or further than time has gone on.
    """
    skipped = opened.slot - last_slot - 1
    if last_slot >= 0 and skipped >= MOST_SKIPPED_SLOTS:
        raise Unfit("slot", f"<= {last_slot + MOST_SKIPPED_SLOTS}", opened.slot)
    if last_slot >= 0 and skipped > 0:
        least_ns = last_ns + skipped * opened.slot_s * NS_PER_S
        if opened.ts_event_ns < least_ns:
            expected = f">= {least_ns}, {skipped} slots after slot {last_slot}"
            raise Unfit("ts_event_ns", expected, opened.ts_event_ns)
    if opened.slot < 0:
        raise Unfit("slot", ">= 0", opened.slot)
    if opened.slot_s < 1:
        raise Unfit("slot_s", ">= 1", opened.slot_s)


def completed(opened: SlotOpened, before: SlotOpened | None) -> SlotOpened:
    """The slot with a quote of every offering that the one before it quoted.

    What nobody has said anew stays as it was, and is older by then. A slot that lacks nothing is
    given back itself.
    """
    if before is None:
        return opened
    quoted = {slot_quote.quote.offering_id for slot_quote in opened.quotes}
    missing = [known for known in before.quotes if known.quote.offering_id not in quoted]
    if not missing:
        return opened
    passed_s = max(0, opened.ts_event_ns - before.ts_event_ns) // NS_PER_S
    kept = [replace(known, age_s=known.age_s + passed_s) for known in missing]
    return replace(opened, quotes=(*opened.quotes, *kept))


def slot_of(opened: SlotOpened | None) -> tuple[int, int]:
    """A slot's number and when it opened, -1 and 0 for none."""
    return (-1, 0) if opened is None else (opened.slot, opened.ts_event_ns)
