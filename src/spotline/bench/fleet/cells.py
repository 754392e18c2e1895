"""The cells of `spotline bench fleet`: market, number of jobs, load, start."""

from __future__ import annotations

from dataclasses import dataclass

from spotline.bench.fleet.markets import MARKET_NAMES
from spotline.contracts.errors import ContractError

JOBS = (60, 240, 1000)
LOADS = (0.3, 0.8, 1.5)
COLD, PRIOR, WARM = "cold", "prior", "warm"
STARTS = (COLD, PRIOR, WARM)
# Runs where it is named: priors without the regions of the market.
ELSEWHERE = "elsewhere"
NAMED_STARTS = (*STARTS, ELSEWHERE)
_MOST_JOBS = 10_000
_EXPECTED = "expected MARKET/N/LOAD/START such as h100/240/0.8/cold"


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class FleetCell:
    """One cell; `name` is its key in reports."""

    market: str
    jobs: int
    load: float
    start: str

    @property
    def name(self) -> str:
        """`MARKET/N/LOAD/START`."""
        return f"{self.market}/{self.jobs}/{self.load:g}/{self.start}"


def all_cells() -> tuple[FleetCell, ...]:
    """Every cell, 81 of them."""
    return tuple(
        FleetCell(market=market, jobs=jobs, load=load, start=start)
        for market in MARKET_NAMES
        for jobs in JOBS
        for load in LOADS
        for start in STARTS
    )


def default_cells() -> tuple[FleetCell, ...]:
    """The twelve that tell most: crowds large and scarce enough to be in each other's way.

    Each market has both sizes at both loads, once cold and once with priors at each.
    """
    wanted = {(240, 0.8, PRIOR), (240, 1.5, COLD), (1000, 0.8, COLD), (1000, 1.5, PRIOR)}
    return tuple(cell for cell in all_cells() if (cell.jobs, cell.load, cell.start) in wanted)


def cell_named(text: str) -> FleetCell:
    """Read `MARKET/N/LOAD/START`; N and LOAD may be others than the reported ones.

    Raises
    ------
    ContractError
        The text is not that; the message says which part is wrong.
    """
    parts = text.split("/")
    if len(parts) != len(("MARKET", "N", "LOAD", "START")):
        raise ContractError("--cell", f"{_EXPECTED}, found {text!r}")
    market, jobs, load, start = parts
    if market not in MARKET_NAMES:
        raise ContractError(
            "--cell", f"MARKET must be one of {', '.join(MARKET_NAMES)}, was {market!r}"
        )
    if start not in NAMED_STARTS:
        known = ", ".join(NAMED_STARTS)
        raise ContractError("--cell", f"START must be one of {known}, was {start!r}")
    if not (jobs.isascii() and jobs.isdigit() and 1 <= int(jobs) <= _MOST_JOBS):
        raise ContractError("--cell", f"N must be a whole number in 1..{_MOST_JOBS}, was {jobs!r}")
    try:
        number = float(load)
    except ValueError:
        number = float("nan")
    if not 0.01 <= number <= 100.0:
        raise ContractError("--cell", f"LOAD must lie in 0.01..100, was {load!r}")
    return FleetCell(market=market, jobs=int(jobs), load=number, start=start)
