"""Command lines that pages show: read from their blocks and from their text, held against the commands.

A word in capitals stands for the reader's own, `[...]` for what may be left out, `|` between options for
one of them, and `...` for more of the same.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from typer.exceptions import TyperException

from tools.documents.pages import blocks, prose

_SHELLS = ("", "sh", "bash", "console", "shell")
_SPOTLINE = re.compile(r"(?:\.venv(?:-train)?/bin/)?spotline")
_INLINE = re.compile(r"(?<!`)`((?:\.venv/bin/)?spotline (?:[^`\n]|\n(?!\n))+)`(?!`)")
_OPTION = re.compile(r"--?[a-z][a-z-]*$")
_ENDS = frozenset({";", "&&", "||", "&", "|", "<", ">", ">>", "2>"})


@dataclass(frozen=True, slots=True)
class Said:
    """A command as a page says it.

    `words` begin with the program; `whole` says that it stands in a block, for somebody to type: then all
    that the command cannot do without must be there.
    """

    words: tuple[str, ...]
    place: str
    whole: bool


def commands_of(text: str, page: str) -> Iterator[Said]:
    """Every command line of a page that calls spotline.

    Raises
    ------
    ValueError
        A quote is not closed.
    """
    for block in blocks(text):
        if block.language in _SHELLS:
            for number, line in _logical_lines(block.text, block.line):
                yield from _said_in(line, f"{page}:{number}", whole=True)
    outside = dict(prose(text))
    lines = [outside.get(number, "") for number in range(1, len(text.splitlines()) + 1)]
    plain = "\n".join(lines)
    for found in _INLINE.finditer(plain):
        number = plain.count("\n", 0, found.start()) + 1
        line = found[1].replace("\n", " ").replace("\\|", "|")
        yield from _said_in(line, f"{page}:{number}", whole=False)


def _logical_lines(text: str, first: int) -> Iterator[tuple[int, str]]:
    """Lines of a shell with those that a backslash continues, without a prompt."""
    kept, began = "", first
    for number, line in enumerate(text.splitlines(), first):
        began = began if kept else number
        kept += line.removeprefix("$ ")
        if kept.endswith("\\"):
            kept = kept[:-1] + " "
            continue
        yield began, kept
        kept = ""


def _said_in(line: str, place: str, *, whole: bool) -> Iterator[Said]:
    if "spotline" not in line:
        return
    last: list[str] = []
    for words in _segments(line, place):
        if not words:
            continue
        if words[0].startswith("-") and last:
            words = [*takewhile(lambda word: not word.startswith("-"), last), *words]
        elif not _SPOTLINE.fullmatch(words[0]):
            last = []
            continue
        last = words
        yield Said(("spotline", *words[1:]), place, whole)


def _segments(line: str, place: str) -> list[list[str]]:
    """The words of each command of a line: those between `;`, `|` and the like."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=";&|<>")
    lexer.whitespace_split = True
    try:
        tokens = list(lexer)
    except ValueError as error:
        raise ValueError(f"{place}: {error}: {line}") from error
    found: list[list[str]] = [[]]
    for word in tokens:
        if word in _ENDS:
            found.append([])
        elif word != "...":
            bare = word.strip("[]") if word.startswith("[") or word.endswith("]") else word
            found[-1].append(bare)
    return found


def leaf(root: Any, said: Said) -> tuple[str, ...]:
    """The words of a command line that name its command, such as ("market", "generate")."""
    command = root
    path: list[str] = []
    for word in said.words[1:]:
        inner = getattr(command, "commands", {}).get(word)
        if inner is None:
            break
        command, path = inner, [*path, word]
    return tuple(path)


def mistake(root: Any, said: Said) -> str:
    """What is wrong with a command line by the real commands, without running it; empty: nothing.

    Parameters
    ----------
    root
        The group of all commands, as `typer.main.get_command` gives it.
    """
    command, rest = root, list(said.words[1:])
    while True:
        inner = getattr(command, "commands", None)
        # In the text an option may be named without its value.
        open_end = [] if said.whole or inner or not rest or not _OPTION.match(rest[-1]) else ["..."]
        context = command.context_class(command, info_name=command.name, **command.context_settings)
        try:
            values, rest, _ = command.make_parser(context).parse_args(args=[*rest, *open_end])
        except TyperException as error:
            return f"{said.place}: {' '.join(said.words)}: {error}"
        rest = [word for word in rest if word not in open_end]
        if inner is None or not rest or (rest[0].isupper() and not said.whole):
            break
        if rest[0] not in inner:
            return f"{said.place}: {' '.join(said.words)}: no command {rest[0]!r}"
        command, rest = inner[rest[0]], rest[1:]
    wrong = [] if inner else [f"too much: {word}" for word in rest]
    if inner is None and said.whole:
        wrong += [f"lacks {name}" for name in _absent(command, values)]
    return f"{said.place}: {' '.join(said.words)}: {'; '.join(wrong)}" if wrong else ""


def _absent(command: Any, values: dict[str, Any]) -> list[str]:
    """Parameters that a command cannot do without, and that are not given."""
    return [
        parameter.opts[0]
        for parameter in command.params
        if parameter.required and not _given(values.get(parameter.name))
    ]


def _given(value: Any) -> bool:
    values = value if isinstance(value, list | tuple) else [value]
    return any(isinstance(part, str | bool) for part in values)
