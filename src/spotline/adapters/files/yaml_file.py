"""Read YAML that anybody may have written: bounded before it is built, and nothing taken silently.

The text is parsed into events, which needs no recursion, and values are built from them as far as
the limits allow. Times stay text (their UTC offset matters), keys are text as written, and a key
may not come twice.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import yaml

from spotline.adapters.files.mistake import WHOLE_FILE, bad_file, shown, shown_key
from spotline.adapters.whole_file import opened

MOST_LEVELS = 32
"""Lists and mappings may be so deep in each other."""

LONGEST_NUMBER = 64
"""Longer ones are names and addresses; to read them as numbers could take without end."""

_CONTROL = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_EVENTS = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_TAG = "tag:yaml.org,2002:"
_SCALAR_TAGS = frozenset(f"{_TAG}{name}" for name in ("null", "bool", "int", "float", "str"))
_NUMBER_TAGS = (f"{_TAG}int", f"{_TAG}float")
_MERGE = "<<"

Steps = tuple[int | str, ...]
"""Keys and indices that lead to a value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How large a file may be.

    Attributes
    ----------
    most_bytes
        Of the file.
    most_values
        Scalars, lists and mappings in it; what an alias repeats counts each time.
    """

    most_bytes: int = 1 << 20
    most_values: int = 100_000


ONE_DOCUMENT = Limits()


def read_text(path: Path, limits: Limits = ONE_DOCUMENT) -> str:
    """Read a UTF-8 file; not a byte more than allowed is taken into memory.

    Raises
    ------
    BadFile
        It is absent, too large, unreadable or not UTF-8.
    """
    where = str(path)
    try:
        with opened(path) as stream:
            content = stream.read(limits.most_bytes + 1)
    except FileNotFoundError as error:
        raise bad_file(where, WHOLE_FILE, "a file", "none") from error
    except IsADirectoryError as error:
        raise bad_file(where, WHOLE_FILE, "a file", "a directory") from error
    except OSError as error:
        found = error.strerror or str(error)
        raise bad_file(where, WHOLE_FILE, "a readable file", found) from error
    except ValueError as error:
        raise bad_file(where, WHOLE_FILE, "a readable file", str(error)) from error
    return decoded(content, where=where, limits=limits)


def decoded(content: bytes, *, where: str, limits: Limits = ONE_DOCUMENT) -> str:
    """Take bytes as UTF-8 text; `BadFile` where they are too many or no such text."""
    if len(content) > limits.most_bytes:
        raise bad_file(where, WHOLE_FILE, f"at most {limits.most_bytes:,} bytes", "more")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        found = f"the byte 0x{content[error.start]:02x}"
        raise bad_file(where, f"line {line}", "UTF-8 text", found) from error


def read_yaml(path: Path, limits: Limits = ONE_DOCUMENT) -> Any:
    """Read the one document of a YAML file; `BadFile` as `read_text` and `parse_yaml`."""
    return parse_yaml(read_text(path, limits), where=str(path), limits=limits)


def parse_yaml(text: str, *, where: str, limits: Limits = ONE_DOCUMENT) -> Any:
    """Read the one document of a YAML text: mappings, lists, text, numbers, booleans and None.

    Raises
    ------
    BadFile
        It is no YAML, holds more than `limits` allow, a key twice, two documents, or a tag that
        makes anything else of a value. Names the line.
    """
    return _parsed(text, _Building(where, limits))


def parse_yaml_with_lines(
    text: str, *, where: str, limits: Limits = ONE_DOCUMENT
) -> tuple[Any, Mapping[Steps, int]]:
    """Read a text as `parse_yaml`, and say in which line each key and each entry of a list stands.

    What an alias repeats has the line of the alias alone.
    """
    lines: dict[Steps, int] = {}
    return _parsed(text, _Building(where, limits, lines)), lines


def _parsed(text: str, building: _Building) -> Any:
    where = building.where
    control = _CONTROL.search(text)
    if control is not None:
        line = text.count("\n", 0, control.start()) + 1
        found = f"the control character U+{ord(control[0]):04X}"
        raise bad_file(where, f"line {line}", "text", found)
    try:
        return building.document(yaml.parse(text, Loader=_EVENTS))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = WHOLE_FILE if mark is None else f"line {mark.line + 1}"
        raise bad_file(where, place, *_expected_and_found(error.problem or "")) from error
    except yaml.YAMLError as error:
        raise bad_file(where, WHOLE_FILE, "YAML", " ".join(str(error).split())) from error


def _expected_and_found(problem: str) -> tuple[str, str]:
    """The parser's words in ours."""
    missing = problem.removeprefix("did not find expected ")
    if missing != problem:
        return missing.replace("node content", "a value"), "something else"
    return "YAML", problem.removeprefix("found ") or "something else"


class _Scalars(yaml.SafeLoader):
    """Says what a plain scalar is; nothing is loaded with it."""


_Scalars.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag in _SCALAR_TAGS]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
# Its methods have no types.
_SCALARS: Any = _Scalars("")


@dataclass(slots=True)
class _Open:
    """A list or mapping that has begun."""

    value: Any
    anchor: str | None
    values_before: int
    height: int = 1  # levels, its own included
    key: str | None = None
    merging: bool = False  # the value that comes next is to be merged
    merged: list[Any] | None = None


@dataclass(frozen=True, slots=True)
class _Anchored:
    value: Any
    values: int
    height: int  # of a scalar 0


@dataclass(slots=True)
class _Building:
    """A value under construction, from the events of its text."""

    where: str
    limits: Limits
    lines: dict[Steps, int] | None = None
    open: list[_Open] = field(default_factory=list)
    anchored: dict[str, _Anchored] = field(default_factory=dict)
    values: int = 0
    root: Any = None

    def document(self, events: Iterable[Any]) -> Any:
        """The value of the only document; None without one."""
        documents = 0
        for event in events:
            match event:
                case yaml.DocumentStartEvent():
                    documents += 1
                    if documents > 1:
                        self._refuse(event, "one document", "a second one")
                case yaml.ScalarEvent():
                    self._scalar(event)
                case yaml.AliasEvent():
                    self._alias(event)
                case yaml.CollectionStartEvent():
                    self._begin(event)
                case yaml.CollectionEndEvent():
                    self._end(event)
                case _:
                    pass  # the stream's and the document's ends say nothing
        return self.root

    def _refuse(self, event: Any, expected: str, found: str) -> NoReturn:
        line = event.start_mark.line + 1
        raise bad_file(self.where, f"line {line}", expected, found)

    def _count(self, event: Any, values: int, height: int) -> None:
        self.values += values
        if self.values > self.limits.most_values:
            most = f"at most {self.limits.most_values:,} values"
            self._refuse(event, most, "more (what an alias repeats counts each time)")
        if len(self.open) + height > MOST_LEVELS:
            self._refuse(event, f"at most {MOST_LEVELS} levels of lists and mappings", "more")

    def _note_line(self, event: Any) -> None:
        """Note where the key or entry in hand stands; the first mention of it counts."""
        if self.lines is None or not self.open:
            return
        steps = tuple(len(o.value) if isinstance(o.value, list) else o.key or "" for o in self.open)
        self.lines.setdefault(steps, event.start_mark.line + 1)

    def _wants_key(self) -> bool:
        if not self.open:
            return False
        top = self.open[-1]
        return isinstance(top.value, dict) and top.key is None

    def _scalar(self, event: Any) -> None:
        self._count(event, 1, 0)
        if self._wants_key():
            self._key(event)
            return
        self._note_line(event)
        value = self._resolved(event)
        if event.anchor is not None:
            self.anchored[event.anchor] = _Anchored(value, 1, 0)
        self._put(event, value, 0)

    def _key(self, event: Any) -> None:
        top, key = self.open[-1], event.value
        merges = key == _MERGE and event.implicit[0]
        if key in top.value or (merges and top.merged is not None):
            self._refuse(event, "each field once", f"{shown_key(key)} again")
        if merges:
            top.merged = []
        top.merging = merges
        top.key = key
        self._note_line(event)

    def _resolved(self, event: Any) -> Any:
        tag, text = event.tag, event.value
        if tag is None or tag == "!":
            plain = event.implicit if len(text) <= LONGEST_NUMBER else (False, True)
            tag = _SCALARS.resolve(yaml.ScalarNode, text, plain)
        if tag not in _SCALAR_TAGS:
            self._refuse(event, "text, a number, true, false or null", f"the tag {shown(tag)}")
        if tag in _NUMBER_TAGS and len(text) > LONGEST_NUMBER:
            self._refuse(event, f"a number of at most {LONGEST_NUMBER} characters", shown(text))
        try:
            construct = yaml.SafeLoader.yaml_constructors[tag]
            return construct(_SCALARS, yaml.ScalarNode(tag, text))
        except (ValueError, LookupError):
            self._refuse(event, f"a value of the tag {shown(tag)}", shown(text))

    def _alias(self, event: Any) -> None:
        if self._wants_key():
            self._refuse(event, "a field's name", f"the alias {shown(event.anchor)}")
        known = self.anchored.get(event.anchor)
        if known is None:
            self._refuse(event, "an alias of what stands before", shown(event.anchor))
        self._count(event, known.values, known.height)
        self._note_line(event)
        self._put(event, known.value, known.height)

    def _begin(self, event: Any) -> None:
        mapping = isinstance(event, yaml.MappingStartEvent)
        self._count(event, 1, 1)
        if self._wants_key():
            self._refuse(event, "a field's name", "a mapping" if mapping else "a list")
        if event.tag not in (None, "!", f"{_TAG}map", f"{_TAG}seq"):
            self._refuse(event, "a mapping or a list", f"the tag {shown(event.tag)}")
        self._note_line(event)
        self.open.append(_Open({} if mapping else [], event.anchor, self.values - 1))

    def _end(self, event: Any) -> None:
        ended = self.open.pop()
        for merged in ended.merged or ():
            for key, value in merged.items():
                ended.value.setdefault(key, value)
        if ended.anchor is not None:
            values = self.values - ended.values_before
            self.anchored[ended.anchor] = _Anchored(ended.value, values, ended.height)
        self._put(event, ended.value, ended.height)

    def _put(self, event: Any, value: Any, height: int) -> None:
        if not self.open:
            self.root = value
            return
        top = self.open[-1]
        top.height = max(top.height, height + 1)
        if isinstance(top.value, list):
            top.value.append(value)
            return
        key, top.key = top.key, None
        if top.merging:
            top.merged = value if isinstance(value, list) else [value]
            if not all(isinstance(merged, dict) for merged in top.merged):
                self._refuse(event, "a mapping to merge", shown(value))
        else:
            top.value[key] = value
