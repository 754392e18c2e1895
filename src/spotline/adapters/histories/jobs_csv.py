"""Jobs as a CSV that anybody can write; see docs/assess-formats.md."""

from __future__ import annotations

import csv
import io

from spotline.adapters.table_cells import Wrong, amount, time_s
from spotline.domain.assessment.lines import HistoryJob

REQUIRED = ("job_id", "begin")
OPTIONAL = ("end", "owner", "names", "instance_ids", "instances", "gpus", "restarts")


def jobs_of_csv(text: str) -> list[HistoryJob]:
    """The jobs; names and instance ids are separated by spaces. Raises `Wrong`."""
    reader = csv.DictReader(io.StringIO(text))
    there = reader.fieldnames or ()
    known = (*REQUIRED, *OPTIONAL)
    if any(name not in there for name in REQUIRED) or any(name not in known for name in there):
        expected = f"the columns {', '.join(REQUIRED)}, and of {', '.join(OPTIONAL)} any"
        raise Wrong("line 1", expected, ",".join(there))
    return [_job(row, number) for number, row in enumerate(reader, start=2)]


def _job(row: dict[str, str], number: int) -> HistoryJob:
    if None in row or None in row.values():
        raise Wrong(f"line {number}", "as many cells as the header has", ",".join(_cells(row)))
    if not row["job_id"]:
        raise Wrong(f"line {number}, column job_id", "a name", "")
    begin_s, _ = time_s(row["begin"], f"line {number}, column begin")
    end_s = None
    if row.get("end"):
        end_s, _ = time_s(row["end"], f"line {number}, column end")
        if end_s < begin_s:
            raise Wrong(f"line {number}, column end", "a time not before begin", row["end"])
    return HistoryJob(
        job_id=row["job_id"],
        begin_s=begin_s,
        end_s=end_s,
        owner=row.get("owner", ""),
        names=tuple(row.get("names", "").split()),
        nodes=tuple(row.get("instance_ids", "").split()),
        instances=_count(row, "instances", number),
        gpus=_count(row, "gpus", number),
        restarts=_count(row, "restarts", number),
    )


def _cells(row: dict[str, str]) -> list[str]:
    return [str(value) for value in row.values()]


def _count(row: dict[str, str], column: str, number: int) -> int:
    where = f"line {number}, column {column}"
    found = amount(row.get(column), where)
    if found < 0 or found != found.to_integral_value():
        raise Wrong(where, "a whole number of at least 0", row.get(column))
    return int(found)
