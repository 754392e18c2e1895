"""A log belongs to one market: before anything is added to it, the market given is compared."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import cast

from spotline.adapters.nats.stream import NatsEventStream
from spotline.application.incarnations import FIRST
from spotline.application.market_ingest.continuing import (
    MarketIdentity,
    MarketOfLog,
    differences,
)
from spotline.bootstrap.parts import BusAddress, open_stream
from spotline.contracts.batch import unpacked
from spotline.contracts.build import event_of
from spotline.contracts.envelope import StoredEntry
from spotline.contracts.errors import ConfigError, ContractError
from spotline.contracts.subjects import subjects_with
from spotline.domain.events.event import Event
from spotline.domain.events.market import MarketOpened, SlotOpened
from spotline.domain.events.placement import LinkObserved, RegionObserved
from spotline.domain.market.grid import AnyMarket
from spotline.domain.market.market import Market
from spotline.domain.market.reservations import begun_at
from spotline.domain.modes import Mode
from spotline.domain.placement.geography import Geography
from spotline.domain.units import NS_PER_S, S_PER_HOUR, utc_iso

_SHOWN = (MarketOpened, SlotOpened, RegionObserved, LinkObserved)
# Among so many entries at the end there is nearly always a slot.
_LAST_ENTRIES = 2_000
# A market by the wall clock is opened when it begins, but for the start of its services.
_MOST_APART_NS = 24 * S_PER_HOUR * NS_PER_S


async def market_of_wall_clock(
    bus: BusAddress, market: AnyMarket, *, before: MarketIdentity | None = None
) -> AnyMarket:
    """The market as the log's wall-clock market goes on: it begins when that began.

    A log that has none yet begins with it as it is, or where it was lost, on the grid that the
    store remembers of `before`.

    Raises
    ------
    ConfigError
        The log's market did not begin when it was opened, so it does not run by the wall clock.
    """
    async with open_stream(bus, name="same_market") as (_, stream):
        begun = await _beginning_of(stream)
        is_first = stream.continuity.incarnation == FIRST
    if begun is None:
        return market if before is None else begun_at(market, before.first_slot_ns)
    opened, stored_ns = begun
    start_ns = opened.first_slot_start_ns
    # A log that was lost opens its market anew, on the grid of before.
    expected = is_first or before is None or before.first_slot_ns != start_ns
    apart = abs(stored_ns - start_ns) > _MOST_APART_NS
    if isinstance(market, Market) and expected and apart:
        raise ConfigError(
            f"market: expected one that began by the wall clock, as it is to go on by it, found "
            f"{utc_iso(start_ns)} as its beginning, opened {utc_iso(stored_ns)}: leave out "
            "--wall-clock, or give another store"
        )
    return begun_at(market, start_ns)


async def _beginning_of(stream: NatsEventStream) -> tuple[MarketOpened, int] | None:
    """How the log's market opened, and when that was stored; None where it has not opened."""
    last_seq = await stream.last_seq()
    reading = stream.read(subjects_with((MarketOpened,)), last_seq=last_seq)
    async with aclosing(cast("AsyncGenerator[StoredEntry, None]", reading)) as entries:
        async for entry in entries:
            for event in _said(entry):
                if isinstance(event, MarketOpened):
                    return event, entry.stored_ns
    return None


def _said(entry: StoredEntry) -> list[Event]:
    """What an entry says; nothing where nobody can read it: that is for others to report."""
    try:
        return [event_of(event) for event in unpacked(entry)]
    except ContractError:
        return []


async def check_same_market(
    bus: BusAddress, market: AnyMarket, geography: Geography | None, *, mode: Mode = Mode.LIVE
) -> None:
    """Compare market, geography and mode with those that the log began with, if it has begun.

    Raises
    ------
    ConfigError
        They are others; says in what.
    """
    async with open_stream(bus, name="same_market") as (_, stream):
        log = await _market_of(stream)
    if log is None:
        return
    begun = log.opened.runs_in
    if begun is not mode:
        raise ConfigError(
            f"mode: expected {begun.value}, in which the store began, found {mode.value}: what is "
            "filled on paper stays apart from what is paid; give another --store"
        )
    problems = list(differences(log, market, geography))
    if problems:
        said = [f"market: {problem}" for problem in problems]
        said[-1] += (
            f" (the log began with {log.opened.source!r}, given is {market.source!r}: give the "
            "market and geography that it began with, or another store)"
        )
        raise ConfigError("\n".join(said))


async def _market_of(stream: NatsEventStream) -> MarketOfLog | None:
    """How the log's market opened, and its first and last slot; None where it has not opened."""
    last_seq = await stream.last_seq()
    opened: MarketOpened | None = None
    first: SlotOpened | None = None
    seen: list[RegionObserved | LinkObserved] = []
    async with aclosing(_events(stream, last_seq=last_seq)) as events:
        async for event in events:
            match event:
                case MarketOpened():
                    opened = opened or event
                case RegionObserved() | LinkObserved():
                    seen.append(event)
                case SlotOpened():
                    first = event
                    break
    if opened is None:
        return None
    if first is None:
        return MarketOfLog(opened=opened, slots=())
    last = await _last_slot(stream, last_seq) or first
    slots = (first,) if last.slot == first.slot else (first, last)
    return MarketOfLog(opened=opened, slots=slots, seen=seen)


async def _last_slot(stream: NatsEventStream, last_seq: int) -> SlotOpened | None:
    found: SlotOpened | None = None
    for first_seq in dict.fromkeys((max(1, last_seq - _LAST_ENTRIES), 1)):
        async for event in _events(stream, first_seq=first_seq, last_seq=last_seq):
            if isinstance(event, SlotOpened) and (found is None or event.slot > found.slot):
                found = event
        if found is not None:
            break
    return found


async def _events(
    stream: NatsEventStream, *, first_seq: int = 1, last_seq: int
) -> AsyncGenerator[Event, None]:
    """What the log has of the market; entries that nobody can read are for others to report."""
    subjects = subjects_with(_SHOWN)
    reading = stream.read(subjects, first_seq=first_seq, last_seq=last_seq)
    async with aclosing(cast("AsyncGenerator[StoredEntry, None]", reading)) as entries:
        async for entry in entries:
            for event in _said(entry):
                if isinstance(event, _SHOWN):
                    yield event
