"""A recorded or generated market: every offering's quotes on one slot grid."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from spotline.domain.market.offering import MOST_PRICE_MICRO_USD, Count, Offering, Provenance, Quote
from spotline.domain.units import NS_PER_S

IntArray = npt.NDArray[np.int64]

_PROVENANCES = (Provenance.OBSERVED, Provenance.INFERRED, Provenance.UNKNOWN)
OBSERVED, INFERRED, UNKNOWN = range(3)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Market:
    """Quotes of several offerings at the opening of consecutive slots.

    On demand, a reservation costs 0 and any other offering more.

    Arrays have shape (slots, offerings) and dtype int64. Prices are micro-USD per instance-hour,
    counts instances. `*_provenance` holds 0 observed, 1 inferred, 2 unknown. `quoted_ns` is when
    each quote was taken (never after its slot opens); gaps in a source are held at the last value.

    Raises
    ------
    ValueError
        Shapes differ, a price is not > 0 or above `MOST_PRICE_MICRO_USD`, a count is negative, or a quote lies after its slot.
    """

    offerings: tuple[Offering, ...]
    slot_s: int
    start_ns: int
    spot_price_micro_usd: IntArray
    on_demand_price_micro_usd: IntArray
    spot_available: IntArray
    spot_provenance: IntArray
    on_demand_available: IntArray
    on_demand_provenance: IntArray
    quoted_ns: IntArray
    source: str

    def __post_init__(self) -> None:
        if self.slot_s < 1:
            raise ValueError(f"slot_s must be >= 1, was {self.slot_s}")
        if not self.offerings:
            raise ValueError("a market needs at least one offering")
        ids = [offering.offering_id for offering in self.offerings]
        if len(set(ids)) != len(ids):
            raise ValueError(f"offering ids must be unique, were {ids}")
        shape = (self.slots, len(self.offerings))
        if self.slots < 1:
            raise ValueError("a market needs at least one slot")
        for name in _ARRAYS:
            array = getattr(self, name)
            if array.shape != shape:
                raise ValueError(f"{name} must have shape {shape}, was {array.shape}")
            if array.dtype != np.int64:
                raise ValueError(f"{name} must be int64, was {array.dtype}")
            least, most = _RANGES.get(name, (None, None))
            if least is not None and int(array.min()) < least:
                raise ValueError(f"{name} must be >= {least} everywhere, was {int(array.min())}")
            if most is not None and int(array.max()) > most:
                raise ValueError(f"{name} must be <= {most} everywhere, was {int(array.max())}")
            array.setflags(write=False)
        paid = np.array([offering.reservation is None for offering in self.offerings])
        # What a log's slots show of a reservation is what its disks cost.
        disks = [o.disk_micro_usd_per_hour if o.reservation else 0 for o in self.offerings]
        costs = self.on_demand_price_micro_usd > np.array(disks, dtype=np.int64)
        wrong = np.where(paid, ~costs.all(axis=0), costs.any(axis=0))
        if wrong.any():
            column = int(np.argmax(wrong))
            expected = "> 0" if paid[column] else "0, it is a reservation,"
            raise ValueError(
                f"on_demand_price_micro_usd of {ids[column]} must be {expected} everywhere"
            )
        if (self.quoted_ns > self.slot_starts_ns()[:, None]).any():
            raise ValueError("quoted_ns must not lie after the opening of its slot")

    @property
    def slots(self) -> int:
        """Number of slots."""
        return int(self.spot_price_micro_usd.shape[0])

    def slot_starts_ns(self) -> IntArray:
        """Opening of every slot, nanoseconds since the epoch, shape (slots,)."""
        return self.start_ns + np.arange(self.slots, dtype=np.int64) * (self.slot_s * NS_PER_S)

    def quote(self, slot: int, column: int) -> Quote:
        """The quote of the offering in `column` when `slot` opens."""
        return Quote(
            offering_id=self.offerings[column].offering_id,
            ts_event_ns=int(self.quoted_ns[slot, column]),
            spot_price_micro_usd=int(self.spot_price_micro_usd[slot, column]),
            on_demand_price_micro_usd=int(self.on_demand_price_micro_usd[slot, column]),
            spot_available=Count(
                instances=int(self.spot_available[slot, column]),
                provenance=_PROVENANCES[int(self.spot_provenance[slot, column])],
            ),
            on_demand_available=Count(
                instances=int(self.on_demand_available[slot, column]),
                provenance=_PROVENANCES[int(self.on_demand_provenance[slot, column])],
            ),
        )

    def quotes(self, slot: int) -> tuple[Quote, ...]:
        """All quotes when `slot` opens, in the order of `offerings`."""
        return tuple(self.quote(slot, column) for column in range(len(self.offerings)))

    def between(self, first: int, end: int) -> Market:
        """The slots `first` <= k < `end` as a market of their own."""
        if not 0 <= first < end <= self.slots:
            raise ValueError(
                f"slots must satisfy 0 <= first < end <= {self.slots}, were {first}, {end}"
            )
        cut = {name: getattr(self, name)[first:end].copy() for name in _ARRAYS}
        start_ns = self.start_ns + first * self.slot_s * NS_PER_S
        return replace(self, start_ns=start_ns, **cut)

    def beginning_at(self, start_ns: int) -> Market:
        """The same market, shifted in time; reservations end when they did, so add them after."""
        shift_ns = start_ns - self.start_ns
        return replace(self, start_ns=start_ns, quoted_ns=self.quoted_ns + shift_ns)

    def resampled(self, slot_s: int) -> Market:
        """The same market on a coarser grid: a slot takes the quote at its opening.

        Of a reservation, it has what is there all through the slot.

        Raises
        ------
        ValueError
            `slot_s` is not a multiple of the present slot length.
        """
        if slot_s % self.slot_s or slot_s < self.slot_s:
            raise ValueError(f"slot_s must be a multiple of {self.slot_s}, was {slot_s}")
        step = slot_s // self.slot_s
        cut = {name: getattr(self, name)[::step].copy() for name in _ARRAYS}
        opening = np.arange(0, self.slots, step)
        for column, offering in enumerate(self.offerings):
            if offering.reservation is not None:
                # A job that relies on a reservation needs it for the whole slot.
                counts = self.on_demand_available[:, column]
                cut["on_demand_available"][:, column] = np.minimum.reduceat(counts, opening)
        return replace(self, slot_s=slot_s, **cut)


_ARRAYS = (
    "spot_price_micro_usd",
    "on_demand_price_micro_usd",
    "spot_available",
    "spot_provenance",
    "on_demand_available",
    "on_demand_provenance",
    "quoted_ns",
)

_RANGES: dict[str, tuple[int, int | None]] = {
    "spot_price_micro_usd": (1, MOST_PRICE_MICRO_USD),
    "on_demand_price_micro_usd": (0, MOST_PRICE_MICRO_USD),
    "spot_available": (0, None),
    "on_demand_available": (0, None),
    "spot_provenance": (OBSERVED, UNKNOWN),
    "on_demand_provenance": (OBSERVED, UNKNOWN),
}
