"""What a training program notes of every update, so that its owner can reckon up afterwards.

Every rank of every generation appends JSON lines to a file of its own. A contribution is noted
before it is made: whatever ends up in a checkpoint was noted by all ranks, whenever one is killed.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_NAME = re.compile(r"g(\d{8})-r(\d{4})\.jsonl")


class DiaryDamaged(ValueError):
    """A line that is not the last one of its file cannot be read."""


class Diary:
    """Appends the notes of one rank of one generation; a line is written out at once."""

    def __init__(self, folder: Path, *, generation: int, rank: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"g{generation:08d}-r{rank:04d}.jsonl"
        self._lines = path.open("a", encoding="utf-8", buffering=1)

    def began(self, *, step: int, world: int, parameters: str) -> None:
        """Note from which step it goes on, with how many ranks, and the digest of what it loaded."""
        self._note({"kind": "began", "step": step, "world": world, "parameters": parameters})

    def contributes(self, step: int, positions: Sequence[int]) -> None:
        """Note the samples whose gradients this rank adds to an update; before it does."""
        self._note({"kind": "update", "step": step, "positions": list(positions)})

    def lost(self, step: int, loss: float) -> None:
        """Note the training loss of an update, nats per token."""
        self._note({"kind": "loss", "step": step, "loss": loss})

    def reached(self, step: int, parameters: str) -> None:
        """Note the digest of the parameters after an update; before any checkpoint holds them."""
        self._note({"kind": "reached", "step": step, "parameters": parameters})

    def judged(self, step: int, held_out_loss: float) -> None:
        """Note the held-out loss after an update on the way."""
        self._note({"kind": "judged", "step": step, "held_out_loss": held_out_loss})

    def ended(self, step: int, *, held_out_loss: float, parameters: str) -> None:
        """Note the result."""
        self._note(
            {
                "kind": "ended",
                "step": step,
                "held_out_loss": held_out_loss,
                "parameters": parameters,
            }
        )

    def close(self) -> None:
        """Close the file."""
        self._lines.close()

    def _note(self, note: dict[str, Any]) -> None:
        # One write of a whole line: a kill leaves at most the last line cut.
        self._lines.write(
            json.dumps({**note, "at_s": time.time(), "cpu_s": time.process_time()}) + "\n"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """All that one rank of one generation noted, in order."""

    generation: int
    rank: int
    notes: tuple[dict[str, Any], ...]

    def of(self, kind: str) -> Iterator[dict[str, Any]]:
        """The notes of a kind."""
        return (note for note in self.notes if note["kind"] == kind)


def read_diary(folder: Path) -> tuple[Page, ...]:
    """Read all pages by generation and rank; a last line that was cut by a kill is left out.

    Raises
    ------
    DiaryDamaged
        Another line cannot be read.
    """
    pages = []
    for path in sorted(folder.glob("*.jsonl")):
        name = _NAME.fullmatch(path.name)
        if name is None:
            continue
        pages.append(Page(generation=int(name[1]), rank=int(name[2]), notes=tuple(_notes(path))))
    return tuple(pages)


def _notes(path: Path) -> Iterator[dict[str, Any]]:
    *whole, cut = path.read_text(encoding="utf-8").split("\n")
    del cut  # Empty where the last line is whole.
    for number, line in enumerate(whole, 1):
        try:
            yield json.loads(line)
        except json.JSONDecodeError as error:
            raise DiaryDamaged(f"{path}: line {number}: expected JSON, found {line!r}") from error
