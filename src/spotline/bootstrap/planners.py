"""Compile the planners before anything waits for them.

numba compiles a kernel when it is first called, and all of them take about a minute. A service that
did so between two messages would not answer, and lose its place on the bus. What is compiled
stays on disk (`domain.kernels`), so this is paid once per release, user, numba and kind of processor.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import numba
import numpy as np
from llvmlite.binding import get_host_cpu_name

from spotline.domain.kernels import CACHE_FOLDER

_SLOT_S = 1800
_SLOTS = 7 * 48


def planners_compiled(folder: Path | None = CACHE_FOLDER) -> bool:
    """Whether `compile_planners` has run for these sources and kept what it compiled."""
    return folder is not None and _mark(folder).exists()


def compile_planners(folder: Path | None = CACHE_FOLDER) -> None:
    """Run jobs under the default policies, alone and in a crowd; once per folder.

    That draws on nearly every kernel that a service calls; what is left takes less than a second each.
    """
    if planners_compiled(folder):
        return
    from spotline.application.selector.options import SelectorOptions, for_crowds
    from spotline.domain.crowd.search import load_solvers
    from spotline.domain.market.generate import generate
    from spotline.replay.closed_loop import LoopOptions, closed_loop
    from spotline.replay.jobs import generated_jobs
    from spotline.replay.simulate import simulate
    from spotline.replay.summary import SPOTLINE

    market = generate("mixed", seed=0, slots=_SLOTS, slot_s=_SLOT_S, start_ns=0)
    jobs = generated_jobs(market, 1, 0)
    simulate(market, jobs, [SPOTLINE])
    crowd = for_crowds(SelectorOptions(rehearsals=0))
    closed_loop(market, jobs, [SPOTLINE], LoopOptions(selector=crowd))
    load_solvers()
    _compile_choice_of_homes()
    if folder is not None:
        # Without the mark, on a full disk say, they run again at the next start: no reason to stop.
        with suppress(OSError):
            _mark(folder).touch()


def _compile_choice_of_homes() -> None:
    """A job by itself may find all it wants at home, and ask for no other place."""
    from spotline.domain.jobs.accounting import Held, Standing
    from spotline.domain.jobs.offer import Offer
    from spotline.domain.jobs.program import SMALLEST_PROGRAM
    from spotline.domain.solvers.home_cost import SpotParts, Stint, slots_of_each_kind
    from spotline.domain.solvers.spot_stay import HomeValue, Stay, stay_worth

    whole = np.ones(1, dtype=np.int64)
    sure = np.ones((1, 1))
    slots_of_each_kind(sure, 0, Stint(1, 1), SpotParts(whole, whole, sure[0]))
    stay_worth(
        SMALLEST_PROGRAM,
        Standing(0, 0, Held(0, 0), 0, 0, 0, 0),
        Offer(1, 1, 0, 0, SMALLEST_PROGRAM.slot_s, 0, 1, 1, 0, -1, -1),
        HomeValue(table=None, chances=sure),
        Stay(instances=1, price=1, later_price=1, lasts=sure[0]),
    )


def _mark(folder: Path) -> Path:
    # numba compiles again for another version of itself, and for another processor.
    return folder / f"planners-compiled-{numba.__version__}-{get_host_cpu_name()}"
