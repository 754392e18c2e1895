"""A wrong command line, said as everything else: `spotline: --slot: expected ..., found ...`."""

from __future__ import annotations

import difflib
import io
import os
import re
import sys
from collections.abc import Sequence
from typing import Any

import typer
from pydantic import ValidationError
from typer.core import TyperGroup
from typer.exceptions import TyperException

from spotline.cli.failures import BAD_INPUT, say, say_json

# As a shell says it of a process that the signal of a closed pipe ends.
READER_GONE = 141

# What the parser of command lines says of some words: where that is, what was expected, and found.
_RULES = tuple(
    (re.compile(pattern, re.DOTALL), where, expected, found)
    for pattern, where, expected, found in (
        (r"No such option: (\S+).*", r"\1", "an option of this command", r"\1"),
        (r"No such command '(.*?)'\..*", "command", "a command", r"\1"),
        (r"Missing command\.", "command", "a command", "nothing"),
        (r"Option '(.*)' requires (?:an argument|\d+ arguments)\.", r"\1", "a value", "nothing"),
        (r"Option '(.*)' does not take a value\.", r"\1", "no value", "one"),
        (r"(?:Value error, )?('.*?') is not one of (.*?)\.?", "", r"one of \2", r"\1"),
        (r"Got unexpected extra argument.*? \((.*)\)", "command line", "no more words", r"\1"),
    )
)
# What it says of a value: `Input should be a valid number, unable to parse string as a number`.
_VALUE = re.compile(r"Input should be (?P<expected>.*?)(?:, unable to parse .*)?", re.DOTALL)
_PLAINLY = {
    "a valid integer": "a whole number",
    "a valid number": "a number",
    "a finite number": "a finite number",
}
_NUMBERS = {
    "greater_than_equal": ">=",
    "less_than_equal": "<=",
    "greater_than": ">",
    "less_than": "<",
}


class CommandLine(TyperGroup):
    """The whole command line; a mistake in it is said in a line, and as JSON with `--json`."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """Run, and end the process with the exit code unless `standalone_mode` is off."""
        words = list(sys.argv[1:] if args is None else args)
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                # What the terminal's encoding lacks is written as \u2026.
                stream.reconfigure(errors="backslashreplace")
        try:
            code = super().main(words, prog_name, complete_var, False, windows_expand_args, **extra)
        except TyperException as error:
            if not standalone_mode:
                raise
            sys.exit(_told(error, as_json="--json" in words))
        if standalone_mode:
            sys.exit(code if isinstance(code, int) else 0)
        return code

    def invoke(self, ctx: Any) -> Any:
        """Run the command; end quietly where who reads what it prints has gone, as `head` does."""
        try:
            answer = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:
            # At its end the interpreter would flush again.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(READER_GONE) from None
        return answer


def _told(error: Any, *, as_json: bool) -> int:
    if type(error).__name__ == "NoArgsIsHelpError":
        error.show()
        return BAD_INPUT
    where, said = problem_of(error)
    if as_json:
        say_json(f"{where}: {said}", field=where)
        return BAD_INPUT
    context = getattr(error, "ctx", None)
    words = [] if context is None else ["spotline", *context.command_path.split()[1:], "--help"]
    say(f"{where}: {said}" + (f" (see {' '.join(words)})" if words else ""))
    return BAD_INPUT


def problem_of(error: Any) -> tuple[str, str]:
    """Where a command line is wrong, and `expected ..., found ...`."""
    where = _name_of(error)
    if hasattr(error, "param_type") and getattr(error, "param", None) is not None:
        return where, f"expected a value, found nothing{_environment_of(error.param)}"
    for pattern, place, expected, found in _RULES:
        match = pattern.fullmatch(error.message)
        if match is not None:
            near = _near(error, match[1]) if found == r"\1" and place else ""
            wanted = match.expand(expected) + near
            return match.expand(place) or where, f"expected {wanted}, found {match.expand(found)}"
    match = _VALUE.fullmatch(error.message)
    if match is None:
        return where, error.message
    expected, found = match["expected"], "something else"
    if isinstance(error.__cause__, ValidationError):
        problem = error.__cause__.errors()[0]
        found = repr(problem["input"])
        sign = _NUMBERS.get(problem["type"])
        if sign is not None:
            (limit,) = problem["ctx"].values()
            expected = f"a number {sign} {limit:g}"
    return where, f"expected {_PLAINLY.get(expected, expected)}, found {found}"


def _name_of(error: Any) -> str:
    param = getattr(error, "param", None)
    if param is None:
        return getattr(error, "option_name", None) or "command line"
    options = [option for option in param.opts if option.startswith("--")]
    return options[0] if options else (param.metavar or param.name or "").upper()


def _environment_of(param: Any) -> str:
    variable = getattr(param, "envvar", None)
    return f" (nor in the environment's {variable})" if isinstance(variable, str) else ""


def _near(error: Any, unknown: str) -> str:
    context = getattr(error, "ctx", None)
    if context is None:
        return ""
    if hasattr(error, "option_name"):
        known = [option for param in context.command.params for option in param.opts]
        known.append("--help")
    else:
        known = list(getattr(context.command, "commands", ()))
    near = difflib.get_close_matches(unknown, known, n=1, cutoff=0.5)
    return f" (did you mean {near[0]}?)" if near else ""
