"""Jobs of Slurm: `sacct -a -P --format=JobID,JobName,User,Start,End,NNodes,AllocTRES,NodeList,State`.

Columns: https://slurm.schedmd.com/sacct.html. Steps (`17.batch`) are left out; a job that was requeued
stands there once for each start (`--duplicates`). Times are the cluster's own and name no zone: they
are taken as UTC, so set `TZ=UTC` for sacct.
"""

from __future__ import annotations

import re
from dataclasses import replace

from spotline.adapters.table_cells import Wrong, amount, time_s
from spotline.domain.assessment.lines import HistoryJob

_REQUIRED = ("JobID", "Start", "End")
_NEVER = ("", "Unknown", "None")
_GPUS = re.compile(r"gres/gpu=(\d+)")
_RANGES = re.compile(r"([^,\[\]]+)(?:\[([\d,-]+)\])?([^,\[\]]*)")
_MOST_NODES = 10_000


def jobs_of_slurm(text: str) -> list[HistoryJob]:
    """The jobs that started; raises `Wrong`."""
    lines = text.splitlines()
    header = lines[0].rstrip("|").split("|")
    missing = [name for name in _REQUIRED if name not in header]
    if missing:
        raise Wrong("line 1", f"the columns {', '.join(_REQUIRED)}", lines[0])
    jobs: dict[str, HistoryJob] = {}
    for number, line in enumerate(lines[1:], start=2):
        if not line.strip():
            continue
        cells = line.split("|")
        if len(cells) < len(header):
            raise Wrong(f"line {number}", f"{len(header)} cells", line)
        row = dict(zip(header, cells, strict=False))
        if "." in row["JobID"] or row["Start"] in _NEVER:
            continue
        job = _job(row, number)
        before = jobs.get(job.job_id)
        jobs[job.job_id] = job if before is None else _again(before, job)
    return list(jobs.values())


def _job(row: dict[str, str], number: int) -> HistoryJob:
    if not row["JobID"]:
        raise Wrong(f"line {number}, column JobID", "the job's number", "")
    begin_s, _ = time_s(row["Start"], f"line {number}, column Start")
    end_s = None
    if row["End"] not in _NEVER:
        end_s, _ = time_s(row["End"], f"line {number}, column End")
        if end_s < begin_s:
            raise Wrong(f"line {number}, column End", "a time not before Start", row["End"])
    nodes = _nodes(row.get("NodeList", ""), number)
    count = int(amount(row.get("NNodes") or len(nodes), f"line {number}, column NNodes"))
    gpus = _GPUS.search(row.get("AllocTRES", ""))
    return HistoryJob(
        job_id=row["JobID"],
        begin_s=begin_s,
        end_s=end_s,
        owner=row.get("User", ""),
        names=tuple(name for name in (row.get("JobName", ""),) if name),
        nodes=nodes,
        instances=count,
        gpus=int(gpus[1]) // count if gpus and count else 0,
    )


def _again(before: HistoryJob, after: HistoryJob) -> HistoryJob:
    """A job that was requeued: from its first start to its last end."""
    ends = (before.end_s, after.end_s)
    return replace(
        after,
        begin_s=min(before.begin_s, after.begin_s),
        end_s=None if None in ends else max(end for end in ends if end is not None),
        nodes=tuple(dict.fromkeys((*before.nodes, *after.nodes))),
        restarts=before.restarts + 1,
    )


def _nodes(text: str, number: int) -> tuple[str, ...]:
    """The names of a list such as `gpu[001-003,7],login1`."""
    if text in ("", "None assigned", "Unknown"):
        return ()
    names: list[str] = []
    for head, ranges, tail in _RANGES.findall(text):
        if not ranges:
            names.append(head + tail)
            continue
        for part in ranges.split(","):
            first, _, last = part.partition("-")
            last = last or first
            if not (first.isdigit() and last.isdigit() and int(last) - int(first) < _MOST_NODES):
                raise Wrong(f"line {number}, column NodeList", "names such as gpu[1-4]", text)
            names += [
                f"{head}{index:0{len(first)}d}{tail}" for index in range(int(first), int(last) + 1)
            ]
    return tuple(names)
