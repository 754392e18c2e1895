"""The fields of a job file that say how its program is run, and what it reads."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, PlainValidator, model_validator

from spotline.adapters.files.fields import (
    FieldRow,
    Name,
    Part,
    Seconds,
    SizeGb,
    Stated,
    Text,
    Whole,
    expected,
    no_nul,
)
from spotline.adapters.files.tuning_fields import option_text
from spotline.domain.jobs.run import (
    DEFAULT_GRACE_S,
    LEAST_STALLED_S,
    STALLED_SLOTS,
    DataReads,
    DataSet,
    EnvironmentVariable,
    Launcher,
    OnStall,
    ProgressReading,
    ProgressSource,
    Run,
    RunPackage,
)
from spotline.domain.jobs.run_limits import (
    LONGEST_LINE,
    LONGEST_VALUE,
    MOST_DATA_SETS,
    MOST_GRACE_S,
    MOST_RANKS,
    MOST_SECRETS,
    MOST_STALLED_S,
    MOST_VARIABLES,
    MOST_WORDS,
    is_below,
    is_own_variable,
)

A_COMMAND = "a line for a shell, or a list of words"
A_PROGRESS = "sdk, {output: REGULAR EXPRESSION} or {file: PATH, field: NAME}"
_NO_SHELL = "|&;<>$`\n"
# torchrun's own options that follow from what a job holds.
_OURS = re.compile(r"--?(nnodes|nproc|node[-_]rank|rdzv|master|max[-_]restarts|standalone)")
_VARIABLE = re.compile("[A-Za-z_][A-Za-z0-9_]*")


# --- kinds of fields --------------------------------------------------------------------------


def _variable(value: str) -> str:
    if not _VARIABLE.fullmatch(value):
        raise expected("a variable's name of letters, digits and _")
    if is_own_variable(value):
        raise expected("a variable that Spotline does not set itself")
    return value


def _word(value: Any) -> str:
    if not isinstance(value, str | int | float):
        raise expected(f"{A_COMMAND} of text and numbers")
    word = option_text(value)
    if len(word) > LONGEST_LINE or "\0" in word:
        raise expected(f"words of at most {LONGEST_LINE:,} characters without NUL")
    return word


def _command(value: Any) -> str | tuple[str, ...]:
    if isinstance(value, str) and value.strip():
        return _word(value)
    if not isinstance(value, list) or not value or value[0] == "":
        raise expected(A_COMMAND)
    if len(value) > MOST_WORDS:
        raise expected(f"at most {MOST_WORDS:,} words")
    return tuple(_word(word) for word in value)


def _pattern(value: str) -> str:
    try:
        groups = re.compile(value).groupindex
    except (re.error, RecursionError, OverflowError) as error:
        raise expected(f"a regular expression ({str(error)[:100]})") from None
    if "done" not in groups:
        raise expected("a regular expression with a group (?P<done>...) around the work done")
    return value


def _below(value: str) -> str:
    if not is_below(value):
        raise expected("a path below the working directory")
    return value


Variable = Annotated[Name, AfterValidator(_variable)]
Line = Annotated[str, Field(max_length=LONGEST_LINE), AfterValidator(no_nul)]
Value = Annotated[str, Field(max_length=LONGEST_VALUE), AfterValidator(no_nul)]


class ProgressPart(Part):
    """Where the work done is read from; nothing stated is the library."""

    output: Annotated[
        Annotated[Stated, AfterValidator(_pattern)] | None,
        FieldRow(
            "run.progress.pattern",
            "| | a regular expression for lines of the output, whose group `(?P<done>...)` is the "
            "work done so far",
        ),
    ] = None
    file: Annotated[
        Annotated[Stated, AfterValidator(_below)] | None,
        FieldRow(
            "run.progress.path",
            "| | with `field`: a file of JSON lines that the program appends to, below its working "
            "directory",
        ),
    ] = None
    field: Annotated[
        Name | None,
        FieldRow("run.progress.pattern", "| | the field of it that is the work done so far"),
    ] = None

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if self.model_fields_set not in (set(), {"output"}, {"file", "field"}):
            stated = ", ".join(sorted(self.model_fields_set))
            raise expected(A_PROGRESS, found=stated)
        return self

    def to_domain(self) -> ProgressReading:
        """The reading."""
        if self.output is not None:
            return ProgressReading(source=ProgressSource.OUTPUT, pattern=self.output)
        if self.file is not None:
            return ProgressReading(
                source=ProgressSource.FILE, pattern=self.field or "", path=self.file
            )
        return ProgressReading()


def _progress(value: Any) -> Any:
    if value == "sdk":
        return ProgressPart()
    if not isinstance(value, Mapping) or not value:
        raise expected(A_PROGRESS)
    return value


class DataPart(Part):
    """Data that the program reads."""

    uri: Annotated[Stated, FieldRow("run.data[].uri", "| required | where it is")]
    gb: Annotated[
        SizeGb, FieldRow("run.data[].size_gb", "10^9 bytes | 0 | its size; 0: not known")
    ] = 0.0
    reads: Annotated[
        Literal["once", "every_epoch"],
        FieldRow(
            "run.data[].reads",
            "| `once` | `once` (by every start of the program) or `every_epoch`",
        ),
    ] = "once"

    def to_domain(self) -> DataSet:
        """The data set."""
        return DataSet(uri=self.uri, size_gb=self.gb, reads=DataReads(self.reads))


Data = Annotated[tuple[DataPart, ...], Field(max_length=MOST_DATA_SETS)]


# --- the part ---------------------------------------------------------------------------------


class RunPart(Part):
    """How Spotline runs the job's program."""

    # A line or a tuple of words; pydantic would make lists of tuples in a union.
    command: Annotated[
        Any,
        PlainValidator(_command),
        FieldRow(
            "run.command",
            "| required | what is started: a line for a shell, or a list of words; `torchrun` at its "
            "beginning is the launcher",
        ),
    ]
    workdir: Annotated[
        Stated | None,
        FieldRow(
            "run.package",
            "| an empty one | folder of the program, relative to the job file; `submit` packs it "
            "(without what `.spotlineignore` names) and stores it at the checkpoint location",
        ),
    ] = None
    image: Annotated[
        Text, FieldRow("run.image", "| none | image of the container that it runs in")
    ] = ""
    env: Annotated[
        Annotated[
            dict[Variable, Annotated[Value, BeforeValidator(option_text)]],
            Field(max_length=MOST_VARIABLES),
        ],
        FieldRow(
            "run.environment",
            "| none | variables of its environment; who may see the job sees them",
        ),
    ] = Field(default={})
    secrets: Annotated[
        Annotated[tuple[Variable, ...], Field(max_length=MOST_SECRETS)],
        FieldRow(
            "run.secrets",
            "| none | names of variables that the instance resolves by itself: Spotline never sees "
            "their values, and they are masked in output",
        ),
    ] = ()
    setup: Annotated[
        Line,
        FieldRow(
            "run.setup",
            "| none | a line for a shell, run once on every instance before the first start",
        ),
    ] = ""
    launcher: Annotated[
        Literal["plain", "torchrun"] | None,
        FieldRow(
            "run.launcher",
            "| by the command | `plain`: the command once per rank, with `RANK`, `WORLD_SIZE`, "
            "`MASTER_ADDR` and `MASTER_PORT`; `torchrun`: torchrun with the command as its script",
        ),
    ] = None
    ranks_per_instance: Annotated[
        Annotated[Whole, Field(le=MOST_RANKS)] | None,
        FieldRow("run.ranks_per_instance", "processes | 1 | on every instance, such as its GPUs"),
    ] = None
    progress: Annotated[
        Annotated[ProgressPart, BeforeValidator(_progress)] | None,
        FieldRow(
            "run.progress",
            "| `sdk` | where the work done is read from: `sdk` (the program calls "
            "`spotline.trainer`), `{output: ...}` or `{file: ..., field: ...}`",
        ),
    ] = None
    grace_s: Annotated[
        Annotated[Seconds, Field(ge=1, le=MOST_GRACE_S)] | None,
        FieldRow(
            "run.grace_s",
            f"seconds | {DEFAULT_GRACE_S} | of wall time between being asked to save and being killed",
        ),
    ] = None
    stalled_after: Annotated[
        Annotated[Seconds, Field(ge=1, le=MOST_STALLED_S)] | None,
        FieldRow(
            "run.stalled_after_s",
            f"seconds | {STALLED_SLOTS} slots, at least {LEAST_STALLED_S} | of market time without "
            "a report of progress or of a checkpoint, after which the program counts as stalled",
        ),
    ] = None
    on_stall: Annotated[
        Literal["alarm", "restart"],
        FieldRow(
            "run.on_stall",
            "| `alarm` | what happens then: it is told (`alarm`), or the program is killed and "
            "started again from its newest checkpoint (`restart`), which counts as one of `retries`",
        ),
    ] = "alarm"

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        both = sorted({*self.env} & {*self.secrets})
        if both:
            raise expected(
                "names that are not in run.env", at="secrets", found=f"{both[0]} in both"
            )
        self.started()
        return self

    def started(self) -> tuple[Launcher | None, tuple[str, ...]]:
        """The launcher (None: not stated) and the words that it starts."""
        line: str | tuple[str, ...] = self.command
        launcher = self.launcher
        words: Sequence[str] = line.split() if isinstance(line, str) else line
        if launcher is None and words[0] == "torchrun":
            launcher = "torchrun"
        if launcher != "torchrun":
            plain = None if launcher is None else Launcher.PLAIN
            return plain, ("sh", "-c", line) if isinstance(line, str) else line
        words = _without_shell(line) if isinstance(line, str) else line
        script = words[1:] if words[0] == "torchrun" else words
        _check_script(script)
        return Launcher.TORCHRUN, script

    def to_domain(self, data: Sequence[DataPart], package: RunPackage | None) -> Run:
        """How the program is run; `package` is its packed working directory."""
        launcher, words = self.started()
        return Run(
            command=words,
            setup=self.setup,
            image=self.image,
            package=package,
            environment=tuple(
                EnvironmentVariable(name=name, value=value)
                for name, value in sorted(self.env.items())
            ),
            secrets=tuple(sorted({*self.secrets})),
            launcher=launcher,
            ranks_per_instance=self.ranks_per_instance or 0,
            progress=None if self.progress is None else self.progress.to_domain(),
            data=tuple(part.to_domain() for part in data),
            grace_s=self.grace_s or 0,
            stalled_after_s=self.stalled_after or 0,
            on_stall=OnStall.RESTART if self.on_stall == "restart" else None,
        )


def _without_shell(line: str) -> tuple[str, ...]:
    """The words of a line that no shell reads."""
    alone = "a list of words, or a line that needs no shell, with torchrun"
    for character in _NO_SHELL:
        if character in line.strip():
            raise expected(alone, at="command", found=f"{character!r} in it")
    try:
        return tuple(shlex.split(line))
    except ValueError as error:
        raise expected(alone, at="command", found=str(error).lower()) from None


def _check_script(words: Sequence[str]) -> None:
    if not words:
        raise expected("what torchrun is to start after it", at="command", found="nothing")
    for word in words:
        if not word.startswith("-"):
            break
        if _OURS.match(word):
            raise expected(
                "torchrun without what Spotline tells it (run.ranks_per_instance says how many "
                "processes an instance has)",
                at="command",
                found=word,
            )
