"""What is expected of a job: cost, finish and the probability of being on time."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class OutlookOffering:
    """The futures in which a job begins on one offering; `moves_ppm` is the mean a future."""

    offering_id: str
    share_ppm: int
    expected_cost_micro_usd: int
    on_time_probability_ppm: int
    moves_ppm: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class OutlookPolicy:
    """What one policy of the mixture would do, and the probability that the job draws it."""

    policy_id: str
    weight_ppm: int
    expected_cost_micro_usd: int
    on_time_probability_ppm: int
    expected_utility_micro_usd: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OutlookStep:
    """Work done at the end of a slot: one future in ten has less than `low_ppm`, one more than `high_ppm`."""

    at_ns: int
    low_ppm: int
    middle_ppm: int
    high_ppm: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOutlook:
    """What replaying what really runs on sampled `futures`, from `slot` on, shows of a job.

    Costs are of the whole job, with what was spent before. p10 is what one future in ten stays
    below, p90 what nine in ten do. A finish of 0 says that the job is never done in that future;
    futures without a finish count as later than any. `offerings` are in order of share, `policies`
    of weight: of a job that has its policy, that alone. `progress` is in order of time, empty where
    it was not said.
    """

    slot: int
    futures: int
    on_time_probability_ppm: int
    expected_cost_micro_usd: int
    cost_p10_micro_usd: int
    cost_p50_micro_usd: int
    cost_p90_micro_usd: int
    finish_p10_ns: int
    finish_p50_ns: int
    finish_p90_ns: int
    expected_utility_micro_usd: int
    offerings: tuple[OutlookOffering, ...] = ()
    policies: tuple[OutlookPolicy, ...] = ()
    progress: tuple[OutlookStep, ...] = ()
