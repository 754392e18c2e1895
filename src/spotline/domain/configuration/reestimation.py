"""What measured rates of a running job say of the rates that were believed.

The true rate on n instances is taken to be `believed(n) * exp(theta + phi * ln(n / n_ref))`. All
is computed in plain floats, in the order of the arguments: equal reports give equal estimates.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

Z_90 = 1.6449
"""Half width of a normal's 90 % interval in standard deviations."""

DEFAULT_WIDTH = math.log(2.0) / Z_90
"""Of a prior where a prediction has no interval: nine of ten lie within a factor of two."""

# Intervals may be too narrow: a believed rate is never taken for surer than this (log scale).
_LEAST_WIDTH = 0.1
# A job's batch per GPU and its network bend its curve over counts by little: 16 instances for one
# change the factor by at most 1.3, in nine of ten cases.
_SLOPE_WIDTH = 0.06
# Step times of one configuration vary by about this from report to report (log scale). What is
# seen replaces it as reports come, as if it had been seen `_NOISE_REPORTS` times before.
_NOISE = 0.1
_NOISE_REPORTS = 4
_LEAST_NOISE = 0.02
# Student's t for reports and for the prior: a stalled interval costs little to leave out, and a
# prediction that is far off is given up after a few reports that agree.
_FREEDOM = 4.0
# Fisher's information of a t over the mean weight that its reports get.
_INFORMATION = (_FREEDOM + 1.0) / (_FREEDOM + 3.0)
_MOST_STEPS = 60
_MAD_OF_NORMAL = 1.4826
# An error of a prediction is as much the model's (its arithmetic, its length) as the GPU's: the
# covariance of two instance types' errors is half their variance.
TRANSFER = 0.5
# No report says more: beyond it something else than the rate was measured.
_MOST_LOG_RATIO = math.log(64.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class RateObservation:
    """A rate measured on `count` instances, beside the one that was believed; work per hour.

    `weight` is 1 for a full report, less for a short interval.
    """

    count: int
    believed_per_hour: float
    measured_per_hour: float
    weight: float = 1.0

    def __post_init__(self) -> None:
        if self.count < 1:
            raise ValueError(f"count of an observation must be >= 1, was {self.count}")
        for name in ("believed_per_hour", "measured_per_hour"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise ValueError(f"{name} must be finite and > 0, was {value}")
        if not 0 < self.weight <= 1:
            raise ValueError(f"weight of an observation must lie in (0, 1], was {self.weight}")

    @property
    def log_ratio(self) -> float:
        """Logarithm of measured over believed, within what a report may say."""
        # Two logarithms: the quotient itself may leave the range of a float.
        ratio = math.log(self.measured_per_hour) - math.log(self.believed_per_hour)
        return min(_MOST_LOG_RATIO, max(-_MOST_LOG_RATIO, ratio))


@dataclass(frozen=True, slots=True, kw_only=True)
class RateEstimate:
    """The factor between true and believed rate: its posterior, normal on the log scale.

    `log_factor` holds at `reference_count`; `slope` is the power of count / reference_count by
    which the curve is bent. The variances are of these two, `covariance` between them.
    """

    reference_count: int
    observations: int
    log_factor: float
    variance: float
    slope: float = 0.0
    slope_variance: float = 0.0
    covariance: float = 0.0

    def log_factor_at(self, count: int) -> float:
        """Logarithm of the factor on `count` instances."""
        return self.log_factor + self.slope * math.log(count / self.reference_count)

    def deviation_at(self, count: int) -> float:
        """Standard deviation of that logarithm."""
        x = math.log(count / self.reference_count)
        variance = self.variance + 2 * x * self.covariance + x * x * self.slope_variance
        return math.sqrt(max(0.0, variance))

    def factor(self, count: int) -> float:
        """True over believed rate on `count` instances."""
        return math.exp(self.log_factor_at(count))

    def half_width(self, count: int) -> float:
        """Half the 90 % interval of the factor."""
        return self.factor(count) * math.sinh(Z_90 * self.deviation_at(count))

    def rates_per_hour(self, believed: Mapping[int, float]) -> dict[int, float]:
        """The rate to expect on every count, ascending, from the rates believed at first."""
        return {count: believed[count] * self.factor(count) for count in sorted(believed)}


def prior_width(low: float, high: float) -> float:
    """Standard deviation of the log rate under a 90 % interval; both ends 0: no interval.

    Raises
    ------
    ValueError
        The ends are not 0 < low <= high.
    """
    if low == 0 and high == 0:
        return DEFAULT_WIDTH
    if not 0 < low <= high < math.inf:
        raise ValueError(f"an interval must satisfy 0 < low <= high, was {low}, {high}")
    return max(_LEAST_WIDTH, math.log(high / low) / (2 * Z_90))


def estimate(
    observations: Sequence[RateObservation],
    *,
    reference_count: int,
    width: float = DEFAULT_WIDTH,
    mean: float = 0.0,
) -> RateEstimate:
    """Estimate the factor of one instance type from what was measured there.

    Parameters
    ----------
    observations
        In a fixed order; none leaves the prior.
    reference_count
        Where the prior holds: the count that the prediction was made for.
    width, mean
        Of the prior of the log factor: standard deviation (> 0) and centre.

    Notes
    -----
    The mode of the posterior under Student-t errors, found by reweighting from several starts (it
    may have more than one), and a normal around it. The slope is learned once two counts were
    seen, under a prior tight around none.
    """
    if not observations:
        return RateEstimate(
            reference_count=reference_count, observations=0, log_factor=mean, variance=width**2
        )
    points = _points(observations, reference_count)
    bent = len({observation.count for observation in observations}) > 1
    prior = _Prior(mean=mean, variance=width**2)
    ordered = sorted(point.ratio for point in points)
    last = len(ordered) - 1
    starts = (mean, ordered[last // 4], median(ordered), ordered[last - last // 4])
    found = [_mode(points, prior, start, bent=bent) for start in starts]
    theta, phi = min(found, key=lambda mode: _loss(points, prior, *mode))
    p_theta, p_both, p_phi = _precision(points, prior, theta, phi, share=_INFORMATION)
    if not bent:
        return RateEstimate(
            reference_count=reference_count,
            observations=len(points),
            log_factor=theta,
            variance=1.0 / p_theta,
        )
    determinant = p_theta * p_phi - p_both * p_both
    return RateEstimate(
        reference_count=reference_count,
        observations=len(points),
        log_factor=theta,
        variance=p_phi / determinant,
        slope=phi,
        slope_variance=p_theta / determinant,
        covariance=-p_both / determinant,
    )


def estimate_all(
    observations: Mapping[str, Sequence[RateObservation]],
    widths: Mapping[str, float],
    *,
    reference_count: int,
) -> dict[str, RateEstimate]:
    """Estimate the factors of all of a job's instance types, measured or not.

    Parameters
    ----------
    observations
        By instance type, of those that were measured.
    widths
        The prior's standard deviation of every instance type of the job.

    Notes
    -----
    What one type's prediction was wrong by is `TRANSFER` of what to expect of another's; of
    several measured ones, the surer counts for more. What a type itself has shown outweighs that.
    """
    alone = {
        name: estimate(seen, reference_count=reference_count, width=widths[name])
        for name, seen in sorted(observations.items())
        if seen and name in widths
    }
    found = {}
    for name in sorted(widths):
        others = [one for other, one in alone.items() if other != name]
        if not others:
            found[name] = estimate(
                observations.get(name, ()), reference_count=reference_count, width=widths[name]
            )
            continue
        weights = [1.0 / one.variance for one in others]
        told = sum(w * one.log_factor for w, one in zip(weights, others, strict=True))
        # A share of the others' own uncertainty comes along with what they tell.
        variance = (1.0 - TRANSFER**2) * widths[name] ** 2 + TRANSFER**2 / sum(weights)
        found[name] = estimate(
            observations.get(name, ()),
            reference_count=reference_count,
            width=math.sqrt(variance),
            mean=TRANSFER * told / sum(weights),
        )
    return found


# --- the posterior ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Point:
    """A log ratio, where on the curve it was seen, and the variance of its error."""

    ratio: float
    x: float
    variance: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Prior:
    mean: float
    variance: float


def _points(observations: Sequence[RateObservation], reference_count: int) -> list[_Point]:
    ratios = [observation.log_ratio for observation in observations]
    centre = median(ratios)
    spread = _MAD_OF_NORMAL * median(abs(ratio - centre) for ratio in ratios)
    seen = len(ratios) - 1  # one report shows no spread
    noise = (_NOISE_REPORTS * _NOISE**2 + seen * spread**2) / (_NOISE_REPORTS + seen)
    noise = max(noise, _LEAST_NOISE**2)
    return [
        _Point(ratio, math.log(one.count / reference_count), noise / one.weight)
        for one, ratio in zip(observations, ratios, strict=True)
    ]


def _pull(residual: float, variance: float) -> float:
    """The precision at which a residual counts under Student's t."""
    return (_FREEDOM + 1.0) / (_FREEDOM * variance + residual * residual)


def _precision(
    points: Sequence[_Point], prior: _Prior, theta: float, phi: float, *, share: float = 1.0
) -> tuple[float, float, float]:
    """Precision of theta, of both, and of phi; reports and prior count by `share` of their pull."""
    p_theta = share * _pull(theta - prior.mean, prior.variance)
    p_both, p_phi = 0.0, 1.0 / _SLOPE_WIDTH**2
    for point in points:
        pull = share * _pull(point.ratio - theta - phi * point.x, point.variance)
        p_theta += pull
        p_both += pull * point.x
        p_phi += pull * point.x * point.x
    return p_theta, p_both, p_phi


def _mode(
    points: Sequence[_Point], prior: _Prior, start: float, *, bent: bool
) -> tuple[float, float]:
    """The mode of the posterior that reweighting leads to from `start`."""
    theta, phi = start, 0.0
    for _ in range(_MOST_STEPS):
        p_theta, p_both, p_phi = _precision(points, prior, theta, phi)
        to_theta = _pull(theta - prior.mean, prior.variance) * prior.mean
        to_phi = 0.0
        for point in points:
            pulled = _pull(point.ratio - theta - phi * point.x, point.variance) * point.ratio
            to_theta += pulled
            to_phi += pulled * point.x
        before = theta, phi
        if bent:
            determinant = p_theta * p_phi - p_both * p_both
            theta = (p_phi * to_theta - p_both * to_phi) / determinant
            phi = (p_theta * to_phi - p_both * to_theta) / determinant
        else:
            theta = to_theta / p_theta
        if abs(theta - before[0]) + abs(phi - before[1]) < 1e-9:
            break
    return theta, phi


def _loss(points: Sequence[_Point], prior: _Prior, theta: float, phi: float) -> float:
    """Minus the logarithm of the posterior, up to what is equal everywhere."""
    total = _cost(theta - prior.mean, prior.variance) + 0.5 * (phi / _SLOPE_WIDTH) ** 2
    for point in points:
        total += _cost(point.ratio - theta - phi * point.x, point.variance)
    return total


def _cost(residual: float, variance: float) -> float:
    return 0.5 * (_FREEDOM + 1.0) * math.log1p(residual * residual / (_FREEDOM * variance))
