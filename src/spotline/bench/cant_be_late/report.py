"""Results of the benchmark: costs per pool and variant, paired gains, and the JSON document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from spotline.bench.cant_be_late.rules import Variant, cost_usd, missed, score
from spotline.bench.cant_be_late.ticks import FINISH_TICK

FloatArray = npt.NDArray[np.float64]

_RESAMPLES: Final = 4000
_RESAMPLING_SEED: Final = 7
_INTERVAL_PERCENT: Final = (2.5, 97.5)


@dataclass(slots=True, kw_only=True)
class PolicyRuns:
    """Runs of one policy, by variant and pool (zone); each value has shape (windows, columns)."""

    policy: str
    runs: dict[tuple[Variant, str], npt.NDArray[np.int64]] = field(default_factory=dict)
    run_s: float = 0.0
    table_s: float = 0.0

    def variants(self) -> list[Variant]:
        """Variants run, in order."""
        return list(dict.fromkeys(variant for variant, _ in self.runs))

    def pools(self) -> list[str]:
        """Pools run, in order."""
        return list(dict.fromkeys(pool for _, pool in self.runs))

    def mean_cost_usd(self, *, variant: Variant | None = None, pool: str | None = None) -> float:
        """Mean over the runs of a variant, of a pool, or of all."""
        return float(np.concatenate([cost_usd(runs) for runs in self._some(variant, pool)]).mean())

    def score(self, *, variant: Variant | None = None, pool: str | None = None) -> float:
        """Score of that mean cost."""
        return score(self.mean_cost_usd(variant=variant, pool=pool))

    def misses(self, *, variant: Variant | None = None, pool: str | None = None) -> int:
        """Runs that finished after the deadline."""
        return sum(
            int(missed(runs, of).sum())
            for (of, name), runs in self.runs.items()
            if variant in (None, of) and pool in (None, name)
        )

    def count(self) -> int:
        """Number of runs."""
        return sum(len(runs) for runs in self.runs.values())

    def ticks(self) -> int:
        """Ticks simulated."""
        return sum(int(runs[:, FINISH_TICK].sum()) for runs in self.runs.values())

    def _some(self, variant: Variant | None, pool: str | None) -> list[npt.NDArray[np.int64]]:
        return [
            runs
            for (of, name), runs in self.runs.items()
            if variant in (None, of) and pool in (None, name)
        ]


def interval_by_pool(values: Sequence[float]) -> list[float]:
    """Bootstrap interval (95 %) of a mean over pools: low, mean, high.

    Windows of one trace overlap, so pools are what is drawn again.
    """
    per_pool = np.array(values, dtype=np.float64)
    generator = np.random.default_rng(_RESAMPLING_SEED)
    drawn = generator.integers(0, len(per_pool), size=(_RESAMPLES, len(per_pool)))
    low, high = np.percentile(per_pool[drawn].mean(axis=1), _INTERVAL_PERCENT)
    return [float(low), float(per_pool.mean()), float(high)]


def compared(ours: PolicyRuns, others: Mapping[str, PolicyRuns]) -> dict[str, Any]:
    """Score of each other policy on the same windows, and the paired gain of ours in points."""
    pools = ours.pools()
    return {
        name: {
            "score": other.score(),
            "misses": other.misses(),
            "gain_points": interval_by_pool(
                [ours.score(pool=pool) - other.score(pool=pool) for pool in pools]
            ),
        }
        for name, other in others.items()
    }


def gap_share_percent(ours: float, base: float, best: float) -> float | None:
    """Share of the gap from a base to the best score that ours closes; None where there is none."""
    return 100.0 * (ours - base) / (best - base) if best > base else None


def document(
    outcome: PolicyRuns,
    *,
    grid: str,
    comparison: Mapping[str, Any],
    extra: Mapping[str, Any],
) -> dict[str, Any]:
    """The JSON document of one run of the benchmark."""
    pools = outcome.pools()
    return {
        "policy": outcome.policy,
        "grid": grid,
        "runs": outcome.count(),
        "misses": outcome.misses(),
        "mean_cost_usd": outcome.mean_cost_usd(),
        "score": outcome.score(),
        "ticks_per_s": outcome.ticks() / outcome.run_s if outcome.run_s > 0.0 else None,
        "pools": {
            pool: {"score": outcome.score(pool=pool), "misses": outcome.misses(pool=pool)}
            for pool in pools
        },
        "variants": [
            {
                "overhead_h": variant.overhead_h,
                "deadline_h": variant.deadline_h,
                "score": outcome.score(variant=variant),
                "mean_cost_usd": outcome.mean_cost_usd(variant=variant),
                "misses": outcome.misses(variant=variant),
            }
            for variant in outcome.variants()
        ],
        "score_interval": interval_by_pool([outcome.score(pool=pool) for pool in pools]),
        "table_s": outcome.table_s,
        "comparison": dict(comparison),
        **extra,
    }
