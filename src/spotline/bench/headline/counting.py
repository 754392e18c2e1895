"""From jobs to the three numbers, each with its sample."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.stats import beta

from spotline.bench.fleet.counting import BLOCK_SLOTS
from spotline.bench.headline.bills import SIMULATED, ReadBill
from spotline.bench.headline.run import JobSeen
from spotline.bench.quality.statistics import resampled_sums, time_lines
from spotline.domain.units import MICRO_USD_PER_USD, PPM

FloatArray = npt.NDArray[np.float64]

# What `spotline submit` asks for of a hard deadline.
PROMISED_PPM = 990_000
CONFIDENCE = 0.95
_RESAMPLES = 4_000


def money(jobs: Sequence[JobSeen], seed: int = 0) -> dict[str, Any]:
    """What a finished job costs under both, and the difference with its interval.

    All that was spent counts, on jobs that were never done as well. The interval is over moving blocks of
    slots (`resampled_sums`), both sides of a job together: jobs that begin at one time share a market,
    of whatever crowd they are.
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
    sums = _resampled(jobs, (ours, plain, *counts.values()), seed)
    drawn = dict(zip(("ours", "plain", *counts), sums, strict=True))
    for kind, name in (("finished", "finished_job"), ("on_time", "job_on_time")):
        mine, others = counts[kind], counts[f"plain_{kind}"]
        found[f"usd_per_{name}"] = _ratio(ours.sum(), mine.sum())
        found[f"plain_usd_per_{name}"] = _ratio(plain.sum(), others.sum())
        found[f"saved_usd_per_{name}"] = None
        if mine.any() and others.any():
            # Draws without a single such job say nothing.
            theirs, own = (
                np.where(drawn[of] > 0, drawn[of], np.nan) for of in (f"plain_{kind}", kind)
            )
            said = drawn["plain"] / theirs - drawn["ours"] / own
            mean = plain.sum() / others.sum() - ours.sum() / mine.sum()
            low, high = np.nanpercentile(said, (2.5, 97.5))
            found[f"saved_usd_per_{name}"] = [float(low), float(mean), float(high)]
    return found


def _flags(said: Iterable[bool]) -> FloatArray:
    return np.fromiter(said, dtype=np.float64)


def _resampled(jobs: Sequence[JobSeen], values: Sequence[FloatArray], seed: int) -> FloatArray:
    timelines = np.array([job.timeline for job in jobs], dtype=np.int64)
    starts = np.array([job.slot for job in jobs], dtype=np.int64)
    lines = time_lines(list(range(int(timelines.max()) + 1)), timelines, starts)
    return resampled_sums(
        values, lines, block_slots=BLOCK_SLOTS, seed=seed, resamples=_RESAMPLES, circular=True
    )


def promises(jobs: Sequence[JobSeen]) -> dict[str, Any]:
    """Deadlines kept of those promised, and the most that may be missed.

    Promised is what was told `PROMISED_PPM` on arrival. A hard deadline that was told less would have been
    refused at submit; it ran all the same, as with `--anyway`, and is counted apart. A soft one is taken
    without a promise. `most_missed` is the upper end of the one-sided 95 % interval (Clopper and Pearson,
    Biometrika 26, 1934).
    """
    promised = [job for job in jobs if job.told_ppm is not None and job.told_ppm >= PROMISED_PPM]
    less = [job for job in jobs if job.told_ppm is not None and job.told_ppm < PROMISED_PPM]
    refused = [job for job in less if job.is_hard]
    kept = sum(job.is_on_time for job in promised)
    return {
        "promised": len(promised),
        "kept": kept,
        "most_missed": most_missed(len(promised) - kept, len(promised)),
        "promised_hard": sum(job.is_hard for job in promised),
        "kept_hard": sum(job.is_hard and job.is_on_time for job in promised),
        "refused_at_submit": len(refused),
        "refused_and_kept": sum(job.is_on_time for job in refused),
        "without_promise": len(less) - len(refused),
        "without_promise_and_kept": sum(not job.is_hard and job.is_on_time for job in less),
        "not_told": len(jobs) - len(promised) - len(less),
        "promised_from": PROMISED_PPM / PPM,
    }


def most_missed(missed: int, promised: int) -> float | None:
    """The upper end of the one-sided 95 % interval of a share; None of nothing."""
    if not promised:
        return None
    if missed == promised:
        return 1.0
    return float(beta.ppf(CONFIDENCE, missed + 1, promised - missed))


def explained(bill: ReadBill) -> dict[str, Any]:
    """Dollars on the bill, and of them those that no decision explains."""
    totals = bill.totals
    return {
        "label": bill.label,
        "charges": totals.rows,
        "billed_usd": totals.billed_micro_usd / MICRO_USD_PER_USD,
        "unexplained_charges": totals.unexplained,
        "unexplained_usd": totals.unexplained_micro_usd / MICRO_USD_PER_USD,
    }


def numbers(jobs: Sequence[JobSeen], bills: Mapping[str, ReadBill]) -> dict[str, Any]:
    """The three numbers, each with the label of what it was counted on."""
    return {
        "money": {"label": SIMULATED, **money(jobs)},
        "promises": {"label": SIMULATED, **promises(jobs)},
        "explained": {name: explained(bill) for name, bill in bills.items()},
    }


def _usd(micro_usd: Sequence[int]) -> FloatArray:
    return np.array(micro_usd, dtype=np.float64) / MICRO_USD_PER_USD


def _ratio(part: float, whole: float) -> float | None:
    return float(part / whole) if whole else None
