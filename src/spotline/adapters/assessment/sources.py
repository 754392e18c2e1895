"""Where an assessment came from: its files and the command, for whoever checks it."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from spotline.adapters.whole_file import opened
from spotline.contracts.errors import ContractError

_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadFile:
    """A file that was read, with the SHA-256 of its bytes."""

    option: str
    path: str
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AssessmentSources:
    """What was read, by which version, and what makes the answer again."""

    files: tuple[ReadFile, ...]
    version: str
    words: tuple[str, ...]

    @property
    def command(self) -> str:
        """The command, as a shell takes it."""
        return shlex.join(self.words)


def read_file(option: str, path: Path) -> ReadFile:
    """Name a file by its bytes.

    Raises
    ------
    ContractError
        It is a pipe or the like, which can be read once only.
    OSError
        It cannot be read.
    """
    if path.is_fifo() or path.is_char_device():
        raise ContractError(str(path), "expected a file, which is read twice, found a pipe")
    digest = hashlib.sha256()
    with opened(path) as stream:
        while chunk := stream.read(_CHUNK):
            digest.update(chunk)
    return ReadFile(option=option, path=str(path), sha256=digest.hexdigest())


def command_words(named: Mapping[str, Path], others: Sequence[str]) -> tuple[str, ...]:
    """The words of the command that reads these files, by option."""
    words = [word for option, path in named.items() for word in (option, str(path))]
    return ("spotline", "assess", *words, *others)
