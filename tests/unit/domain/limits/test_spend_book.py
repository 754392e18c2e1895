"""What was spent: as billed where that is settled, never less than was reckoned before."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from spotline.domain.jobs.lot import Lot
from spotline.domain.limits.spend_book import SpendBook, by_capacity_type
from spotline.domain.market.offering import CapacityType
from tests.fakes.allocator import EAST, slot_opened

SPENDERS = st.tuples(st.sampled_from("ab"), st.sampled_from(CapacityType))
ENTRIES = st.lists(
    st.tuples(st.booleans(), st.integers(0, 9), SPENDERS, st.integers(0, 10**9)), max_size=40
)
QUOTES = {sq.quote.offering_id: sq.quote for sq in slot_opened(0).quotes}


def book_of(entries) -> SpendBook:
    book = SpendBook()
    for is_bill, period, spender, micro_usd in entries:
        (book.bill if is_bill else book.reckon)(period, spender, micro_usd)
    return book


def total(entries, *, is_bill: bool, first: int, before: int = 10) -> int:
    return sum(
        micro_usd
        for bill, period, _, micro_usd in entries
        if bill is is_bill and first <= period < before
    )


@given(ENTRIES, st.integers(0, 10))
def test_it_counts_no_less_than_the_bills_and_than_the_reckoning(entries, first):
    book = book_of(entries)

    spent = sum(book.spent_since(first).values())

    billed = total(entries, is_bill=True, first=first)
    assert spent == billed + sum(book.unsettled_since(first).values())
    assert spent >= max(billed, total(entries, is_bill=False, first=first))


@given(ENTRIES, st.integers(0, 10), st.integers(0, 10))
def test_of_settled_periods_the_bills_alone_count(entries, before, first):
    # Each period has a bill: of one without any nothing is settled.
    entries = [*entries, *((True, period, ("a", CapacityType.SPOT), 1) for period in range(10))]
    book = book_of(entries)

    book.spent_since(first)
    book.settle(before)

    late = [entry for entry in entries if entry[1] >= before]
    settled = total(entries, is_bill=True, first=first, before=before)
    assert sum(book.spent_since(first).values()) == settled + sum(
        book_of(late).spent_since(first).values()
    )


def test_what_nobody_has_billed_stays_as_it_was_reckoned():
    book = SpendBook()
    book.reckon(3, ("a", CapacityType.SPOT), 7)

    book.settle(9)

    assert sum(book.spent_since(0).values()) == sum(book.unsettled_since(0).values()) == 7


@given(ENTRIES, st.integers(0, 10))
def test_what_is_forgotten_is_gone(entries, first):
    book = book_of(entries)
    since = dict(book.spent_since(first))

    book.forget(first)

    assert book.spent_since(0) == since
    assert all(period >= first for period in (*book.billed, *book.reckoned))


@given(st.integers(0, 10**12), st.integers(0, 8), st.integers(0, 8))
def test_a_cost_is_split_in_whole(micro_usd, spot, on_demand):
    lots = (Lot(offering_id=EAST, spot=spot, on_demand=on_demand),) if spot + on_demand else ()

    parts = dict(by_capacity_type(micro_usd, lots, QUOTES))

    assert sum(parts.values()) == micro_usd
    assert min(parts.values()) >= 0
    if not spot:
        assert parts[CapacityType.SPOT] == 0
    elif not on_demand:
        assert parts[CapacityType.ON_DEMAND] == 0
