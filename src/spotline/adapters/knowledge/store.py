"""The knowledge base file: measured runs as one Parquet table, the same bytes for the same runs.

The format is described in docs/knowledge-format.md.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from spotline.adapters.whole_file import replacing
from spotline.contracts.errors import ContractError
from spotline.domain.configuration.configuration import (
    Configuration,
    MeasuredRun,
    Method,
    MethodOption,
    RunOutcome,
)

FORMAT_VERSION = 1
METADATA_KEY = "spotline.knowledge"

# Column -> kind; the order is the order in the file, and of the sort.
COLUMNS = {
    "stack": "text",
    "model_name": "text",
    "method": "text",
    "gpu_model": "text",
    "gpus": "integer",
    "nodes": "integer",
    "tokens_per_sample": "integer",
    "batch_size": "integer",
    "precision": "text",
    "expert_parallel": "integer",
    "model_parameters": "integer",
    "options": "text",
    "outcome": "text",
    "tokens_per_s": "number",
    "peak_memory_gb": "number",
    "runtime_s": "number",
}
_TYPES: dict[str, type] = {"text": str, "integer": int, "number": float}


def merged(*runs: Iterable[MeasuredRun]) -> tuple[MeasuredRun, ...]:
    """All runs that differ, sorted: merging again, or in another order, changes nothing."""
    every = {run: _cells(run) for part in runs for run in part}
    return tuple(sorted(every, key=every.__getitem__))


def knowledge_digest(runs: Sequence[MeasuredRun]) -> str:
    """SHA-256 of the runs' content, whatever their order and the library that wrote the file."""
    digest = hashlib.sha256(f"{METADATA_KEY} {FORMAT_VERSION}\n".encode())
    for run in merged(runs):
        digest.update(json.dumps(_cells(run), ensure_ascii=False).encode() + b"\n")
    return digest.hexdigest()


def write_knowledge(runs: Sequence[MeasuredRun], path: Path) -> str:
    """Write the runs to `path`, replacing it whole or not at all; returns their digest.

    Raises
    ------
    OSError
        The folder is absent or not writable.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    types = {"text": pa.string(), "integer": pa.int64(), "number": pa.float64()}
    every = merged(runs)
    rows = [_cells(run) for run in every]
    digest = knowledge_digest(every)
    table = pa.table(
        {
            name: pa.array([row[index] for row in rows], types[kind])
            for index, (name, kind) in enumerate(COLUMNS.items())
        }
    ).replace_schema_metadata(
        {METADATA_KEY: json.dumps({"digest": digest, "format_version": FORMAT_VERSION})}
    )
    with replacing(path) as unfinished:
        pq.write_table(table, unfinished, compression="zstd")
    return digest


def is_knowledge_file(path: Path) -> bool:
    """Whether this is a Parquet file that says it is a knowledge base."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if not path.is_file():
        return False
    try:
        with path.open("rb") as stream:
            if stream.read(4) != b"PAR1":
                return False
            metadata = pq.read_schema(stream).metadata
    except (pa.ArrowException, OSError):
        return False
    return METADATA_KEY.encode() in (metadata or {})


def read_knowledge(path: Path) -> tuple[MeasuredRun, ...]:
    """Read a knowledge base and check every row of it.

    Raises
    ------
    ContractError
        The file is absent, not a knowledge base, of another version, or a row breaks the format;
        file, row (from 1) and field are named.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    if not path.is_file():
        raise ContractError(str(path), "expected a knowledge base (Parquet), found no such file")
    try:
        with path.open("rb") as stream:
            table = pq.ParquetFile(stream).read()
    except (pa.ArrowException, OSError) as error:
        raise ContractError(
            str(path),
            "expected a knowledge base (`spotline knowledge import` makes one), found another or "
            f"a truncated file ({error})",
        ) from error
    _check_version(table.schema.metadata, path)
    columns = []
    for name in COLUMNS:
        if name not in table.column_names:
            raise ContractError(
                str(path), f"expected the column {name}, found {', '.join(table.column_names)}"
            )
        columns.append(table.column(name).to_pylist())
    return tuple(
        _run(cells, f"{path}: row {number}")
        for number, cells in enumerate(zip(*columns, strict=True), start=1)
    )


def _check_version(metadata: Any, path: Path) -> None:
    where = f"{path}: metadata {METADATA_KEY}"
    text = (metadata or {}).get(METADATA_KEY.encode())
    if text is None:
        raise ContractError(
            where,
            "expected a knowledge base (`spotline knowledge import` makes one), found no such "
            "metadata",
        )
    try:
        version = json.loads(text)["format_version"]
    except (ValueError, KeyError, TypeError) as error:
        raise ContractError(where, f"expected a format_version, found {text!r}") from error
    if version != FORMAT_VERSION:
        raise ContractError(where, f"expected format_version {FORMAT_VERSION}, found {version!r}")


def _cells(run: MeasuredRun) -> tuple[Any, ...]:
    """A run's cells, in the order of `COLUMNS`."""
    of = run.configuration
    return (
        run.stack,
        of.model_name,
        of.method.value,
        of.gpu_model,
        of.gpus,
        of.nodes,
        of.tokens_per_sample,
        of.batch_size,
        of.precision,
        of.expert_parallel,
        of.model_parameters,
        json.dumps({option.name: option.value for option in of.options}, separators=(",", ":")),
        run.outcome.value,
        float(run.tokens_per_s),
        float(run.peak_memory_gb),
        float(run.runtime_s),
    )


def _run(cells: tuple[Any, ...], where: str) -> MeasuredRun:
    values = dict(zip(COLUMNS, cells, strict=True))
    for name, kind in COLUMNS.items():
        if type(values[name]) is not _TYPES[kind]:
            raise ContractError(f"{where}, field {name}", f"expected {kind}, found {values[name]}")
    try:
        options = json.loads(values["options"])
        return MeasuredRun(
            configuration=Configuration(
                model_name=values["model_name"],
                method=Method(values["method"]),
                gpu_model=values["gpu_model"],
                gpus=values["gpus"],
                nodes=values["nodes"],
                tokens_per_sample=values["tokens_per_sample"],
                batch_size=values["batch_size"],
                precision=values["precision"],
                expert_parallel=values["expert_parallel"],
                model_parameters=values["model_parameters"],
                options=tuple(
                    MethodOption(name=name, value=value) for name, value in sorted(options.items())
                ),
            ),
            stack=values["stack"],
            outcome=RunOutcome(values["outcome"]),
            tokens_per_s=values["tokens_per_s"],
            peak_memory_gb=values["peak_memory_gb"],
            runtime_s=values["runtime_s"],
        )
    except (ValueError, AttributeError) as error:
        raise ContractError(where, str(error)) from error
