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
from spotline.adapters.market.price_history import read_price_history
from spotline.adapters.market.series import OfferingSeries, assemble
from spotline.contracts.errors import ContractError
from spotline.domain.market.market import Market
from spotline.domain.market.offering import Provenance
from spotline.domain.units import NS_PER_S, utc_iso

_DEFAULT_SLOT_S = 1800


def read_aws_spot_price_history(files: Sequence[Path], options: ImportOptions) -> Market:
    """Read price events as a market that starts when every series has a price.

    Series of a single event are left out and named in `source`.

    Raises
    ------
    ContractError
        A file breaks the format, no series is left, or an on-demand price is not known.
    """
    history = read_price_history(files)
    wanted = {
        key: series
        for key, series in history.items()
        if in_place(key[1], options.zones) and options.instance_type in (None, key[0])
    }
    if not wanted:
        kinds = ", ".join(sorted({kind for kind, _ in history}))
        zones = ", ".join(sorted({zone for _, zone in history}))
        raise ContractError(
            "--zone, --instance-type", f"expected types of {kinds} and zones of {zones}"
        )
    kept = {key: series for key, series in wanted.items() if len(series.values) > 1}
    dropped = sorted(set(wanted) - set(kept))
    if not kept:
        raise ContractError(str(files[0]), f"expected series of several events, found {dropped}")
    kinds_kept = sorted({kind for kind, _ in kept})
    if options.on_demand_usd is not None and len(kinds_kept) > 1:
        raise ContractError(
            "--on-demand-usd",
            f"expected one type (choose it with --instance-type), found {', '.join(kinds_kept)}",
        )

    slot_s = options.slot_s or _DEFAULT_SLOT_S
    slot_ns = slot_s * NS_PER_S
    first_ns = max(int(series.ts_ns[0]) for series in kept.values())
    last_ns = max(int(series.ts_ns[-1]) for series in kept.values())
    start_ns = options.start_ns
    if start_ns is None:
        start_ns = -(-first_ns // slot_ns) * slot_ns
    elif start_ns < first_ns:
        raise ContractError(
            "--start",
            f"expected a time >= {utc_iso(first_ns)}, when every series has a price, "
            f"found {utc_iso(start_ns)}",
        )

    counts_given = options.spot_available is not None
    notes = [f"aws-spot-price-history: {', '.join(path.name for path in files)}"]
    notes.append(
        f"spot counts assumed constant at {options.spot_available}"
        if counts_given
        else "spot counts unknown"
    )
    if dropped:
        left_out = ", ".join(f"{kind} in {zone}" for kind, zone in dropped)
        notes.append(f"left out, a single event each: {left_out}")
    series = []
    for (kind, zone), prices in kept.items():
        known = INSTANCE_TYPES.get(kind)
        if known is None:
            notes.append(f"GPUs of {kind} not known, taken as 1")
            known = InstanceType(gpu_model="unknown", gpus=1)
        series.append(
            OfferingSeries(
                offering=aws_offering(zone, kind, known.gpu_model, known.gpus),
                on_demand_price_micro_usd=on_demand_micro_usd(zone, kind, options.on_demand_usd),
                spot_price=prices,
                spot_available=None,
                spot_provenance=Provenance.INFERRED if counts_given else Provenance.UNKNOWN,
                constant_spot_available=options.spot_available or 0,
            )
        )
    return assemble(
        series,
        start_ns=start_ns,
        end_ns=last_ns + 1,
        slot_s=slot_s,
        source="; ".join(dict.fromkeys(notes)),
    )


IMPORTER = Importer(
    name="aws-spot-price-history",
    description="AWS spot price events, CSV or JSON of describe-spot-price-history",
    read=read_aws_spot_price_history,
    accepts=frozenset(
        {"on_demand_usd", "start_ns", "instance_type", "slot_s", "spot_available", "zones"}
    ),
)
