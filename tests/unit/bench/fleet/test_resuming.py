"""Cells of earlier runs stand beside those of this one, if they are alike."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from spotline.bench.fleet.cells import cell_named
from spotline.bench.fleet.resuming import cells_left, earlier_figures, joined_figures
from spotline.contracts.errors import ContractError

CELLS = tuple(cell_named(f"generated/{jobs}/0.8/cold") for jobs in (60, 240, 1000))
META = {
    "seeds": [1],
    "policies": ["msu"],
    "clearing": True,
    "shadow_prices": True,
    "information": "full",
    "fairness": 1.0,
    "most_bidders": 400,
}


def figures_of(*names: str, wall_s: float = 1.0) -> dict[str, Any]:
    return {
        "command": "bench fleet",
        "cells": {name: {"msu": {"run": wall_s}} for name in names},
        "crowds": {f"{name} crowd": {} for name in names},
        "notes": [f"note of {name}" for name in names],
        "meta": {**META, "wall_s": wall_s},
    }


def test_only_cells_that_no_earlier_run_has_are_left() -> None:
    earlier = [figures_of(CELLS[1].name), figures_of()]

    assert cells_left(CELLS, earlier) == (CELLS[0], CELLS[2])


def test_cells_of_all_runs_stand_in_the_order_they_are_asked_for() -> None:
    earlier = [figures_of(CELLS[2].name, wall_s=5.0), figures_of(CELLS[0].name, wall_s=7.0)]

    joined = joined_figures(CELLS, earlier, figures_of(CELLS[1].name, wall_s=2.0))

    assert list(joined["cells"]) == [cell.name for cell in CELLS]
    assert [rows["msu"]["run"] for rows in joined["cells"].values()] == [7.0, 2.0, 5.0]
    assert len(joined["crowds"]) == len(joined["notes"]) == 3
    assert joined["meta"]["wall_s"] == 14.0


@pytest.mark.parametrize(
    ("name", "other"),
    [("seeds", [1, 2]), ("shadow_prices", False), ("fairness", 2.0), ("most_bidders", 0)],
)
def test_a_run_with_other_options_is_refused(name: str, other: object) -> None:
    with pytest.raises(ContractError, match=name):
        joined_figures(
            CELLS[:1],
            [figures_of(CELLS[0].name) | {"meta": {**META, "wall_s": 1.0, name: other}}],
            figures_of(),
        )


def test_what_was_written_is_read_again_and_what_is_none_refused(tmp_path: Path) -> None:
    written, other = tmp_path / "figures.json", tmp_path / "other.json"
    written.write_text(json.dumps(figures_of(CELLS[0].name)), encoding="utf-8")
    other.write_text("[]", encoding="utf-8")

    assert earlier_figures([written]) == [figures_of(CELLS[0].name)]
    with pytest.raises(ContractError, match="must hold figures"):
        earlier_figures([written, other])
    with pytest.raises(ContractError, match="cannot be read"):
        earlier_figures([tmp_path / "absent.json"])
