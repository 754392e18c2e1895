"""What the program tells its agent: lines of `events.jsonl` (ADR 0031)."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any


class RunEvents:
    """Appends a line at a time; several ranks may share the file.

    Parameters
    ----------
    run_dir
        The folder of the agent; None: outside Spotline, and nothing is written.
    rank, generation
        Stand in every line.
    """

    def __init__(self, run_dir: Path | None, *, rank: int, generation: int) -> None:
        self._path = run_dir and run_dir / "events.jsonl"
        self._rank = rank
        self._generation = generation

    def append(self, kind: str, **fields: Any) -> None:
        """Append an event. Its line is one write, so that lines of several ranks never mix.

        Raises
        ------
        OSError
            The line could not be written whole.
        """
        if self._path is None:
            return
        event = {
            "kind": kind,
            **fields,
            "rank": self._rank,
            "generation": self._generation,
            "at_s": time.time(),
        }
        line = json.dumps(event, separators=(",", ":")).encode() + b"\n"
        handle = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            if (written := os.write(handle, line)) != len(line):
                raise OSError(f"{self._path}: wrote {written} of {len(line)} bytes")
        finally:
            os.close(handle)

    def past(self) -> Iterator[dict[str, Any]]:
        """Yield the events of earlier programs on this instance; lines cut short are left out."""
        if self._path is None:
            return
        try:
            lines = self._path.read_bytes().splitlines()
        except FileNotFoundError:
            return
        for line in lines:
            try:
                event = json.loads(line)
            except ValueError:  # a writer was killed within the line
                continue
            if isinstance(event, dict):
                yield event
