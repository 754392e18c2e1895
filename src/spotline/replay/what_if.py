"""Other terms for jobs and markets: what if deadlines, prices or availability had been others."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from spotline.adapters.files.units import duration_text, seconds_of
from spotline.contracts.errors import ContractError
from spotline.domain.jobs.job import Deadline, Job
from spotline.domain.market.market import IntArray, Market
from spotline.domain.units import NS_PER_S
from spotline.replay.availability import ALL_THERE, Availability

_FACTOR = re.compile(r"\d{1,6}(?:\.\d{1,6})?|\.\d{1,6}")
_A_DEADLINE = "a duration with its sign, such as +6h or -90m, or a factor such as x1.5"
_A_PRICE = "factors such as spot=1.2,on_demand=1"
_SPOT, _ON_DEMAND = "spot", "on_demand"


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf:
    """What is changed: nothing by default.

    `deadline_s` seconds are added to each deadline, `deadline_factor` stretches the time from a
    job's start to it; `spot_factor` and `on_demand_factor` scale the prices of every slot;
    `availability` says what is gone.
    """

    deadline_s: int = 0
    deadline_factor: Fraction = Fraction(1)
    spot_factor: Fraction = Fraction(1)
    on_demand_factor: Fraction = Fraction(1)
    availability: Availability = ALL_THERE

    @property
    def changes_jobs(self) -> bool:
        """Whether deadlines are others."""
        return bool(self.deadline_s) or self.deadline_factor != 1

    @property
    def changes_prices(self) -> bool:
        """Whether prices are others."""
        return self.spot_factor != 1 or self.on_demand_factor != 1

    def describe(self) -> list[str]:
        """What is changed, a phrase each."""
        said = []
        if self.deadline_s:
            sign = "+" if self.deadline_s > 0 else "-"
            said.append(f"deadlines {sign}{duration_text(abs(self.deadline_s))}")
        if self.deadline_factor != 1:
            said.append(f"time to the deadline x {float(self.deadline_factor):g}")
        if self.spot_factor != 1:
            said.append(f"spot prices x {float(self.spot_factor):g}")
        if self.on_demand_factor != 1:
            said.append(f"on-demand prices x {float(self.on_demand_factor):g}")
        return said + self.availability.describe()

    def jobs(self, jobs: Sequence[Job]) -> tuple[Job, ...]:
        """The jobs with other deadlines; when one is worth nothing any more moves with it.

        Raises
        ------
        ContractError
            A job would be due before it starts.
        """
        if not self.changes_jobs:
            return tuple(jobs)
        return tuple(self._job(job) for job in jobs)

    def _job(self, job: Job) -> Job:
        at_ns, expires_ns = self._moved_ns(job, job.deadline.at_ns), 0
        if job.deadline.expires_ns == job.deadline.at_ns:
            expires_ns = at_ns
        else:
            expires_ns = self._moved_ns(job, job.deadline.expires_ns)
        if at_ns <= job.start_ns:
            raise ContractError(
                "--deadline",
                "expected deadlines after the starts of their jobs, found that of "
                f"{job.name or job.job_id} at or before its start",
            )
        deadline = Deadline(kind=job.deadline.kind, at_ns=at_ns, expires_ns=expires_ns)
        return replace(job, deadline=deadline)

    def _moved_ns(self, job: Job, at_ns: int) -> int:
        stretched = (at_ns - job.start_ns) * self.deadline_factor
        return job.start_ns + round(stretched) + self.deadline_s * NS_PER_S

    def market(self, market: Market, *, first_slot: int = 0) -> Market:
        """The market at other prices, rounded to a micro-USD; what costs something goes on to.

        Parameters
        ----------
        first_slot
            The log's number of the market's first slot.

        Raises
        ------
        ContractError
            What is gone was never there.
        """
        market = self.availability.market(market, first_slot=first_slot)
        if not self.changes_prices:
            return market
        return replace(
            market,
            spot_price_micro_usd=_scaled(market.spot_price_micro_usd, self.spot_factor),
            on_demand_price_micro_usd=_scaled(
                market.on_demand_price_micro_usd, self.on_demand_factor
            ),
        )


def _scaled(prices: IntArray, factor: Fraction) -> IntArray:
    top, bottom = factor.numerator, factor.denominator
    scaled = (prices * top * 2 + bottom) // (2 * bottom)
    return np.where(prices > 0, np.maximum(scaled, 1), 0).astype(np.int64)


def what_if_of(
    deadline: str = "", price_factor: str = "", *, availability: Availability | None = None
) -> WhatIf:
    """Read `+6h` or `x1.5`, and `spot=1.2,on_demand=1`; an empty text changes nothing.

    Raises
    ------
    ContractError
        One is neither.
    """
    deadline_s, deadline_factor = _deadline_of(deadline.strip())
    factors = _prices_of(price_factor)
    return WhatIf(
        deadline_s=deadline_s,
        deadline_factor=deadline_factor,
        spot_factor=factors[_SPOT],
        on_demand_factor=factors[_ON_DEMAND],
        availability=availability or ALL_THERE,
    )


def share_of(text: str) -> Fraction:
    """Read a share of counts such as `0.5`; an empty text is all of them.

    Raises
    ------
    ContractError
        It is none, or more than 1: what was not there nobody knows.
    """
    share = Fraction(1) if not text.strip() else _factor_of(text.strip())
    if share is None or share > 1:
        raise ContractError("counts", f"expected a share such as 0.5, at most 1, found {text!r}")
    return share


def _deadline_of(text: str) -> tuple[int, Fraction]:
    if not text:
        return 0, Fraction(1)
    if text[0] in "+-":
        seconds = seconds_of(text[1:])
        if seconds is not None:
            return (seconds if text[0] == "+" else -seconds), Fraction(1)
    elif text[0] == "x":
        factor = _factor_of(text[1:])
        if factor is not None:
            return 0, factor
    raise ContractError("--deadline", f"expected {_A_DEADLINE}, found {text!r}")


def _prices_of(text: str) -> dict[str, Fraction]:
    factors = {_SPOT: Fraction(1), _ON_DEMAND: Fraction(1)}
    seen: set[str] = set()
    for part in text.split(",") if text.strip() else ():
        name, _, value = (piece.strip() for piece in part.partition("="))
        factor = _factor_of(value)
        if name not in factors or name in seen or factor is None:
            raise ContractError("--price-factor", f"expected {_A_PRICE}, found {text!r}")
        factors[name] = factor
        seen.add(name)
    return factors


def _factor_of(text: str) -> Fraction | None:
    """A factor > 0 of at most six digits before and behind the point; None where it is none."""
    if _FACTOR.fullmatch(text) is None:
        return None
    factor = Fraction(text)
    return factor if factor > 0 else None
