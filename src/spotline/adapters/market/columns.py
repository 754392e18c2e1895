"""The long form of a market (one row per slot and offering), checked and turned into arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from spotline.adapters.market.parse import DEAREST_USD_PER_HOUR, MOST_INSTANCES, shown
from spotline.adapters.market.parse import names as listed
from spotline.contracts.errors import ContractError
from spotline.domain.market.market import INFERRED, IntArray, Market
from spotline.domain.market.offering import Offering, Provenance
from spotline.domain.units import MICRO_USD_PER_USD, NS_PER_S, utc_iso

# What a market may have in all: a file of a few rows far apart may not fill the memory.
MOST_CELLS = 10_000_000

# Position = the code that `Market` stores.
PROVENANCE_NAMES = tuple(
    p.value for p in (Provenance.OBSERVED, Provenance.INFERRED, Provenance.UNKNOWN)
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LongColumns:
    """Rows of a market in long form; all arrays have shape (rows,).

    Times are nanoseconds since the epoch, prices micro-USD per instance-hour, counts instances.
    """

    slot_start_ns: IntArray
    offering_id: npt.NDArray[np.object_]
    spot_price_micro_usd: IntArray
    on_demand_price_micro_usd: IntArray
    spot_available: IntArray
    spot_available_provenance: npt.NDArray[np.object_]
    on_demand_available: IntArray
    on_demand_available_provenance: npt.NDArray[np.object_]
    quoted_ns: IntArray


def market_from_columns(
    columns: LongColumns,
    *,
    offerings: Sequence[Offering],
    slot_s: int | None,
    source: str,
    locate: Callable[[int], str],
    price_names: tuple[str, str],
) -> Market:
    """Check every row and build the market.

    Parameters
    ----------
    slot_s
        Slot length in seconds; None takes it from the first two slots.
    locate
        Names a row (counted from 0) in messages, such as ``m.parquet, row 17``.
    price_names
        What the file calls its spot and on-demand prices.

    Raises
    ------
    ContractError
        A price, count, provenance, offering or time breaks the format; the first such row is named.

    Notes
    -----
    A gap is carried forward: what nobody has said anew stands, and `quoted_ns` tells its age.
    """
    rows = len(columns.slot_start_ns)
    if rows == 0:
        raise ContractError(locate(0), "expected at least one row, found none")
    _check_prices(columns, offerings, locate, price_names)
    for name in ("spot_available", "on_demand_available"):
        counts = getattr(columns, name)
        _refuse(counts < 0, locate, name, "expected a count >= 0", counts)
        most = f"expected a count <= {MOST_INSTANCES:,}"
        _refuse(counts > MOST_INSTANCES, locate, name, most, counts)

    position = {offering.offering_id: i for i, offering in enumerate(offerings)}
    column = _codes(columns.offering_id, position, locate, "offering_id")
    kinds = {name: code for code, name in enumerate(PROVENANCE_NAMES)}
    spot_kind = _codes(
        columns.spot_available_provenance, kinds, locate, "spot_available_provenance"
    )
    on_demand_kind = _codes(
        columns.on_demand_available_provenance, kinds, locate, "on_demand_available_provenance"
    )
    start_ns, slot, slot_s = _slot_numbers(columns.slot_start_ns, slot_s, len(offerings), locate)
    order, absent = _order(slot, column, offerings, locate)

    # Row numbers in grid order: column by column, each offering's quotes in the order of slots.
    quoted = columns.quoted_ns[order]
    back = np.zeros(quoted.shape, dtype=np.bool_)
    back[1:] = quoted[1:] < quoted[:-1]
    if back.any():
        k, c = np.argwhere(back)[0]
        raise ContractError(
            f"{locate(int(order[k, c]))}, field quoted_at",
            f"expected a time >= {utc_iso(int(quoted[k - 1, c]))}, the quote before of "
            f"{offerings[c].offering_id}, found {utc_iso(int(quoted[k, c]))}: "
            "a quote must not go back in time",
        )
    late = columns.quoted_ns > columns.slot_start_ns
    if late.any():
        row = int(np.argmax(late))
        raise ContractError(
            f"{locate(row)}, field quoted_at",
            f"expected a time <= slot_start {utc_iso(int(columns.slot_start_ns[row]))}, "
            f"found {utc_iso(int(columns.quoted_ns[row]))}",
        )
    opens_ns = start_ns + np.arange(len(order), dtype=np.int64) * (slot_s * NS_PER_S)
    return Market(
        offerings=tuple(offerings),
        slot_s=slot_s,
        start_ns=start_ns,
        spot_price_micro_usd=columns.spot_price_micro_usd[order],
        on_demand_price_micro_usd=columns.on_demand_price_micro_usd[order],
        # Of an offering that begins later, nothing is there before.
        spot_available=np.where(absent, 0, columns.spot_available[order]),
        spot_provenance=np.where(absent, INFERRED, spot_kind[order]),
        on_demand_available=np.where(absent, 0, columns.on_demand_available[order]),
        on_demand_provenance=np.where(absent, INFERRED, on_demand_kind[order]),
        quoted_ns=np.minimum(quoted, opens_ns[:, None]),
        source=source,
    )


def _check_prices(
    columns: LongColumns,
    offerings: Sequence[Offering],
    locate: Callable[[int], str],
    names: tuple[str, str],
) -> None:
    """Refuse prices that are not > 0, or on demand not 0 for a reservation."""
    spot_price, on_demand_price = columns.spot_price_micro_usd, columns.on_demand_price_micro_usd
    spot_name, on_demand_name = names
    _refuse(spot_price <= 0, locate, spot_name, "expected a price > 0", spot_price)
    most = f"expected a price <= {DEAREST_USD_PER_HOUR * MICRO_USD_PER_USD:,} micro-USD"
    for name, price in ((spot_name, spot_price), (on_demand_name, on_demand_price)):
        dear = price > DEAREST_USD_PER_HOUR * MICRO_USD_PER_USD
        _refuse(dear, locate, name, most, price)
    reserved = np.isin(
        columns.offering_id, [o.offering_id for o in offerings if o.reservation is not None]
    )
    bad = ~reserved & (on_demand_price <= 0)
    _refuse(bad, locate, on_demand_name, "expected a price > 0", on_demand_price)
    bad = reserved & (on_demand_price != 0)
    _refuse(bad, locate, on_demand_name, "expected 0, for a reservation", on_demand_price)


def _refuse(
    bad: npt.NDArray[np.bool_],
    locate: Callable[[int], str],
    field_name: str,
    expected: str,
    values: IntArray,
) -> None:
    if bad.any():
        row = int(np.argmax(bad))
        raise ContractError(
            f"{locate(row)}, field {field_name}", f"{expected}, found {values[row]}"
        )


def _codes(
    names: npt.NDArray[np.object_],
    known: dict[str, int],
    locate: Callable[[int], str],
    field_name: str,
) -> IntArray:
    codes = np.array([known.get(name, -1) for name in names], dtype=np.int64)
    if (codes < 0).any():
        row = int(np.argmax(codes < 0))
        raise ContractError(
            f"{locate(row)}, field {field_name}",
            f"expected one of {listed(known)}, found {shown(names[row])}",
        )
    return codes


def _slot_numbers(
    starts_ns: IntArray, slot_s: int | None, width: int, locate: Callable[[int], str]
) -> tuple[int, IntArray, int]:
    """Return the first slot's opening, the slot number of every row, and the slot length.

    Slots may be missing; without a stated length it is the shortest step.
    """
    steps = np.diff(starts_ns)
    if (steps < 0).any():
        row = int(np.argmax(steps < 0)) + 1
        raise ContractError(
            f"{locate(row)}, field slot_start",
            f"expected a time >= {utc_iso(int(starts_ns[row - 1]))}, the row before, "
            f"found {utc_iso(int(starts_ns[row]))}: rows must be in the order of slots",
        )
    if slot_s is None:
        least_step_ns = int(steps[steps > 0].min()) if (steps > 0).any() else 0
        slot_s = least_step_ns // NS_PER_S
        if slot_s < 1 or least_step_ns % NS_PER_S:
            raise ContractError(
                f"{locate(0)}, field slot_start",
                "expected at least two slots, whole seconds apart, to tell the slot length",
            )
    slot_ns = slot_s * NS_PER_S
    start_ns = int(starts_ns[0])
    bad = steps % slot_ns != 0
    if bad.any():
        row = int(np.argmax(bad)) + 1
        raise ContractError(
            f"{locate(row)}, field slot_start",
            f"expected {utc_iso(int(starts_ns[row - 1]) + slot_ns)}, one slot of {slot_s} s after "
            f"the row before, or some slots more, found {utc_iso(int(starts_ns[row]))}",
        )
    cells = (int(starts_ns[-1] - start_ns) // slot_ns + 1) * width
    if cells > MOST_CELLS:
        row = int(np.argmax(steps)) + 1
        raise ContractError(
            f"{locate(row)}, field slot_start",
            f"expected slots of {slot_s} s for at most {MOST_CELLS:,} quotes, gaps between them "
            f"filled, found time for {cells:,}",
        )
    return start_ns, (starts_ns - start_ns) // slot_ns, slot_s


def _order(
    slot: IntArray, column: IntArray, offerings: Sequence[Offering], locate: Callable[[int], str]
) -> tuple[IntArray, npt.NDArray[np.bool_]]:
    """Row of every (slot, offering), shape (slots, offerings), and where none had come yet.

    None may occur twice. Where one is missing the row before stands, older by then; before the first
    that one does.
    """
    width = len(offerings)
    slots = int(slot[-1]) + 1
    cell = slot * width + column
    order = np.full(slots * width, -1, dtype=np.int64)
    # Filled from the last row to the first, so that the first of two rows for a cell stays.
    order[cell[::-1]] = np.arange(len(cell) - 1, -1, -1)
    again = order[cell] != np.arange(len(cell))
    if again.any():
        row = int(np.argmax(again))
        raise ContractError(
            f"{locate(row)}, field offering_id",
            f"expected each offering once per slot, found {offerings[column[row]].offering_id} "
            f"again (first in {locate(int(order[cell[row]]))})",
        )
    rows = order.reshape(slots, width)
    for c in np.flatnonzero(rows[-1] < 0).tolist():
        row = int(np.searchsorted(slot, slots - 1))
        raise ContractError(
            f"{locate(row)}, field offering_id",
            f"expected a row for every offering in the last slot, found none for "
            f"{offerings[c].offering_id}: is the file truncated?",
        )
    there = rows >= 0
    known = np.maximum.accumulate(np.where(there, np.arange(slots)[:, None], -1), axis=0)
    absent = known < 0
    known = np.where(absent, np.argmax(there, axis=0)[None, :], known)
    return np.take_along_axis(rows, known, axis=0), absent
