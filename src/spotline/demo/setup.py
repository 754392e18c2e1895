"""The market and the jobs of a demo."""

from __future__ import annotations

from pathlib import Path

from spotline.adapters.market.parquet import read_market
from spotline.domain.jobs.draft import JobDraft
from spotline.domain.jobs.job import Job
from spotline.domain.market.generate import generate
from spotline.domain.market.market import Market
from spotline.replay.jobs import generated_draft, generated_jobs

# 2026-01-05, a Monday: generated markets need a date, not today's.
_START_NS = 1_767_571_200_000_000_000
_SLOT_S = 1800
_SLOTS = 288


def demo_market(path: Path | None, *, seed: int, slot_s: int, most_slots: int) -> Market:
    """The market of a file, or a generated one, as a demo runs it.

    Parameters
    ----------
    slot_s
        Seconds; 0 is half an hour, or the market's own if that does not fit.
    most_slots
        The market is cut behind as many.

    Raises
    ------
    ContractError
        The file is absent or no market, or its slots do not fit.
    """
    market = _market(path, seed=seed, slot_s=slot_s)
    return market.between(0, min(most_slots, market.slots))


def _market(path: Path | None, *, seed: int, slot_s: int) -> Market:
    if path is None:
        return generate(
            "mixed", seed=seed, slots=_SLOTS, slot_s=slot_s or _SLOT_S, start_ns=_START_NS
        )
    market = read_market(path)
    if not slot_s:
        fits = market.slot_s < _SLOT_S and _SLOT_S % market.slot_s == 0
        slot_s = _SLOT_S if fits else market.slot_s
    return market.resampled(slot_s)


def demo_jobs(market: Market, jobs: int, seed: int) -> tuple[Job | JobDraft, ...]:
    """As many jobs for a market; the last of several states only what a draft must."""
    # None where the market has no GPU that is known.
    draft = generated_draft(market, seed) if jobs > 1 else None
    drafts = () if draft is None else (draft,)
    return (*generated_jobs(market, jobs - len(drafts), seed), *drafts)
