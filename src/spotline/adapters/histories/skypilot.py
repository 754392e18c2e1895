"""Managed jobs of SkyPilot: `sky jobs queue --all -o json`.

Fields: `ManagedJobRecord` in https://github.com/skypilot-org/skypilot/blob/master/sky/schemas/api/responses.py.
Times are seconds since the epoch; `cluster_resources` is such as `2x(gpus=A100:8, ...)[spot]`. A job's
cluster is named `<job_name>-<job_id>`, on the cloud with more behind it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from spotline.adapters.table_cells import Wrong, amount
from spotline.domain.assessment.lines import HistoryJob

_NODES = re.compile(r"\s*(\d{1,5})x")
_GPUS = re.compile(r":\s*(\d{1,3})\b")


def jobs_of_skypilot(entries: Sequence[Any]) -> list[HistoryJob]:
    """The jobs that began; raises `Wrong`."""
    jobs: list[HistoryJob] = []
    for number, entry in enumerate(entries, start=1):
        if not isinstance(entry, dict) or entry.get("job_id") is None:
            raise Wrong(f"job {number}, field job_id", "an object with the job's number", entry)
        begin = _time(entry, "start_at", number)
        if begin is None and _time(entry, "job_duration", number):
            begin = _time(entry, "submitted_at", number)
        if begin is None:
            continue
        jobs.append(_job(entry, number, begin))
    return jobs


def _job(entry: dict[str, Any], number: int, begin_s: int) -> HistoryJob:
    name = str(entry.get("job_name") or "")
    job_id = str(entry["job_id"])
    task = entry.get("task_id")
    resources = str(entry.get("cluster_resources") or entry.get("resources") or "")
    nodes, gpus = _NODES.match(resources), _GPUS.search(resources)
    end_s = _time(entry, "end_at", number)
    if end_s is not None and end_s < begin_s:
        raise Wrong(f"job {number}, field end_at", "a time not before start_at", entry["end_at"])
    restarts = amount(entry.get("recovery_count"), f"job {number}, field recovery_count")
    return HistoryJob(
        job_id=f"{name or 'job'}-{job_id}" + (f"-{task}" if task else ""),
        begin_s=begin_s,
        end_s=end_s,
        owner=str(entry.get("user_name") or ""),
        names=tuple(each for each in (job_id, name) if each),
        instances=int(nodes[1]) if nodes else 0,
        gpus=int(gpus[1]) if gpus else 0,
        restarts=int(restarts),
    )


def _time(entry: dict[str, Any], field: str, number: int) -> int | None:
    value = entry.get(field)
    if value is None:
        return None
    found = amount(value, f"job {number}, field {field}")
    if not 0 <= found < Decimal(1 << 33):
        raise Wrong(f"job {number}, field {field}", "seconds since the epoch", value)
    return int(found)
