"""AWS spot price history as a market: prices held between events, counts unknown unless given."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from spotline.adapters.market.instance_types import (
    INSTANCE_TYPES,
    InstanceType,
    aws_offering,
    in_place,
    on_demand_micro_usd,
)
from spotline.adapters.market.options import Importer, ImportOptions
from spotline.adapters.market.price_history import Key, read_price_history
from spotline.adapters.market.series import EventSeries, OfferingSeries, assemble, first_slot_ns
from spotline.contracts.errors import ContractError
from spotline.domain.market.market import Market
from spotline.domain.market.offering import Provenance

_DEFAULT_SLOT_S = 1800
_UNKNOWN_TYPE = InstanceType(gpu_model="unknown", gpus=1)


def read_aws_spot_price_history(files: Sequence[Path], options: ImportOptions) -> Market:
    """Read price events as a market that starts when every series has a price.

    Series of a single event are left out and named in `source`.

    Raises
    ------
    ContractError
        A file breaks the format, no series is left, or an on-demand price is not known.
    """
    wanted = _wanted(files, options)
    kept = {key: series for key, series in wanted.items() if len(series.values) > 1}
    dropped = sorted(set(wanted) - set(kept))
    if not kept:
        raise ContractError(str(files[0]), f"expected series of several events, found {dropped}")
    kinds = sorted({kind for kind, _ in kept})
    if options.on_demand_usd is not None and len(kinds) > 1:
        raise ContractError(
            "--on-demand-usd",
            f"expected one type (choose it with --instance-type), found {', '.join(kinds)}",
        )
    slot_s = options.slot_s or _DEFAULT_SLOT_S
    first_ns = max(int(series.ts_ns[0]) for series in kept.values())
    return assemble(
        [_series(key, prices, options) for key, prices in kept.items()],
        start_ns=first_slot_ns(
            options.start_ns, first_ns, slot_s, since="when every series has a price"
        ),
        end_ns=max(int(series.ts_ns[-1]) for series in kept.values()) + 1,
        slot_s=slot_s,
        source="; ".join(_notes(files, options, [kind for kind, _ in kept], dropped)),
    )


def _wanted(files: Sequence[Path], options: ImportOptions) -> dict[Key, EventSeries]:
    history = read_price_history(files)
    wanted = {
        (kind, zone): series
        for (kind, zone), series in history.items()
        if in_place(zone, options.zones) and options.instance_type in (None, kind)
    }
    if not wanted:
        kinds = ", ".join(sorted({kind for kind, _ in history}))
        zones = ", ".join(sorted({zone for _, zone in history}))
        raise ContractError(
            "--zone, --instance-type", f"expected types of {kinds} and zones of {zones}"
        )
    return wanted


def _notes(
    files: Sequence[Path], options: ImportOptions, kinds: Sequence[str], dropped: Sequence[Key]
) -> list[str]:
    """What a reader of the market must know of its source."""
    notes = [f"aws-spot-price-history: {', '.join(path.name for path in files)}"]
    notes.append(
        "spot counts unknown"
        if options.spot_available is None
        else f"spot counts assumed constant at {options.spot_available}"
    )
    if dropped:
        left_out = ", ".join(f"{kind} in {zone}" for kind, zone in dropped)
        notes.append(f"left out, a single event each: {left_out}")
    unknown = [kind for kind in dict.fromkeys(kinds) if kind not in INSTANCE_TYPES]
    return notes + [f"GPUs of {kind} not known, taken as 1" for kind in unknown]


def _series(key: Key, prices: EventSeries, options: ImportOptions) -> OfferingSeries:
    kind, zone = key
    known = INSTANCE_TYPES.get(kind, _UNKNOWN_TYPE)
    counted = options.spot_available is not None
    return OfferingSeries(
        offering=aws_offering(zone, kind, known.gpu_model, known.gpus),
        on_demand_price_micro_usd=on_demand_micro_usd(zone, kind, options.on_demand_usd),
        spot_price=prices,
        spot_available=None,
        spot_provenance=Provenance.INFERRED if counted else Provenance.UNKNOWN,
        constant_spot_available=options.spot_available or 0,
    )


IMPORTER = Importer(
    name="aws-spot-price-history",
    description="AWS spot price events, CSV or JSON of describe-spot-price-history",
    read=read_aws_spot_price_history,
    accepts=frozenset(
        {"on_demand_usd", "start_ns", "instance_type", "slot_s", "spot_available", "zones"}
    ),
)
