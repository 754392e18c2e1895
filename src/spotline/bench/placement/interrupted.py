"""Spot that is taken back: what it costs, and whether knowing how likely it is pays."""

from __future__ import annotations

from typing import Any

from spotline.bench.placement.moves import PayingMoves
from spotline.bench.placement.settings_real import (
    RealTables,
    ends_per_hour,
    real_setting,
    starts_ns,
)
from spotline.bench.placement.sweeps import (
    FIXED,
    METHOD_IDS,
    OURS,
    Contender,
    RunTally,
    changes,
    chosen,
    mean_of,
    spread,
)
from spotline.bench.placement.unaware import Unaware, UnawareMoves
from spotline.domain.placement.methods.registry import METHODS

# Draws from 100 on were looked at while constants were chosen.
DRAWS = (0, 1, 2)
NO_RISK = "spotline_no_risk"
FIXED_NO_RISK = "spotline_fixed_no_risk"

Figures = dict[str, Any]


def interrupted(tally: RunTally, tables: RealTables, starts: int) -> Figures:
    """All methods under the same interruptions, and ours without being told their rates."""
    contenders = {**chosen(METHOD_IDS), **_unaware()}
    calm, struck = [], []
    for place, start_ns in enumerate(starts_ns(tables, starts)):
        calm.append(tally.measure(real_setting(tables, start_ns), contenders))
        for draw in DRAWS:
            setting = real_setting(tables, start_ns, draw=draw, shift=place)
            struck.append(tally.measure(setting, contenders))
    before, after = mean_of(calm), mean_of(struck)
    return {
        "runs": len(struck),
        "draws": len(DRAWS),
        "rates_per_hour": [
            {"ends": ends_per_hour(law, up=True), "returns": ends_per_hour(law, up=False)}
            for law in tables.laws
        ],
        "methods": {
            name: {
                **row,
                **{
                    f"{key}_against_calm": value
                    for key, value in changes(
                        {"calm": before[name], "struck": row}, "struck", "calm"
                    ).items()
                },
            }
            for name, row in after.items()
        },
        "knowing": {
            ours: _kept(spread(struck, (ours,), (blind,))[ours][blind])
            for ours, blind in ((OURS, NO_RISK), (FIXED, FIXED_NO_RISK))
        }
        | {
            f"{ours}_mean": changes(after, ours, blind)
            for ours, blind in ((OURS, NO_RISK), (FIXED, FIXED_NO_RISK))
        },
    }


def _unaware() -> dict[str, Contender]:
    blind = Unaware(METHODS[OURS])
    return {
        NO_RISK: Contender(blind, UnawareMoves(PayingMoves(blind))),
        FIXED_NO_RISK: Contender(blind),
    }


def _kept(row: Figures) -> Figures:
    return {key: value for key, value in row.items() if not key.endswith("percents")}
