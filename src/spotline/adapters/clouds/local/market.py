"""The market of this machine: one offering at one price, as many instances as it holds, no spot."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import numpy as np

from spotline.adapters.clouds.local.init import write_aside
from spotline.adapters.clouds.local.settings import LocalCloudSettings
from spotline.contracts.errors import ConfigError
from spotline.domain.market.market import OBSERVED, Market
from spotline.domain.market.offering import Offering
from spotline.domain.units import NS_PER_S, micro_usd_from_usd

_DAYS = 366
_FILE = "local_market.json"


def machine_market(settings: LocalCloudSettings, store: Path, host: str) -> Market:
    """Make the market of this machine, or make the one again that the store began with.

    It lasts for a year. A store keeps when its market began and how long its slots are: market time
    goes on from the slot that was stored last.

    Raises
    ------
    ConfigError
        The store's market had other slots, or its file is damaged.
    """
    file = store / _FILE
    try:
        kept = json.loads(file.read_text())
        start_ns, slot_s = int(kept["start_ns"]), int(kept["slot_s"])
    except FileNotFoundError:
        start_ns, slot_s = int(time.time()) * NS_PER_S, settings.slot_s
        store.mkdir(parents=True, exist_ok=True)
        write_aside(str(file), {"start_ns": start_ns, "slot_s": slot_s})
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            f"{file} must hold start_ns and slot_s, whole numbers ({error}); use another --store"
        ) from error
    if slot_s != settings.slot_s:
        raise ConfigError(
            f"slot length must be {slot_s} s, as the market of {store} began, was "
            f"{settings.slot_s}; use another --store"
        )
    slots = _DAYS * 86_400 // slot_s

    def constant(value: int) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
        return np.full((slots, 1), value, dtype=np.int64)

    price = micro_usd_from_usd(settings.price_usd_per_instance_hour)
    return Market(
        offerings=(_offering(settings, host),),
        slot_s=slot_s,
        start_ns=start_ns,
        spot_price_micro_usd=constant(price),
        on_demand_price_micro_usd=constant(price),
        spot_available=constant(0),
        spot_provenance=constant(OBSERVED),
        on_demand_available=constant(settings.most),
        on_demand_provenance=constant(OBSERVED),
        quoted_ns=constant(start_ns),
        source=f"local:{host}",
    )


def _offering(settings: LocalCloudSettings, host: str) -> Offering:
    name = re.sub(r"[^a-z0-9-]+", "-", host.lower()).strip("-") or "host"
    share = f"{settings.cpu_share:g}-cores" if settings.cpu_share else "shared-cores"
    gpus = settings.gpus_per_instance
    return Offering(
        offering_id=f"local:{name}",
        provider="local",
        account="local",
        region=name,
        zone=name,
        instance_type=f"{gpus}-gpus" if gpus else share,
        gpu_model="gpu" if gpus else "cpu",
        # What has none counts as one: work is measured by the instance.
        gpus_per_instance=max(1, gpus),
        quota_pool="local",
        notice_lead_s=settings.guaranteed_notice_s,
    )
