"""A forecaster's state as bytes: a readable header with versions, then plain values.

`state_values` says what the values are. Nothing in the bytes names a class or a function, and
reading them makes what the reader expects or raises `ValueError`.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from typing import Any

from spotline.domain.forecasting.state_values import Rows, shape_of

_MAGIC = b"spotline-forecaster 2\n"
MOST_BYTES = 256 * 2**20
"""What a state may be when it is not compressed: thousands of offerings need less."""


def state_version(model: str, versions: dict[str, str]) -> str:
    """Name a model and the versions its state depends on, for a store of snapshots."""
    return " ".join([model, *(f"{name}={versions[name]}" for name in sorted(versions))])


def pack(model: str, versions: dict[str, str], state: object, kind: Any) -> bytes:
    """Write `state`, a value of the type `kind`, with the model's name and its versions."""
    rows = Rows()
    plain = shape_of(kind).write(state, rows)
    values = json.dumps(plain, separators=(",", ":")).encode() + b"\n" + rows.bytes
    body = zlib.compress(values, 1)
    header = {
        "bytes": len(values),
        "model": model,
        "sha256": hashlib.sha256(body).hexdigest(),
        "versions": versions,
    }
    return _MAGIC + json.dumps(header, sort_keys=True).encode() + b"\n" + body


def unpack(model: str, versions: dict[str, str], data: bytes, kind: Any) -> Any:
    """Read what `pack` wrote.

    Raises
    ------
    ValueError
        Not a forecaster's state, damaged, of another model, of other versions, or no value of the
        type `kind`.
    """
    if not data.startswith(_MAGIC):
        raise ValueError("a forecaster's state must start with its header, these bytes do not")
    header_line, separator, body = data[len(_MAGIC) :].partition(b"\n")
    header = _header_of(header_line)
    if not separator or header["sha256"] != hashlib.sha256(body).hexdigest():
        raise ValueError("a forecaster's state is damaged: its checksum differs")
    if header["model"] != model:
        raise ValueError(f"the state must be of forecaster {model}, was of {header['model']}")
    if header["versions"] != versions:
        raise ValueError(
            f"the state of forecaster {model} needs {versions}, was written by "
            f"{header['versions']}: install that version or learn again from the log"
        )
    plain_line, _, numbers = _inflated(body, header["bytes"]).partition(b"\n")
    rows = Rows(numbers)
    try:
        state = shape_of(kind).read(json.loads(plain_line), rows)
        rows.check_empty()
    except (ValueError, OverflowError, RecursionError) as error:
        raise ValueError(f"the state of forecaster {model} cannot be read: {error}") from error
    return state


def _header_of(line: bytes) -> dict[str, Any]:
    try:
        header = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError("the header of a forecaster's state is damaged") from error
    if not isinstance(header, dict) or {*header} != {"bytes", "model", "sha256", "versions"}:
        raise ValueError(
            "the header of a forecaster's state must have bytes, model, sha256, versions"
        )
    return header


def _inflated(body: bytes, size: object) -> bytes:
    if type(size) is not int or not 0 <= size <= MOST_BYTES:
        raise ValueError(f"a forecaster's state must have at most {MOST_BYTES} bytes, was {size}")
    inflating = zlib.decompressobj()
    try:
        values = inflating.decompress(body, size + 1)
    except zlib.error as error:
        raise ValueError(f"a forecaster's state is damaged: {error}") from error
    if len(values) != size or not inflating.eof:
        raise ValueError(f"a forecaster's state is damaged: it must have {size} bytes")
    return values
