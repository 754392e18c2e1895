"""Cells of earlier runs stand beside those of this one, if they are alike."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from spotline.bench.command_options import keep_figures, write_figures
from spotline.bench.fleet import run
from spotline.bench.fleet.cells import cell_named
from spotline.bench.fleet.counting import Lives
from spotline.bench.fleet.resuming import cells_left, earlier_figures, joined_figures
from spotline.bench.fleet.run import FleetOptions, run_fleet
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
    "bound_passes": 60,
    "laws": "of today",
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


def test_cells_that_no_run_has_yet_are_left_out() -> None:
    joined = joined_figures(CELLS, [figures_of(CELLS[2].name)], figures_of(CELLS[0].name))

    assert list(joined["cells"]) == [CELLS[0].name, CELLS[2].name]


def played(task: run._Task, options: FleetOptions) -> run._Done:
    """What a crowd gives that takes no time."""
    money = np.full(20, float(task.crowd.seed))
    lives = Lives(utility=money, cost=money, late=0.0 * money, missed=np.zeros(20, dtype=np.int64))
    return run._Done(
        task=task,
        lives={start: dict.fromkeys(options.policies, lives) for start in task.starts},
        start=tuple(range(20)),
        tenant=("t",) * 20,
        figures={"recorded": "then", "bound_usd": 100.0, "bound_s": 0.0, "wall_s": {}},
        notes=(),
    )


def test_a_cell_is_kept_as_soon_as_all_its_crowds_have_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(run, "perform", played)
    options = FleetOptions(data=Path(), policies=("msu",), seeds=(1, 2), processes=1)
    told: list[str] = []
    kept: list[tuple[int, list[str]]] = []

    figures = run_fleet(
        CELLS, options, told.append, lambda found: kept.append((len(told), list(found["cells"])))
    )

    # The largest crowds run first; each cell has two.
    names = [cell.name for cell in CELLS]
    assert kept == [(2, names[2:]), (4, names[1:]), (6, names)]
    assert list(figures["cells"]) == names
    assert cells_left(CELLS, [figures]) == ()


def test_what_is_kept_is_whole_and_nothing_is_left_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "figures.json"
    told: list[str] = []

    keep_figures({"cells": {}}, path, told.append)
    keep_figures({"cells": {"a": 1}}, path, told.append)
    with pytest.raises(TypeError):
        keep_figures({"cells": {"a": object()}}, path, told.append)

    assert json.loads(path.read_text()) == {"cells": {"a": 1}}
    assert list(tmp_path.iterdir()) == [path]
    assert told == []


def test_on_a_full_disk_what_was_kept_stays_and_the_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "figures.json"
    told: list[str] = []
    keep_figures({"cells": {}}, path, told.append)
    written = Path.write_text

    def full(self: Path, text: str, encoding: str) -> int:
        written(self, text[:5], encoding=encoding)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_text", full)
    keep_figures({"cells": {"a": 1}}, path, told.append)
    with pytest.raises(OSError, match=r"No space left"):
        write_figures({"cells": {"a": 1}}, path)

    assert json.loads(path.read_text()) == {"cells": {}}
    assert list(tmp_path.iterdir()) == [path]
    assert len(told) == 1
    assert "could not be kept" in told[0]


def test_nothing_is_kept_in_what_is_no_file(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)

    keep_figures({"cells": {}}, pipe, pytest.fail)

    assert pipe.is_fifo()


def test_figures_go_where_a_link_leads_and_into_what_is_no_file(tmp_path: Path) -> None:
    place, link = tmp_path / "there.json", tmp_path / "link.json"
    link.symlink_to(place)

    write_figures({"cells": {}}, link)
    write_figures({"cells": {}}, Path(os.devnull))

    assert link.is_symlink()
    assert json.loads(place.read_text()) == {"cells": {}}


def test_cells_of_all_runs_stand_in_the_order_they_are_asked_for() -> None:
    earlier = [figures_of(CELLS[2].name, wall_s=5.0), figures_of(CELLS[0].name, wall_s=7.0)]

    joined = joined_figures(CELLS, earlier, figures_of(CELLS[1].name, wall_s=2.0))

    assert list(joined["cells"]) == [cell.name for cell in CELLS]
    assert [rows["msu"]["run"] for rows in joined["cells"].values()] == [7.0, 2.0, 5.0]
    assert len(joined["crowds"]) == len(joined["notes"]) == 3
    assert joined["meta"]["wall_s"] == 14.0


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("seeds", [1, 2]),
        ("shadow_prices", False),
        ("fairness", 2.0),
        ("most_bidders", 0),
        ("bound_passes", 30),
        ("laws", "of yesterday"),
    ],
)
def test_a_run_with_other_options_is_refused(name: str, other: object) -> None:
    with pytest.raises(ContractError, match=name):
        joined_figures(
            CELLS[:1],
            [figures_of(CELLS[0].name) | {"meta": {**META, "wall_s": 1.0, name: other}}],
            figures_of(),
        )


@pytest.mark.parametrize("name", ["bound_passes", "laws"])
def test_a_run_of_before_it_was_said_is_refused(name: str) -> None:
    said = {key: value for key, value in META.items() if key != name}

    with pytest.raises(ContractError, match=name):
        joined_figures(
            CELLS[:1],
            [figures_of(CELLS[0].name) | {"meta": {**said, "wall_s": 1.0}}],
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
