"""What a scheduler remembers of its jobs: which kind of file it is, by its content."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from spotline.adapters.histories.jobs_csv import jobs_of_csv
from spotline.adapters.histories.kueue import jobs_of_kueue
from spotline.adapters.histories.skypilot import jobs_of_skypilot
from spotline.adapters.histories.slurm import jobs_of_slurm
from spotline.adapters.market.parse import json_value, read_text, shown
from spotline.adapters.table_cells import Wrong
from spotline.contracts.errors import ContractError
from spotline.domain.assessment.lines import HistoryJob

_EXPECTED = (
    "expected jobs of SkyPilot (`sky jobs queue -o json`), Kueue (`kubectl get workloads -A -o json`), "
    "Slurm (`sacct -P`, with its header) or a CSV with job_id and begin"
)


def read_history(path: Path) -> Sequence[HistoryJob]:
    """Read the jobs that ran, in order of their beginning.

    Raises
    ------
    ContractError
        It cannot be read, is of no kind that is known, holds no job that ran, or has a field that is
        wrong; names file, entry and field.
    """
    text = read_text(path)
    try:
        jobs = _jobs(text, path)
    except Wrong as error:
        raise ContractError(
            f"{path}: {error.column}", f"expected {error.expected}, found {shown(error.found)}"
        ) from error
    if not jobs:
        raise ContractError(str(path), "expected jobs that ran, found none")
    return sorted(jobs, key=lambda job: (job.begin_s, job.job_id))


def _jobs(text: str, path: Path) -> Sequence[HistoryJob]:
    if text.lstrip().startswith(("{", "[")):
        document = json_value(text, str(path))
        entries = document
        if isinstance(document, dict):
            if isinstance(document.get("items"), list):
                return jobs_of_kueue(document["items"])
            entries = document.get("jobs", document.get("managed_jobs"))
        if isinstance(entries, list):
            return jobs_of_skypilot(entries)
        raise ContractError(str(path), f"{_EXPECTED}, found JSON with neither items nor jobs")
    header = text.partition("\n")[0]
    if "|" in header:
        return jobs_of_slurm(text)
    if "," in header or header.strip() == "job_id":
        return jobs_of_csv(text)
    raise ContractError(f"{path}: line 1", f"{_EXPECTED}, found {shown(header)}")
