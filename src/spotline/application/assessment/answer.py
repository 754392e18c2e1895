"""What an assessment answers: four lines for every slack, and what they rest on.

Money is integer micro-units of the bill's currency.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from spotline.application.assessment.assumptions import Assumptions
from spotline.application.assessment.prices import PriceFrom
from spotline.application.assessment.standing_in import AssessedJob, NotAssessed
from spotline.domain.assessment.facts import RebuiltBill


@dataclass(frozen=True, slots=True, kw_only=True)
class MoneySpread:
    """Of all futures: the sum that one in ten stays below, that half do, nine in ten do; the mean."""

    p10_micro: int
    p50_micro: int
    p90_micro: int
    mean_micro: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakEven:
    """The share of time for which spot must be there to cost no more than a line.

    `ahead` is "always" where Spotline is cheaper however rare spot is, "never" where it is not
    even if spot is always there; else "from", with the share in millionths.
    """

    ahead: str
    share_ppm: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SlackAnswer:
    """What all jobs together would have cost, if each might take `slack_ppm` of its work in time.

    `saving` is what was paid less Spotline's line, its p10 the least. `ran_late_ppm` is the share of
    jobs that took longer than that as they really ran, `late_ppm` what it would have been with plain
    recovery, `missed` how many of `lives` Spotline would have had late.
    """

    slack_ppm: int
    ran_late_ppm: int
    spot_plain: MoneySpread
    late_ppm: int
    spotline: MoneySpread
    saving: MoneySpread
    missed: int
    lives: int
    as_paid: BreakEven
    as_on_demand: BreakEven

    @property
    def saves(self) -> bool:
        """Whether what is saved can be told from nothing."""
        return self.saving.p10_micro > 0 and self.saving.p50_micro > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PriorUse:
    """A kind of prior laws, and how many jobs were assessed by it.

    `share_ppm` holds the share of time with spot, in millionths, by name of the law.
    """

    kind: str
    jobs: int
    share_ppm: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceUse:
    """How many jobs took their spot prices from where, and what these were of the list price."""

    source: PriceFrom
    jobs: int
    held: int
    mean_ppm: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class JobLine:
    """One job: what was paid, on demand, and the middle of Spotline's line by slack."""

    assessed: AssessedJob
    on_demand_micro: int
    spotline_micro: tuple[int, ...]
    own_life: bool


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Assessment:
    """The whole answer.

    `paid_micro` and `on_demand_micro` are of the jobs that could be assessed; what the bill has
    besides is in `bill` and `left_out`, and in no line.
    """

    bill: RebuiltBill
    assumptions: Assumptions
    paid_micro: int
    on_demand_micro: int
    answers: tuple[SlackAnswer, ...]
    jobs: tuple[JobLine, ...]
    lived: int
    left_out: tuple[NotAssessed, ...]
    priors: tuple[PriorUse, ...]
    priors_sha256: str
    prices: tuple[PriceUse, ...]

    @property
    def headline(self) -> SlackAnswer | None:
        """The answer that the verdict is about: the least slack at which something is saved."""
        return next((answer for answer in self.answers if answer.saves), None)
