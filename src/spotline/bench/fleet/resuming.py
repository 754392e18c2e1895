"""Cells of earlier runs of the ruler: twelve take hours on a busy machine, and need not run in one go."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from spotline.bench.fleet.cells import FleetCell
from spotline.contracts.errors import ContractError

# What must be the same for two cells to stand in one report.
_ALIKE = (
    *("seeds", "policies", "clearing", "shadow_prices", "information", "fairness"),
    *("most_bidders", "bound_passes", "laws"),
)
# Of runs that do not say: the bound had prices of instances alone, and prices were learned from all slots.
_UNSAID: Mapping[str, Any] = {"bound_passes": 30, "laws": "as before ADR 0094"}

Figures = Mapping[str, Any]


def earlier_figures(files: Iterable[Path]) -> list[Figures]:
    """Read what `spotline bench fleet --json` wrote.

    Raises
    ------
    ContractError
        A file cannot be read or holds something else.
    """
    found: list[Figures] = []
    for file in files:
        try:
            figures = json.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise ContractError("--resume", f"{file} cannot be read: {error}") from error
        parts = ("cells", "crowds", "notes", "meta")
        if not isinstance(figures, dict) or not all(part in figures for part in parts):
            raise ContractError("--resume", f"{file} must hold figures of `bench fleet --json`")
        found.append(figures)
    return found


def cells_left(cells: Iterable[FleetCell], earlier: Iterable[Figures]) -> tuple[FleetCell, ...]:
    """The cells that no earlier run has."""
    had = {name for figures in earlier for name in figures["cells"]}
    return tuple(cell for cell in cells if cell.name not in had)


def joined_figures(
    cells: Sequence[FleetCell], earlier: Sequence[Figures], figures: Figures
) -> dict[str, Any]:
    """The figures of a run with those that earlier runs have of the wanted cells, in their order.

    Cells that no run has yet are left out. The time is that of all runs together.

    Raises
    ------
    ContractError
        An earlier run was of other seeds, policies or options, as far as it says.
    """
    meta = figures["meta"]
    for one in earlier:
        for name in _ALIKE:
            said = one["meta"].get(name, _UNSAID.get(name, meta[name]))
            if said != meta[name]:
                raise ContractError("--resume", f"{name} must be {meta[name]}, was {said}")
    runs = [*earlier, figures]
    rows = {name: found for one in runs for name, found in one["cells"].items()}
    return {
        **figures,
        "cells": {cell.name: rows[cell.name] for cell in cells if cell.name in rows},
        "crowds": {name: found for one in runs for name, found in sorted(one["crowds"].items())},
        "notes": sorted({note for one in runs for note in one["notes"]}),
        "meta": {**meta, "wall_s": sum(one["meta"]["wall_s"] for one in runs)},
    }
