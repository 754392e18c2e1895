"""Paths of counts that nobody publishes: drawn from what was believed, agreeing with what was seen."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from spotline.domain.beliefs.count_laws import LEVEL_STARTS, CountBelief, count_laws
from spotline.domain.beliefs.count_paths import paths_onward
from spotline.domain.beliefs.spot_beliefs import BelievedOffering
from spotline.domain.market.law import AGE_STARTS
from spotline.domain.market.prior_laws import shipped_priors

LAWS = count_laws(shipped_priors(), 1800)
AGES = len(AGE_STARTS)
# What slots showed: so many held, and room for so many more (-1: nothing was refused).
SEEN = ((0, 0), (0, -1), (4, -1), (4, 0), (0, 0), (0, -1), (0, 3))


def lived(paths, seen=SEEN, *, job="j", homes=None):
    """Paths of a job through slots that showed this, and what was believed after each."""
    known = BelievedOffering(belief=CountBelief.before(LAWS))
    now, told = None, []
    for slot, (held, room) in enumerate(seen):
        if slot:
            known.belief.advance()
        known.room = room
        known.settle("o", slot, held)
        home = "o" if homes is None else homes[slot]
        now = paths_onward(now, known, offering_id=home, paths=paths, seed=f"{job} {slot}")
        told.append((now, known.belief.levels(), known.levels_seen, known.foreseen))
    return told


def test_every_path_agrees_with_what_every_slot_showed():
    for (held, _), (now, _, (low, high), _) in zip(SEEN, lived(32), strict=True):
        levels = {state // AGES for _, state in now.at}
        assert levels <= set(range(low, high + 1))
        assert min(now.counts(held)) >= held
        assert set(now.counts(0)) <= set(LEVEL_STARTS)


def test_in_every_slot_paths_are_drawn_from_what_was_believed_at_its_end():
    told = [lived(64, job=f"job {number}") for number in range(12)]

    for slot in range(len(SEEN)):
        drawn = Counter(state // AGES for each in told for _, state in each[slot][0].at)
        shares = np.array([drawn[level] for level in range(len(LEVEL_STARTS))]) / drawn.total()
        assert np.abs(shares - told[0][slot][1]).max() < 0.07


def test_jobs_have_paths_of_their_own_and_equal_events_equal_ones():
    assert lived(16)[-1][0] == lived(16)[-1][0]
    assert lived(16)[-1][0].at != lived(16, job="k")[-1][0].at


def test_what_was_foreseen_for_certain_costs_no_agreement():
    (_, *later) = [now.agreed for now, *_ in lived(2)]
    foreseen = [chance for *_, chance in lived(2)][1:]

    assert later == pytest.approx(list(np.cumprod(foreseen)))
    assert foreseen[0] == 1.0 > foreseen[1]


def test_at_another_home_paths_begin_anew_and_agreement_is_kept():
    moved = lived(8, homes=["o", "o", "o", "p", "p", "p", "p"])

    assert moved[3][0].agreed == moved[2][0].agreed
    assert moved[3][0].offering_id == "p"
    assert moved[4][0].agreed < moved[3][0].agreed
