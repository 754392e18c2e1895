"""Runs that are done, one a line of a file, so that many can be made in slices."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from spotline.bench.faults.report import FaultRun, FaultsReport, PlantRun
from spotline.contracts.errors import ConfigError


class KeptRuns:
    """A file of runs and planted bugs that are done; it need not be there yet.

    Raises
    ------
    ConfigError
        A line is none that was written here.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.runs: dict[tuple[str, int], FaultRun] = {}
        self.plants: dict[tuple[str, str], PlantRun] = {}
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        for number, line in enumerate(lines, start=1):
            try:
                self._take(json.loads(line))
            except (TypeError, ValueError) as error:
                raise ConfigError(
                    f"{path}:{number}: expected a run as --kept writes it, found {line[:60]!r}"
                ) from error

    def _take(self, said: Any) -> None:
        if not isinstance(said, dict):
            raise TypeError(f"must be an object, was {said!r}")
        if "plant" in said:
            plant = PlantRun(**said)
            self.plants[plant.family, plant.plant] = plant
            return
        lists = {name: tuple(value) for name, value in said.items() if isinstance(value, list)}
        run = FaultRun(**(said | lists))
        self.runs[run.family, run.seed] = run

    def keep(self, *done: FaultRun | PlantRun) -> None:
        """Add to the file what is done; what is empty is left out."""
        with self._path.open("a", encoding="utf-8") as file:
            for each in done:
                said = {name: value for name, value in asdict(each).items() if value != ()}
                file.write(json.dumps(said) + "\n")

    def report(self) -> FaultsReport:
        """All that the file held when it was opened."""
        report = FaultsReport(
            seeds=len(self.runs), runs=list(self.runs.values()), plants=list(self.plants.values())
        )
        report.sort()
        return report
