"""Secrets of a file: `{env: NAME}` or `{file: PATH}` in the place where each is needed."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator

from spotline.adapters.files.fields import expected, path_of
from spotline.adapters.files.mistake import Mistake, SecretText, shown
from spotline.adapters.files.yaml_file import Steps
from spotline.adapters.whole_file import opened

ENV, FILE = "env", "file"
BY_PLACE = (
    "a secret by where it stands, {env: NAME} or {file: PATH}: no secret stands in this file itself"
)
NOT_SHOWN = "text (not shown: it may be a secret)"
_MOST_BYTES = 1 << 16
_OTHERS = 0o077


def _secret(value: Any) -> Any:
    if value is None or isinstance(value, SecretText):
        return value
    raise expected(BY_PLACE, found=NOT_SHOWN if isinstance(value, str) else shown(value))


Secret = Annotated[str, BeforeValidator(_secret)]
"""A field that holds a secret, of a file whose secrets were resolved."""


@dataclass(slots=True)
class Secrets:
    """Puts what is meant in the place of `{env: NAME}` and `{file: PATH}`.

    Parameters
    ----------
    environ
        Where variables are looked up.
    folder
        What relative paths of files begin at.
    """

    environ: Mapping[str, str]
    folder: Path
    mistakes: list[Mistake]

    def resolved(self, value: Any, steps: Steps = ()) -> Any:
        """The value with its secrets, at whatever depth; what is wrong with one is noted."""
        if isinstance(value, list):
            return [self.resolved(inner, (*steps, at)) for at, inner in enumerate(value)]
        if not isinstance(value, dict):
            return value
        if len(value) == 1 and (ENV in value or FILE in value):
            return self._read(value, steps)
        return {key: self.resolved(inner, (*steps, key)) for key, inner in value.items()}

    def _read(self, value: Mapping[str, Any], steps: Steps) -> Any:
        ((kind, place),) = value.items()
        field = path_of((*steps, kind))
        if not isinstance(place, str) or not place:
            what = "the name of a variable" if kind == ENV else "the path of a file"
            self.mistakes.append(Mistake(field=field, expected=what, found=shown(place)))
            return SecretText("", kind)
        try:
            text = self._variable(place) if kind == ENV else self._content(place)
        except _Unusable as error:
            self.mistakes.append(Mistake(field=field, expected=error.wanted, found=error.found))
            return SecretText("", f"{kind} {place}")
        return SecretText(text, f"{kind} {place}")

    def _variable(self, name: str) -> str:
        found = self.environ.get(name)
        if not found:
            wanted = f"a variable {name} in the environment that is not empty"
            raise _Unusable(wanted, "none" if found is None else "an empty one")
        return found

    def _content(self, place: str) -> str:
        path = self.folder / Path(place).expanduser()
        try:
            with opened(path) as stream:
                _check_private(path, os.fstat(stream.fileno()))
                content = stream.read(_MOST_BYTES + 1)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise _Unusable(f"a readable file {path}", reason) from error
        if len(content) > _MOST_BYTES:
            raise _Unusable(f"at most {_MOST_BYTES:,} bytes in {path}", "more")
        try:
            text = content.decode("utf-8").rstrip("\r\n")
        except UnicodeDecodeError as error:
            raise _Unusable(f"UTF-8 text in {path}", "other bytes") from error
        if not text:
            raise _Unusable(f"a secret in {path}", "an empty file")
        return text


class _Unusable(Exception):
    """A secret is not where it should be."""

    def __init__(self, wanted: str, found: str) -> None:
        super().__init__(wanted, found)
        self.wanted, self.found = wanted, found


def _check_private(path: Path, found: os.stat_result) -> None:
    if stat.S_IMODE(found.st_mode) & _OTHERS:
        raise _Unusable(
            f"a file that its owner alone may read (chmod go-rwx {path})",
            f"the mode {stat.S_IMODE(found.st_mode):04o}",
        )
