"""Links of a geography from the Skyplane tables."""

from __future__ import annotations

from itertools import permutations
from pathlib import Path
from typing import Annotated

from pydantic import Field

from spotline.adapters.files.fields import Count, Name, Part
from spotline.adapters.network.skyplane import Pair, read_egress, read_throughput
from spotline.contracts.errors import ContractError
from spotline.domain.placement.graph import Link

_MOST_VMS = 100_000
_MOST_REGIONS = 1_000


class SkyplaneLinksPart(Part):
    """`skyplane_links` of a geography file; regions are given the names of the tables."""

    throughput: Name
    egress: Name | None = None
    vms: Annotated[Count, Field(ge=1, le=_MOST_VMS)] = 1
    regions: Annotated[dict[str, Name], Field(min_length=2, max_length=_MOST_REGIONS)]

    def to_domain(self, folder: Path) -> list[Link]:
        """A link for every ordered pair of the regions.

        `vms` pairs of VMs, each with what one was measured to move, work side by side: an upper
        bound.

        Raises
        ------
        ContractError
            A table cannot be read, or a pair is not in it.
        """
        throughput = read_throughput(folder / self.throughput)
        egress = read_egress(folder / self.egress) if self.egress is not None else None
        links = []
        for source, destination in permutations(sorted(self.regions), 2):
            pair = self.regions[source], self.regions[destination]
            usd_per_gb = 0.0
            if egress is not None:
                usd_per_gb = _of(pair, egress, folder / str(self.egress))
            links.append(
                Link(
                    source=source,
                    destination=destination,
                    bytes_per_s=self.vms * _of(pair, throughput, folder / self.throughput),
                    egress_usd_per_gb=usd_per_gb,
                )
            )
        return links


def _of(pair: Pair, table: dict[Pair, float], path: Path) -> float:
    if pair not in table:
        raise ContractError(str(path), f"expected the pair {pair[0]} -> {pair[1]}, found none")
    return table[pair]
