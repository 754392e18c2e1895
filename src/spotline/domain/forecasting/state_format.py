"""A forecaster's state as bytes: a readable header with versions, then the packed state."""

from __future__ import annotations

import hashlib
import io
import json
import pickle
import zlib
from typing import Any

_MAGIC = b"spotline-forecaster\n"
_ALLOWED_PREFIXES = ("spotline.domain.", "river.")
_ALLOWED = {
    ("builtins", "float"),
    ("builtins", "int"),
    ("builtins", "object"),
    ("collections", "defaultdict"),
    ("collections", "deque"),
    ("copyreg", "_reconstructor"),
    ("numpy", "dtype"),
    ("numpy._core.numeric", "_frombuffer"),
}


class _StateUnpickler(pickle.Unpickler):
    """Loads our own and River's classes and arrays only: a snapshot must not be able to run anything."""

    def find_class(self, module: str, name: str) -> Any:
        if module.startswith(_ALLOWED_PREFIXES) or (module, name) in _ALLOWED:
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"{module}.{name} does not belong into a forecaster's state")


def state_version(model: str, versions: dict[str, str]) -> str:
    """Name a model and the versions its state depends on, for a store of snapshots."""
    return " ".join([model, *(f"{name}={versions[name]}" for name in sorted(versions))])


def pack(model: str, versions: dict[str, str], state: object) -> bytes:
    """Write `state` with the model's name and the versions it depends on."""
    buffer = io.BytesIO()
    pickler = pickle.Pickler(buffer, protocol=5)
    # Without the memo the bytes depend on values alone, not on which equal objects are shared.
    pickler.fast = True
    pickler.dump(state)
    body = zlib.compress(buffer.getvalue(), 1)
    header = {"model": model, "versions": versions, "sha256": hashlib.sha256(body).hexdigest()}
    return _MAGIC + json.dumps(header, sort_keys=True).encode() + b"\n" + body


def unpack(model: str, versions: dict[str, str], data: bytes) -> Any:
    """Read what `pack` wrote.

    Raises
    ------
    ValueError
        Not a forecaster's state, damaged, of another model, or of other versions.
    """
    if not data.startswith(_MAGIC):
        raise ValueError("a forecaster's state must start with its header, these bytes do not")
    header_line, separator, body = data[len(_MAGIC) :].partition(b"\n")
    try:
        header = json.loads(header_line)
    except ValueError as error:
        raise ValueError("the header of a forecaster's state is damaged") from error
    if not separator or header.get("sha256") != hashlib.sha256(body).hexdigest():
        raise ValueError("a forecaster's state is damaged: its checksum differs")
    if header["model"] != model:
        raise ValueError(f"the state must be of forecaster {model}, was of {header['model']}")
    if header["versions"] != versions:
        raise ValueError(
            f"the state of forecaster {model} needs {versions}, was written by "
            f"{header['versions']}: install that version or learn again from the log"
        )
    try:
        return _StateUnpickler(io.BytesIO(zlib.decompress(body))).load()
    except (pickle.UnpicklingError, AttributeError, ImportError) as error:
        raise ValueError(f"the state of forecaster {model} cannot be read: {error}") from error
