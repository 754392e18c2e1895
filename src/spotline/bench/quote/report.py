"""The figures of `spotline bench quote`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spotline.bench.quote.run import METHODS, Quoted, reliability, scored

ALL = "all"


def figures_of(
    quoted: Mapping[str, tuple[Quoted, ...]],
    recorded: Mapping[str, str],
    *,
    seed: int,
    command: str,
) -> dict[str, Any]:
    """What `--json` writes: every method's scores by market and over all, and reliability."""
    every = tuple(each for of in quoted.values() for each in of)
    named = {**quoted, ALL: every}
    return {
        "meta": {"command": command, "seed": seed, "recorded": dict(recorded)},
        "markets": {
            name: {method: scored(of, method) for method in METHODS} for name, of in named.items()
        },
        "reliability": reliability(every, "outlook"),
        "jobs": {
            name: [
                {
                    "job_id": each.job_id,
                    "hard": each.hard,
                    "slots_known": each.slots_known,
                    "cost_micro_usd": each.cost,
                    "on_time": each.on_time,
                    "finish_ns": each.finish_ns,
                    **{
                        method: {
                            "cost_p10_micro_usd": said.p10,
                            "cost_p50_micro_usd": said.p50,
                            "cost_p90_micro_usd": said.p90,
                            "on_time_probability": said.on_time,
                        }
                        for method, said in each.said.items()
                    },
                }
                for each in of
            ]
            for name, of in quoted.items()
        },
    }
