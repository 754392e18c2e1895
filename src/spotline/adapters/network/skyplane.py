"""Readers of the Skyplane tables: what a pair of VMs moves between regions, and what egress costs.

Regions are named as in the tables: `aws:eu-west-1`, `azure:westeurope`, `gcp:europe-west4-a` (GCP
names the zone that was measured; prices name it too).
"""

from __future__ import annotations

import math
from pathlib import Path

from spotline.adapters.market.parse import read_csv
from spotline.contracts.errors import ContractError

THROUGHPUT_FILE = "network-skyplane/throughput_2022-11-28.csv.gz"
EGRESS_FILE = "network-skyplane/egress_cost_usd_per_gb.csv.gz"

# Of one VM: above any network interface there is, so that bytes and bits are not confused.
_MOST_BITS_PER_S = 1e12
_MOST_USD_PER_GB = 10.0
_BITS_PER_BYTE = 8.0
_TIER = "PREMIUM"

Pair = tuple[str, str]


def read_throughput(path: Path) -> dict[Pair, float]:
    """Read measured throughput between pairs of VMs.

    Rows of the provider's standard tier and failed measurements are left out; of several
    measurements of a pair the mean counts.

    Returns
    -------
    dict[tuple[str, str], float]
        Received **bytes** per second from the first region to the second; by pair, ascending. A
        single 5-s iperf3 run with 64 TCP streams each: an upper bound.

    Raises
    ------
    ContractError
        A column is missing, a figure is not a number in its range, or nothing was measured.
    """
    columns = (
        "src_region", "src_tier", "dst_region", "dst_tier", "throughput_received", "success",
    )  # fmt: skip
    measured: dict[Pair, list[float]] = {}
    for where, row in read_csv(path, columns):
        if row["success"] != "True" or row["src_tier"] != _TIER or row["dst_tier"] != _TIER:
            continue
        bits_per_s = _number(
            row["throughput_received"], _MOST_BITS_PER_S, f"{where}, field throughput_received"
        )
        pair = _pair(row["src_region"], row["dst_region"], where)
        measured.setdefault(pair, []).append(bits_per_s / _BITS_PER_BYTE)
    if not measured:
        raise ContractError(str(path), "expected measured pairs of regions, found none")
    return {pair: math.fsum(measured[pair]) / len(measured[pair]) for pair in sorted(measured)}


def read_egress(path: Path) -> dict[Pair, float]:
    """Read egress prices.

    Returns
    -------
    dict[tuple[str, str], float]
        USD per gigabyte (10^9 bytes) that leaves the first region for the second; ascending.

    Raises
    ------
    ContractError
        A column is missing, a price is not a number in its range, or a pair has two prices.
    """
    prices: dict[Pair, float] = {}
    for where, row in read_csv(path, ("src", "dest", "cost")):
        pair = _pair(row["src"], row["dest"], where)
        if pair in prices:
            raise ContractError(where, f"expected one price per pair, found {pair} again")
        prices[pair] = _number(row["cost"], _MOST_USD_PER_GB, f"{where}, field cost")
    if not prices:
        raise ContractError(str(path), "expected prices of egress, found none")
    return dict(sorted(prices.items()))


def _pair(source: str, destination: str, where: str) -> Pair:
    for region in (source, destination):
        if ":" not in region:
            raise ContractError(
                where, f"expected regions such as aws:eu-west-1, found {region or 'nothing'}"
            )
    if source == destination:
        raise ContractError(where, f"expected two regions, found {source} twice")
    return source, destination


def _number(text: str, most: float, where: str) -> float:
    try:
        number = float(text)
    except ValueError as error:
        raise ContractError(where, f"expected a number >= 0, found {text!r}") from error
    if not 0.0 <= number <= most:
        raise ContractError(where, f"expected a number in 0..{most:g}, found {text}")
    return number
