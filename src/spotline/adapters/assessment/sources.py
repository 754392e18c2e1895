"""Where an assessment came from: its files and the command, for whoever checks it."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from spotline.adapters.bills.reading import files_of
from spotline.adapters.whole_file import opened

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
    """Name a file by its bytes, a folder by those of the bill's files in it, in order of their names.

    Raises
    ------
    ContractError
        It is a folder without any.
    OSError
        It cannot be read.
    """
    digest = hashlib.sha256()
    for each in files_of(path):
        with opened(each) as stream:
            while chunk := stream.read(_CHUNK):
                digest.update(chunk)
    return ReadFile(option=option, path=str(path), sha256=digest.hexdigest())


def command_words(files: Sequence[ReadFile], others: Sequence[str]) -> tuple[str, ...]:
    """The words of the command that reads these files."""
    named = [word for file in files for word in (file.option, file.path)]
    return ("spotline", "assess", *named, *others)
