"""A job file to begin with: what is known is filled in, what is not is left blank and named."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml

PROGRAMS = ("train.py", "finetune.py", "fine_tune.py", "main.py")
"""Names that a training program goes by, likeliest first."""

_REQUIREMENTS = "requirements.txt"
_COMMENT_AT = 44


@dataclass(frozen=True, slots=True, kw_only=True)
class Starter:
    """What a starting job file states; empty is left blank for its owner to fill in.

    Attributes
    ----------
    workdir
        Of the program, as the file states it.
    work
        Amount and unit of a job whose owner knows how fast it runs; empty: a draft by model and
        tokens.
    """

    tenant: str
    name: str = ""
    command: str = ""
    workdir: str = "."
    setup: str = ""
    model: str = ""
    tokens: str = ""
    work: str = ""
    deadline: str = "36h"
    location: str = ""


def found_in(folder: Path) -> tuple[str, str]:
    """The command and the setup that the files of a folder suggest; empty where none do."""
    program = next((name for name in PROGRAMS if (folder / name).is_file()), "")
    setup = f"pip install -r {_REQUIREMENTS}" if (folder / _REQUIREMENTS).is_file() else ""
    return f"python {program}" if program else "", setup


def starter_text(starter: Starter) -> tuple[str, tuple[str, ...]]:
    """The text of a job file, and the fields in it that are blank."""
    lines = [*_lines(starter)]
    blanks = tuple(path for path, value, _, _ in lines if path and value == "")
    return "".join(_written(*line) for line in lines), blanks


# A field's path (empty: text as it is), its value as YAML (empty: blank), what is said of it, and
# by how many levels it stands further in.
_Line = tuple[str, str, str, int]


def _lines(starter: Starter) -> Iterator[_Line]:
    yield _text(
        "# A training job: spotline submit hands it over, spotline plan shows what it would"
    )
    yield _text("# cost. Every field: docs/job-file.md. Times and sizes as in 36h, 15m, 300M, 7GB.")
    yield "name", _scalar(starter.name or "my-training"), "for people", 0
    yield "tenant", _scalar(starter.tenant), "whose job it is", 0
    yield _text("")
    if starter.work:
        yield "work", starter.work, "in tokens, samples, steps, ...", 0
        yield _text(
            "instances: {min: 1, max: 1}                 # more, if its ranks talk to each other"
        )
        yield _text("throughput:")
        yield _text(
            '  "*":                                      # any offering; or an instance type'
        )
        rate = "of that work on each instance"
        yield "throughput.*.alpha_per_hour", "", rate, 2
    else:
        yield "model", _scalar(starter.model), "such as llama-3.1-8b", 0
        yield "tokens", starter.tokens, "to train on, over all epochs, such as 300M", 0
        yield _text("# You know how fast it runs? In the place of model and tokens state")
        yield _text("# work: 300M tokens")
        yield _text("# instances: {min: 1, max: 4}")
        yield _text('# throughput: {"*": {alpha_per_hour: 9M}}')
    yield _text("")
    yield _text("deadline:")
    yield (
        "deadline.hard",
        _scalar(starter.deadline),
        "after the submission; or a time with offset",
        1,
    )
    yield _text(
        "# value_usd: 400                            # left out: in time, at the least cost"
    )
    yield _text("")
    yield from _run(starter)
    yield _text("")
    yield _text("checkpoint:")
    where = "a folder or URL all instances reach"
    yield "checkpoint.location", _scalar(starter.location), where, 1
    yield _text("  interval_s: 15m")
    yield _text("")
    yield _text(
        "retries: 2                                  # starts again after a failure of its own"
    )


def _run(starter: Starter) -> Iterator[_Line]:
    yield _text("run:")
    yield "run.command", _scalar(starter.command), "or torchrun ...: once per GPU", 1
    yield "run.workdir", _scalar(starter.workdir), "packed by submit, but for .spotlineignore", 1
    if starter.setup:
        yield "run.setup", _scalar(starter.setup), "once on every instance", 1
    else:
        yield _text("  # setup: pip install -r requirements.txt  # once on every instance")
    yield _text("  # ranks_per_instance: 8                   # processes: one per GPU")
    yield _text("  # secrets: [HF_TOKEN]                     # resolved on the instance")
    yield _text("  # env: {TOKENIZERS_PARALLELISM: false}")
    yield _text("  progress: sdk                             # spotline.trainer; or")
    yield _text("  # progress: {output: 'tokens: (?P<done>\\d+)'}  # from its output; or")
    yield _text("  # progress: {file: metrics.jsonl, field: tokens}")


def _text(line: str) -> _Line:
    return "", line, "", 0


def _written(path: str, value: str, said: str, level: int) -> str:
    if not path:
        return f"{value}\n"
    begin = f"{'  ' * level}{path.rpartition('.')[2]}: {value}"
    mark = said if value else f"<- fill in: {said}"
    return f"{begin:<{_COMMENT_AT - 1}} # {mark}\n"


def _scalar(text: str) -> str:
    """Text as YAML has it in one line; blank for nothing."""
    if not text:
        return ""
    dumped: str = yaml.safe_dump(text, width=10**6, allow_unicode=True)
    return dumped.removesuffix("\n").removesuffix("\n...")
