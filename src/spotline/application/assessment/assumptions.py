"""What an assessment assumes where neither bill nor history says it, each with a name."""

from __future__ import annotations

from dataclasses import dataclass

from spotline.domain.jobs.job import DEFAULT_CHECKPOINT_INTERVAL_S, DEFAULT_OVERHEADS
from spotline.domain.units import PPM

SLACKS_PPM = (1_000_000, 1_200_000, 1_500_000, 2_000_000)
_MOST_SLACK_PPM = 10 * PPM


@dataclass(frozen=True, slots=True, kw_only=True)
class Assumptions:
    """How jobs are taken to run.

    Parameters
    ----------
    slacks_ppm
        Deadlines after the begin, in millionths of the work: 1,500,000 is half as long again.
    launch_s
        Seconds without progress whenever instances are started or replaced.
    lost_s
        Seconds of work that an interruption throws away: the whole interval between checkpoints, as
        no provider guarantees its notice (`domain/market/notice.py`).
    spot_share_ppm
        What spot costs of the list price where nothing else says it.
    futures
        How many courses that spot may have taken are lived through, by `seed`.
    most_lived
        Jobs that are lived through one by one; of more, some stand for others like them.
    """

    slacks_ppm: tuple[int, ...] = SLACKS_PPM
    launch_s: int = DEFAULT_OVERHEADS.launch_s
    lost_s: int = DEFAULT_CHECKPOINT_INTERVAL_S
    spot_share_ppm: int = PPM // 3
    futures: int = 60
    most_lived: int = 400
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse what no job can run by, with `ValueError`."""
        slacks = self.slacks_ppm
        if not slacks or list(slacks) != sorted(set(slacks)):
            raise ValueError(f"--slack must be numbers that ascend, was {_factors(slacks)}")
        if not PPM <= slacks[0] <= slacks[-1] <= _MOST_SLACK_PPM:
            raise ValueError(f"--slack must be numbers from 1 to 10, was {_factors(slacks)}")
        if not 1 <= self.spot_share_ppm <= 2 * PPM:
            raise ValueError(
                f"--spot-price-share must be > 0 and <= 2, was {self.spot_share_ppm / PPM}"
            )
        for name in ("launch_s", "lost_s", "seed"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must be >= 0, was {getattr(self, name)}")
        for name in ("futures", "most_lived"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be >= 1, was {getattr(self, name)}")


def _factors(slacks_ppm: tuple[int, ...]) -> str:
    return ",".join(f"{slack / PPM:g}" for slack in slacks_ppm)
