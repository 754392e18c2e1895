"""Where a log lost entries, the market goes on behind the last slot that anybody knows."""

from spotline.application.market_ingest.handler import IngestHandler, IngestOptions
from spotline.domain.events.agreement import IncarnationBegun
from spotline.domain.events.market import MarketOpened, SlotOpened
from spotline.domain.market.generate import generate

MARKET = generate("mixed", seed=11, slots=24, slot_s=1800, start_ns=0)


def begun(last_slot):
    return IncarnationBegun(
        installation_id="0" * 32,
        incarnation=2,
        last_seq_before=9,
        detail="wiped",
        last_slot_before=last_slot,
    )


def due_after(*events):
    handler = IngestHandler(MARKET, IngestOptions())
    state = handler.initial()
    for event in events:
        handler.evolve(state, event)
    return [event for timer in handler.due(state) for event in timer.events]


def test_a_market_that_begins_anew_opens_the_slot_behind_the_ledgers_last():
    (opening,) = due_after(begun(6))
    assert isinstance(opening, MarketOpened)

    *_, slot = due_after(begun(6), opening)

    assert isinstance(slot, SlotOpened)
    assert slot.slot == 7


def test_a_slot_that_is_known_already_is_no_reason_to_go_back():
    (opening,) = due_after()
    *_, first = due_after(opening)

    assert due_after(opening, first, begun(-1)) == [], "slot 0 is not settled"


def test_a_slot_whose_answers_may_be_lost_is_not_waited_for():
    (opening,) = due_after()
    *_, first = due_after(opening)

    *_, second = due_after(opening, first, begun(0))

    assert second.slot == 1


def test_a_market_whose_last_slot_was_open_is_over():
    (opening,) = due_after()

    assert due_after(opening, begun(MARKET.slots - 1)) == []
