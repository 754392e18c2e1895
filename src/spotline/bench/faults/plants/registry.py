"""Planted bugs by the family that is to catch them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from spotline.bench.faults.plants import (
    bus,
    clock,
    disk,
    duplicate,
    forged,
    kill,
    launch,
    noise,
    notice,
    owners,
    poison,
    price,
    runaway,
    version,
)
from spotline.bench.faults.plants.interface import Plant

PLANTS: Mapping[str, tuple[Plant, ...]] = MappingProxyType(
    {
        "duplicate": duplicate.PLANTS,
        "kill": kill.PLANTS,
        "owners": owners.PLANTS,
        "bus": bus.PLANTS,
        "launch": launch.PLANTS,
        "notice": notice.PLANTS,
        "poison": poison.PLANTS,
        "price": price.PLANTS,
        "clock": clock.PLANTS,
        "bytes": noise.PLANTS,
        "runaway": runaway.PLANTS,
        "disk": disk.PLANTS,
        "version": version.PLANTS,
        "forged": forged.PLANTS,
    }
)
