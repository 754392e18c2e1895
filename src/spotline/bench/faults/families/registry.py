"""Families of faults, by name: to add one, write its module and one line here."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from spotline.bench.faults.families.bus import Bus
from spotline.bench.faults.families.clock import Clock
from spotline.bench.faults.families.disk import Disk
from spotline.bench.faults.families.duplicate import Duplicate
from spotline.bench.faults.families.forged import Forgeries
from spotline.bench.faults.families.interface import FaultFamily
from spotline.bench.faults.families.kill import Kill
from spotline.bench.faults.families.launch import RoughLaunches
from spotline.bench.faults.families.noise import Noise
from spotline.bench.faults.families.notice import Notice
from spotline.bench.faults.families.owners import Owners
from spotline.bench.faults.families.poison import Poison
from spotline.bench.faults.families.price import Price
from spotline.bench.faults.families.runaway import Runaway
from spotline.bench.faults.families.version import Version

FAMILIES: Mapping[str, type[FaultFamily]] = MappingProxyType(
    {
        family.name: family
        for family in (
            Duplicate,
            Kill,
            Owners,
            Bus,
            RoughLaunches,
            Notice,
            Price,
            Poison,
            Clock,
            Noise,
            Runaway,
            Disk,
            Version,
            Forgeries,
        )
    }
)
