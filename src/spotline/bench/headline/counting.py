"""From jobs to the three numbers, each with its sample."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.stats import beta

from spotline.application.focus.rows import FocusTotals
from spotline.bench.fleet.counting import BLOCK_SLOTS
from spotline.bench.headline.run import JobSeen
from spotline.domain.units import MICRO_USD_PER_USD, PPM

FloatArray = npt.NDArray[np.float64]

# What `spotline submit` asks for of a hard deadline.
PROMISED_PPM = 990_000
CONFIDENCE = 0.95
_RESAMPLES = 4_000


def money(jobs: Sequence[JobSeen], seed: int = 0) -> dict[str, Any]:
    """What a finished job costs under both, and the difference with its interval.

    All that was spent counts, on jobs that were never done as well. Blocks of slots of every crowd
    are drawn with replacement, both sides of a job together: jobs that begin at one time share a
    market. Fewer than two crowds give no interval.
    """
    ours, plain = (
        _usd([job.cost_micro_usd for job in jobs]),
        _usd([job.plain_cost_micro_usd for job in jobs]),
    )
    counts = {
        "finished": _flags(job.is_finished for job in jobs),
        "on_time": _flags(job.is_on_time for job in jobs),
        "plain_finished": _flags(job.plain_is_finished for job in jobs),
        "plain_on_time": _flags(job.plain_is_on_time for job in jobs),
    }
    found: dict[str, Any] = {"jobs": len(jobs)}
    found |= {name: int(flags.sum()) for name, flags in counts.items()}
    drawn = _drawn(jobs, seed) if len({job.seed for job in jobs}) > 1 else None
    for kind, name in (("finished", "finished_job"), ("on_time", "job_on_time")):
        mine, others = counts[kind], counts[f"plain_{kind}"]
        found[f"usd_per_{name}"] = _ratio(ours.sum(), mine.sum())
        found[f"plain_usd_per_{name}"] = _ratio(plain.sum(), others.sum())
        found[f"saved_usd_per_{name}"] = None
        if drawn is not None and mine.any() and others.any():
            # Draws without a single such job say nothing.
            theirs, own = (
                np.where(sums > 0, sums, np.nan) for sums in (drawn @ others, drawn @ mine)
            )
            said = drawn @ plain / theirs - drawn @ ours / own
            mean = plain.sum() / others.sum() - ours.sum() / mine.sum()
            low, high = np.nanpercentile(said, (2.5, 97.5))
            found[f"saved_usd_per_{name}"] = [float(low), float(mean), float(high)]
    return found


def _flags(said: Iterable[bool]) -> FloatArray:
    return np.fromiter(said, dtype=np.float64)


def _drawn(jobs: Sequence[JobSeen], seed: int) -> FloatArray:
    """How often every job comes in every resample, shape (resamples, jobs)."""
    blocks: dict[tuple[int, int], list[int]] = {}
    for index, job in enumerate(jobs):
        blocks.setdefault((job.seed, job.slot // BLOCK_SLOTS), []).append(index)
    rng = np.random.Generator(np.random.PCG64(seed))
    times = rng.multinomial(len(blocks), [1 / len(blocks)] * len(blocks), size=_RESAMPLES)
    found = np.zeros((_RESAMPLES, len(jobs)))
    for column, members in enumerate(blocks.values()):
        found[:, members] = times[:, [column]]
    return found


def promises(jobs: Sequence[JobSeen]) -> dict[str, Any]:
    """Deadlines kept of those promised, and the most that may be missed.

    Promised is what was told `PROMISED_PPM` on arrival. What was told less would have been refused at
    submit; it ran all the same, as with `--anyway`, and is counted apart. `most_missed` is the upper
    end of the one-sided 95 % interval (Clopper and Pearson, Biometrika 26, 1934).
    """
    promised = [job for job in jobs if job.told_ppm is not None and job.told_ppm >= PROMISED_PPM]
    refused = [job for job in jobs if job.told_ppm is not None and job.told_ppm < PROMISED_PPM]
    kept = sum(job.is_on_time for job in promised)
    return {
        "promised": len(promised),
        "kept": kept,
        "most_missed": most_missed(len(promised) - kept, len(promised)),
        "promised_hard": sum(job.is_hard for job in promised),
        "kept_hard": sum(job.is_hard and job.is_on_time for job in promised),
        "refused_at_submit": len(refused),
        "refused_and_kept": sum(job.is_on_time for job in refused),
        "not_told": len(jobs) - len(promised) - len(refused),
        "promised_from": PROMISED_PPM / PPM,
    }


def most_missed(missed: int, promised: int) -> float | None:
    """The upper end of the one-sided 95 % interval of a share; None of nothing."""
    if not promised:
        return None
    if missed == promised:
        return 1.0
    return float(beta.ppf(CONFIDENCE, missed + 1, promised - missed))


def explained(totals: FocusTotals) -> dict[str, Any]:
    """Dollars on the bill, and of them those that no decision explains."""
    return {
        "charges": totals.rows,
        "billed_usd": totals.billed_micro_usd / MICRO_USD_PER_USD,
        "unexplained_charges": totals.unexplained,
        "unexplained_usd": totals.unexplained_micro_usd / MICRO_USD_PER_USD,
    }


def numbers(jobs: Sequence[JobSeen], totals: Mapping[str, FocusTotals]) -> dict[str, Any]:
    """The three numbers, each with the label of what it was counted on."""
    return {
        "money": {"label": "simulated", **money(jobs)},
        "promises": {"label": "simulated", **promises(jobs)},
        "explained": {name: explained(of) for name, of in totals.items()},
    }


def _usd(micro_usd: Sequence[int]) -> FloatArray:
    return np.array(micro_usd, dtype=np.float64) / MICRO_USD_PER_USD


def _ratio(part: float, whole: float) -> float | None:
    return float(part / whole) if whole else None
