"""What a program may state of how it is run: bounds, and names that are Spotline's own.

A job travels with every request to allocate and lies in the log: what nobody bounds there costs
everybody. Files and servers hold to the same bounds.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath

from spotline.domain.jobs.job import Checkpoint
from spotline.domain.jobs.run import Run

MOST_WORDS = 1_000
LONGEST_LINE = 16_384
"""Characters of a word of the command, or of the setup."""
MOST_VARIABLES = 256
LONGEST_VALUE = 8_192
MOST_SECRETS = 64
MOST_DATA_SETS = 64
LONGEST_PLACE = 1_000
"""Characters of an image, a URI, a path or a pattern."""
MOST_RANKS = 64
MOST_GRACE_S = 3_600
MOST_STALLED_S = 30 * 86_400
MOST_RUN_BYTES = 65_536
"""Of all texts together, in UTF-8."""

_OWN_VARIABLES = frozenset({"RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"})


def is_own_variable(name: str) -> bool:
    """Whether Spotline itself sets a variable of the program's environment."""
    return name.startswith("SPOTLINE_") or name in _OWN_VARIABLES


def run_problems(run: Run | None, checkpoint: Checkpoint | None) -> Iterator[tuple[str, str]]:
    """What is wrong with how a job is run: the field's path in a job, and what it must be.

    Its checkpoints need a place that outlives the instances: None and an empty one are refused.
    """
    if run is None:
        return
    if checkpoint is None or not checkpoint.location:
        yield (
            "checkpoint.location",
            "must be a folder or a URL that every instance reaches, where a run is stated, was empty",
        )
    yield from _texts(run)
    yield from _counts(run)
    yield from _names(run)
    if run.progress is not None and run.progress.path and not is_below(run.progress.path):
        yield (
            "run.progress.path",
            f"must be a path below the working directory, was {run.progress.path[:80]!r}",
        )
    size = sum(len(text.encode()) for _, text, _ in _all_texts(run))
    if size > MOST_RUN_BYTES:
        yield "run", f"must hold at most {MOST_RUN_BYTES:,} bytes of text, held {size:,}"


def is_below(path: str) -> bool:
    """Whether a path leads to something below the folder that it is taken from."""
    parts = PurePosixPath(path)
    return not parts.is_absolute() and ".." not in parts.parts and bool(parts.parts)


def _all_texts(run: Run) -> Iterator[tuple[str, str, int]]:
    """Every text: its field, itself, and how many characters it may have."""
    for index, word in enumerate(run.command):
        yield f"run.command[{index}]", word, LONGEST_LINE
    yield "run.setup", run.setup, LONGEST_LINE
    yield "run.image", run.image, LONGEST_PLACE
    for index, variable in enumerate(run.environment):
        yield f"run.environment[{index}].name", variable.name, LONGEST_PLACE
        yield f"run.environment[{index}].value", variable.value, LONGEST_VALUE
    for index, name in enumerate(run.secrets):
        yield f"run.secrets[{index}]", name, LONGEST_PLACE
    if run.package is not None:
        yield "run.package.uri", run.package.uri, LONGEST_PLACE + 100
    if run.progress is not None:
        yield "run.progress.pattern", run.progress.pattern, LONGEST_PLACE
        yield "run.progress.path", run.progress.path, LONGEST_PLACE
    for index, data in enumerate(run.data):
        yield f"run.data[{index}].uri", data.uri, LONGEST_PLACE


def _texts(run: Run) -> Iterator[tuple[str, str]]:
    for field, text, longest in _all_texts(run):
        if len(text) > longest:
            yield field, f"must have at most {longest:,} characters, had {len(text):,}"
        elif "\0" in text:
            # No operating system passes one on.
            yield field, "must hold no NUL character, held one"


def _counts(run: Run) -> Iterator[tuple[str, str]]:
    for name, items, most in (
        ("command", run.command, MOST_WORDS),
        ("environment", run.environment, MOST_VARIABLES),
        ("secrets", run.secrets, MOST_SECRETS),
        ("data", run.data, MOST_DATA_SETS),
    ):
        if len(items) > most:
            yield f"run.{name}", f"must hold at most {most:,}, held {len(items):,}"
    for name, value, most in (
        ("ranks_per_instance", run.ranks_per_instance, MOST_RANKS),
        ("grace_s", run.grace_s, MOST_GRACE_S),
        ("stalled_after_s", run.stalled_after_s, MOST_STALLED_S),
    ):
        if value > most:
            yield f"run.{name}", f"must be <= {most:,}, was {value:,}"


def _names(run: Run) -> Iterator[tuple[str, str]]:
    for index, variable in enumerate(run.environment):
        if is_own_variable(variable.name):
            yield (
                f"run.environment[{index}].name",
                f"must not be a variable that Spotline sets, was {variable.name}",
            )
    for index, name in enumerate(run.secrets):
        if is_own_variable(name):
            yield (
                f"run.secrets[{index}]",
                f"must not be a variable that Spotline sets, was {name}",
            )
