"""Snapshots of the Prime Intellect aggregator: listed offers as counts, their cheapest as price."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np

from spotline.adapters.market.options import Importer, ImportOptions
from spotline.adapters.market.parse import (
    count,
    field,
    json_value,
    price_micro_usd,
    read_text,
    time_ns,
)
from spotline.adapters.market.series import EventSeries, OfferingSeries, assemble, first_slot_ns
from spotline.contracts.errors import ContractError
from spotline.domain.market.market import Market
from spotline.domain.market.notice import guaranteed_notice_s
from spotline.domain.market.offering import Offering, Provenance
from spotline.domain.units import micro_usd_from_usd, utc_iso

_DEFAULT_SLOT_S = 1800
_DEFAULT_CONFIG = "1x"
_CONFIG = re.compile(r"(?P<gpus>[1-9]\d*)x")


def read_prime_intellect(files: Sequence[Path], options: ImportOptions) -> Market:
    """Read one file per GPU model; `instance_type` is the configuration, such as `8x`.

    Assumptions, also stated in the market's `source`: every listed offer of the configuration is
    one available instance (inferred; none listed = 0), its spot price is the cheapest per GPU
    times the GPUs, and on-demand costs the median over time of the dearest listed offer unless
    given.

    Raises
    ------
    ContractError
        A file breaks the format, or never lists the configuration.
    """
    config = options.instance_type or _DEFAULT_CONFIG
    parsed = _CONFIG.fullmatch(config)
    if parsed is None:
        raise ContractError(
            "--instance-type", f"expected a number of GPUs such as 1x or 8x, found {config!r}"
        )
    gpus = int(parsed["gpus"])
    slot_s = options.slot_s or _DEFAULT_SLOT_S
    series = [_read(path, config, gpus, options.on_demand_usd) for path in files]
    first_ns = max(int(offering.spot_price.ts_ns[0]) for offering in series)
    last_ns = min(int(_counts(offering).ts_ns[-1]) for offering in series)
    on_demand = (
        "on-demand price given"
        if options.on_demand_usd is not None
        else "on-demand price assumed: median over time of the dearest listed offer"
    )
    return assemble(
        series,
        start_ns=first_slot_ns(
            options.start_ns, first_ns, slot_s, since="the first snapshot with a price"
        ),
        end_ns=last_ns + 1,
        slot_s=slot_s,
        source=(
            f"prime-intellect: {', '.join(path.name for path in files)}; one listed {config} offer "
            f"taken as one available instance (spot and on-demand offers are mixed); price = "
            f"cheapest per GPU x {gpus}; {on_demand}"
        ),
    )


IMPORTER = Importer(
    name="prime-intellect",
    description="Prime Intellect market snapshots (JSON lines, gzip)",
    read=read_prime_intellect,
    accepts=frozenset({"on_demand_usd", "start_ns", "instance_type", "slot_s"}),
)


def _counts(offering: OfferingSeries) -> EventSeries:
    if offering.spot_available is None:
        raise ValueError("snapshots always count offers")
    return offering.spot_available


@dataclass(slots=True)
class _Snapshots:
    """What the snapshots of a file say of one configuration, in their order."""

    names: set[str] = dataclasses.field(default_factory=set)
    configs: set[str] = dataclasses.field(default_factory=set)
    seen_ns: list[int] = dataclasses.field(default_factory=list)
    counts: list[int] = dataclasses.field(default_factory=list)
    priced_ns: list[int] = dataclasses.field(default_factory=list)
    prices: list[int] = dataclasses.field(default_factory=list)
    dearest: list[int] = dataclasses.field(default_factory=list)

    def add(self, snapshot: Any, where: str, config: str, gpus: int) -> None:
        ts_ns = time_ns(field(snapshot, "timestamp", where), f"{where}, field timestamp")
        if self.seen_ns and ts_ns < self.seen_ns[-1]:
            raise ContractError(
                f"{where}, field timestamp",
                f"expected a time >= {utc_iso(self.seen_ns[-1])}, the line before, "
                f"found {utc_iso(ts_ns)}: a quote must not go back in time",
            )
        self.names.add(_model(snapshot, where))
        by_config = field(snapshot, "by_config", where)
        self.configs.update(by_config)
        offer = by_config.get(config)
        place = f"{where}, field by_config.{config}"
        self.seen_ns.append(ts_ns)
        self.counts.append(0 if offer is None else count(field(offer, "count", place), place))
        if offer is not None:
            self.priced_ns.append(ts_ns)
            per_gpu = price_micro_usd(field(offer, "min_per_gpu", place), place)
            self.prices.append(gpus * per_gpu)
        place = f"{where}, field price_stats"
        most = field(field(snapshot, "price_stats", where), "max", place)
        self.dearest.append(gpus * price_micro_usd(most, f"{place}.max"))


def _read(path: Path, config: str, gpus: int, on_demand_usd: Decimal | None) -> OfferingSeries:
    lines = [line for line in read_text(path).splitlines() if line.strip()]
    if not lines:
        raise ContractError(str(path), "expected snapshots, found none")
    read = _Snapshots()
    for number, line in enumerate(lines, start=1):
        where = f"{path}: line {number}"
        read.add(json_value(line, where), where, config, gpus)
    if len(read.names) > 1:
        found = ", ".join(sorted(read.names))
        raise ContractError(str(path), f"expected one GPU model, found {found}")
    if not read.prices:
        raise ContractError(
            "--instance-type",
            f"expected a configuration listed in {path.name} "
            f"({', '.join(sorted(read.configs))}), found {config}",
        )
    model = read.names.pop()
    instance_type = f"{config}-{model}"
    return OfferingSeries(
        offering=Offering(
            offering_id=f"prime-intellect:global:{instance_type}",
            provider="prime-intellect",
            account="default",
            region="global",
            zone="global",
            instance_type=instance_type,
            gpu_model=model,
            gpus_per_instance=gpus,
            quota_pool=f"prime-intellect:{model}",
            native_price_unit="usd_per_gpu_hour",
            notice_lead_s=guaranteed_notice_s("prime-intellect"),
        ),
        on_demand_price_micro_usd=(
            int(np.median(read.dearest))
            if on_demand_usd is None
            else micro_usd_from_usd(on_demand_usd)
        ),
        spot_price=_event_series(read.priced_ns, read.prices),
        spot_available=_event_series(read.seen_ns, read.counts),
        spot_provenance=Provenance.INFERRED,
    )


def _model(snapshot: Any, where: str) -> str:
    socket = snapshot.get("socket_type")
    parts = [str(field(snapshot, "gpu_type", where)), *([str(socket)] if socket else [])]
    return "-".join(parts).lower().replace("_", "-")


def _event_series(ts_ns: list[int], values: list[int]) -> EventSeries:
    return EventSeries(
        ts_ns=np.array(ts_ns, dtype=np.int64), values=np.array(values, dtype=np.int64)
    )
