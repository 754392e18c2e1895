"""What the program tells its agent: lines of `events.jsonl` (ADR 0031)."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def warn(text: str) -> None:
    """Say something in the program's output, which the agent collects."""
    sys.stderr.write(f"spotline.trainer: {text}\n")
    sys.stderr.flush()


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
        self._torn = False

    def append(self, kind: str, **fields: Any) -> bool:
        """Append an event. Its line is one write, so that lines of several ranks never mix.

        Returns
        -------
        bool
            False: it could not be written, and that is in the program's output. Training goes on:
            checkpoints are found without it.
        """
        if self._path is None:
            return True
        event = {
            "kind": kind,
            **fields,
            "rank": self._rank,
            "generation": self._generation,
            "at_s": time.time(),
        }
        line = json.dumps(event, separators=(",", ":")).encode() + b"\n"
        if self._torn:  # the rest of a line that was cut short is not part of this one
            line = b"\n" + line
        try:
            handle = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
            try:
                written = os.write(handle, line)
            finally:
                os.close(handle)
        except OSError as error:
            warn(f"{kind} was not told: {error}")
            return False
        self._torn = written < len(line)
        if self._torn:
            warn(f"{kind} was not told: {self._path}: {written} of {len(line)} bytes written")
        return not self._torn

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
