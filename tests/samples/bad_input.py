"""Wrong inputs and their answers: what tests/data/bad_input/ lists.

A file there is a group of cases. A case says what is wrong, gives the input (files, a command line,
or a request), and states the whole answer. `docs/bad-input.md` shows them.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.fakes.strict_yaml import read_yaml

FOLDER = Path(__file__).parents[1] / "data" / "bad_input"
GROUPS = (
    "job_files",
    "strange_files",
    "run_files",
    "pipelines",
    "markets",
    "pictures",
    "other_files",
    "bills",
    "config_files",
    "logs_and_stores",
    "flags",
    "environment",
    "submissions",
    "job_rpcs",
    "other_rpcs",
)

_INPUTS = ("files", "lines", "without", "run", "env", "stdin")
_CALLS = ("call", "request", "change", "metadata")
_ANSWERS = ("answer", "exit", "json", "status", "reason", "fields")
_KEYS = frozenset(("wrong", *_INPUTS, *_CALLS, *_ANSWERS))


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A wrong input and its answer.

    Attributes
    ----------
    wrong
        What is wrong, in a few words; with the group's title it is the case's name.
    files
        What stands in the folder beside the group's files: text, or a mapping that says how to
        make one that is no text (see `tests.fakes.bad_input`).
    lines
        Lines that replace those of the group's first file that begin with the same words.
    without
        First words of lines that this file does not have.
    run, env, stdin
        The command line, what the environment holds, what standard input says.
    answer
        All of stderr, or the message of a status; with `json`, all of stdout.
    call, request, change, metadata
        The method, its request as JSON, or paths in the group's request and what stands there.
    """

    group: str
    wrong: str
    answer: str = ""
    files: Mapping[str, Any] = field(default_factory=dict)
    lines: str = ""
    without: tuple[str, ...] = ()
    run: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    stdin: str = ""
    exit: int = 2
    json: bool = False
    call: str = ""
    request: Mapping[str, Any] | None = None
    change: Mapping[str, Any] = field(default_factory=dict)
    metadata: Mapping[str, str] = field(default_factory=dict)
    status: str = "INVALID_ARGUMENT"
    reason: str = ""
    fields: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Cases that are alike.

    Attributes
    ----------
    base
        Files that each case has, the first of which is the one that `lines` change; or, for calls,
        requests by method.
    """

    name: str
    title: str
    about: str
    base: Mapping[str, Any]
    cases: tuple[Case, ...]

    def lines_of(self, case: Case) -> str:
        """The group's first file as this case changes it."""
        (_, text), *_ = self.base.items()
        gone = {*case.without, *(_first(line) for line in case.lines.splitlines())} - {""}
        kept = [line for line in text.splitlines() if _first(line) not in gone]
        return "\n".join([*kept, *case.lines.splitlines(), ""])

    def files_of(self, case: Case) -> dict[str, Any]:
        """Every file of a case by its name."""
        files = {} if case.call else dict(self.base)
        if files and (case.lines or case.without):
            files[next(iter(files))] = self.lines_of(case)
        return files | dict(case.files)


def _first(line: str) -> str:
    return line.partition(":")[0] if line[:1].strip() else ""


def groups() -> Iterator[Group]:
    """Read all groups, in the order of the page.

    Raises
    ------
    ValueError
        A file has a key that means nothing, or two cases of a group have one name.
    """
    for name in GROUPS:
        path = FOLDER / f"{name}.yaml"
        if path.exists():
            yield read_group(path)


def read_group(path: Path) -> Group:
    """Read one group; raises as `groups`."""
    said = read_yaml(path)
    cases = []
    for entry in said["cases"]:
        unknown = sorted(set(entry) - _KEYS)
        if unknown:
            raise ValueError(f"{path.name}: {entry.get('wrong')}: unknown {', '.join(unknown)}")
        more = dict(entry)
        more["run"] = tuple(shlex.split(entry.get("run", said.get("run", ""))))
        more["without"] = tuple(entry.get("without", ()))
        more["fields"] = tuple(entry.get("fields", ()))
        more["call"] = entry.get("call", said.get("call", ""))
        cases.append(Case(group=path.stem, **more))
    names = [case.wrong for case in cases]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"{path.name}: {', '.join(twice)} twice")
    return Group(
        name=path.stem,
        title=said["title"],
        about=" ".join(said["about"].split()),
        base=said.get("base", {}),
        cases=tuple(cases),
    )
