"""`spotline knowledge`: import measured runs, describe them, predict from them, check predictions."""

# Imports of what the commands use are inside them: pyarrow and the sources cost seconds.

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console
    from rich.table import Table

    from spotline.adapters.knowledge.reader import ImportedFile
    from spotline.domain.configuration.configuration import (
        Configuration,
        MeasuredRun,
        NoPrediction,
        Prediction,
    )
    from spotline.domain.configuration.memory import MemoryBreakdown
    from spotline.domain.configuration.rules import BrokenRule

EXIT_REFUSED = 1
EXIT_BAD_INPUT = 2

# Rows refused for one and the same reason that are listed by number; --json has all.
_SHOWN_ROWS = 20
_WITHOUT_HISTORY = ("analytic",)

_TEXT_COLUMNS = frozenset({"file", "format", "stack", "what", "value", "source", "basis"})

knowledge_app = typer.Typer(
    name="knowledge",
    help="What is known of how configurations run: import, describe, predict, evaluate.",
    no_args_is_help=True,
)

_Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]
_File = Annotated[Path, typer.Argument(metavar="FILE", help="Knowledge base (Parquet).")]
_Source = Annotated[
    list[str] | None, typer.Option(help="Only this knowledge source; repeat for several.")
]


def register(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    app.add_typer(knowledge_app, name="knowledge")


# --- commands ---------------------------------------------------------------------------------


@knowledge_app.command("import")
def import_command(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE...", help="Tables of measured runs: CSV, Parquet.")
    ],
    to: Annotated[
        Path,
        typer.Option("--to", metavar="FILE", help="Knowledge base to write, or to add to."),
    ],
    source_format: Annotated[
        str,
        typer.Option("--format", help="Format of the tables; by default told by their columns."),
    ] = "",
    stack: Annotated[
        str,
        typer.Option(help="Software they were measured with; by default the format's own."),
    ] = "",
    as_json: _Json = False,
) -> None:
    """Add measured runs to a knowledge base. Importing the same again changes nothing.

    Rows that cannot be used are listed with the reason. Exits 2 if no run could be imported.
    """
    from spotline.adapters.knowledge.reader import read_file
    from spotline.adapters.knowledge.store import merged, read_knowledge, write_knowledge
    from spotline.contracts.errors import ContractError

    try:
        imported = [read_file(path, format_name=source_format, stack=stack) for path in files]
        before = read_knowledge(to) if to.exists() else ()
    except ContractError as error:
        _fail(EXIT_BAD_INPUT, str(error), as_json=as_json)
    runs = merged(before, *(one.runs for one in imported))
    some = any(one.runs for one in imported)
    digest = ""
    if some:
        try:
            digest = write_knowledge(runs, to)
        except OSError as error:
            problem = error.strerror or str(error)
            _fail(
                EXIT_BAD_INPUT,
                f"{to}: expected a place to write to, found: {problem}",
                as_json=as_json,
            )
    summary = {
        "path": str(to),
        "runs": len(runs),
        "new_runs": len(runs) - len(before),
        "digest": digest,
        "files": [_file_summary(one) for one in imported],
    }
    if as_json:
        print(json.dumps(summary, indent=2))
    else:
        _print_import(imported, summary, written=some)
    if not some:
        raise typer.Exit(EXIT_BAD_INPUT)


@knowledge_app.command("describe")
def describe_command(file: _File, as_json: _Json = False) -> None:
    """Say what a knowledge base holds: runs, stacks, models, GPUs, ranges, failures."""
    from spotline.adapters.knowledge.store import knowledge_digest

    runs = _read(file, as_json=as_json)
    described = {
        "path": str(file),
        "digest": knowledge_digest(runs),
        **_described(runs),
        "stacks": {
            stack: _described([run for run in runs if run.stack == stack])
            for stack in sorted({run.stack for run in runs})
        },
    }
    if as_json:
        print(json.dumps(described, indent=2))
        return
    console = _console()
    console.print(_stacks_table(described["stacks"]))
    console.print(_spread_table(described))
    console.print(
        f"{file}: {described['runs']} runs, digest {described['digest'][:12]}", highlight=False
    )


@knowledge_app.command("predict")
def predict_command(
    model: Annotated[str, typer.Option(help="Model, such as llama-3.1-8b.")],
    gpu: Annotated[str, typer.Option(help="GPU, such as a100-80gb.")],
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="[FILE]", help="Knowledge base; without it only the analytic model answers."
        ),
    ] = None,
    method: Annotated[str, typer.Option(help="full, lora, qlora, gptq-lora or adapter.")] = "full",
    gpus: Annotated[int, typer.Option(min=1, help="GPUs over all nodes.")] = 1,
    nodes: Annotated[int, typer.Option(min=1, help="Nodes they are in.")] = 1,
    seq: Annotated[int, typer.Option(min=1, help="Tokens per sample.")] = 2048,
    batch: Annotated[
        int | None, typer.Option(min=1, help="Samples per step over all GPUs; default: --gpus.")
    ] = None,
    precision: Annotated[str, typer.Option(help="bfloat16, float16, float32 or fp8.")] = "bfloat16",
    expert_parallel: Annotated[
        int, typer.Option(min=1, help="GPUs that a mixture's experts are spread over.")
    ] = 1,
    parameters: Annotated[
        int, typer.Option(min=0, help="Size of a model that nobody knows, in parameters.")
    ] = 0,
    option: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="Setting of the training software; repeatable."),
    ] = None,
    source: _Source = None,
    stack: Annotated[
        str, typer.Option(help="Software it would run with; default: that with most runs.")
    ] = "",
    as_json: _Json = False,
) -> None:
    """Predict how a configuration would run: every source's answer, memory, hard rules.

    Exits 1 if the configuration breaks a hard rule, 2 if it cannot be understood.
    """
    from spotline.domain.configuration.memory import gpu_memory
    from spotline.domain.configuration.rules import broken_rules

    configuration = _configuration(
        model=model,
        method=method,
        gpu=gpu,
        gpus=gpus,
        nodes=nodes,
        tokens_per_sample=seq,
        batch_size=gpus if batch is None else batch,
        precision=precision,
        expert_parallel=expert_parallel,
        parameters=parameters,
        options=option or (),
        as_json=as_json,
    )
    runs = () if file is None else _read(file, as_json=as_json)
    names = _source_names(source, with_history=bool(runs), as_json=as_json)
    stack = _stack(stack, runs, as_json=as_json)
    # Sources learn every stack by itself: the others would only take time.
    own = [run for run in runs if run.stack == stack]
    broken = broken_rules(configuration)
    answers = () if broken else _answers(names, own, configuration, stack)
    memory = gpu_memory(configuration)
    if as_json:
        print(json.dumps(_prediction_json(configuration, broken, answers, memory), indent=2))
    else:
        _print_prediction(configuration, broken, answers, memory)
    if broken:
        raise typer.Exit(EXIT_REFUSED)


@knowledge_app.command("evaluate")
def evaluate_command(
    file: _File,
    source: _Source = None,
    repeats: Annotated[int, typer.Option(min=1, help="Random splits per stack.")] = 5,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the splits.")] = 0,
    as_json: _Json = False,
) -> None:
    """Check predictions on runs held back: a random split, and one model at a time, per stack."""
    runs = _read(file, as_json=as_json)
    names = _source_names(source, with_history=True, as_json=as_json)
    # After the input is known to be good: it loads every source's library.
    from spotline.bench.knowledge.evaluation import evaluate_sources

    try:
        report = evaluate_sources(runs, sources=names, repeats=repeats, seed=seed)
    except ValueError as error:
        _fail(EXIT_BAD_INPUT, f"{file}: {error}", as_json=as_json)
    found = report.as_json()
    if as_json:
        print(json.dumps(found, indent=2))
    else:
        _print_evaluation(found)


# --- input and failure ------------------------------------------------------------------------


def _read(file: Path, *, as_json: bool) -> tuple[MeasuredRun, ...]:
    from spotline.adapters.knowledge.store import read_knowledge
    from spotline.contracts.errors import ContractError

    try:
        return read_knowledge(file)
    except ContractError as error:
        _fail(EXIT_BAD_INPUT, str(error), as_json=as_json)


def _configuration(
    *,
    model: str,
    method: str,
    gpu: str,
    gpus: int,
    nodes: int,
    tokens_per_sample: int,
    batch_size: int,
    precision: str,
    expert_parallel: int,
    parameters: int,
    options: Sequence[str],
    as_json: bool,
) -> Configuration:
    from spotline.domain.configuration.configuration import Configuration, Method, MethodOption
    from spotline.domain.configuration.gpus import UnknownGpu, gpu_facts
    from spotline.domain.configuration.models import UnknownModel, model_facts

    try:
        known_method = Method(method)
    except ValueError:
        methods = ", ".join(one.value for one in Method)
        _fail(EXIT_BAD_INPUT, f"--method must be one of {methods}, was {method!r}", as_json=as_json)
    given: list[MethodOption] = []
    for text in options:
        name, separator, value = text.partition("=")
        if not name or not separator:
            _fail(EXIT_BAD_INPUT, f"--option must be NAME=VALUE, was {text!r}", as_json=as_json)
        given.append(MethodOption(name=name, value=value))
    try:
        return Configuration(
            model_name=model_facts(model, parameters).name,
            method=known_method,
            gpu_model=gpu_facts(gpu).name,
            gpus=gpus,
            nodes=nodes,
            tokens_per_sample=tokens_per_sample,
            batch_size=batch_size,
            precision=precision,
            expert_parallel=expert_parallel,
            model_parameters=parameters,
            options=tuple(sorted(given, key=lambda one: one.name)),
        )
    except UnknownModel as error:
        _fail(EXIT_BAD_INPUT, f"--model: {error}", as_json=as_json)
    except UnknownGpu as error:
        _fail(EXIT_BAD_INPUT, f"--gpu: {error}", as_json=as_json)
    except ValueError as error:
        _fail(EXIT_BAD_INPUT, str(error), as_json=as_json)


def _source_names(
    wanted: list[str] | None, *, with_history: bool, as_json: bool
) -> tuple[str, ...]:
    from spotline.domain.configuration.registry import source_names

    if not wanted:
        return source_names() if with_history else _WITHOUT_HISTORY
    for name in wanted:
        if name not in source_names():
            known = ", ".join(source_names())
            _fail(EXIT_BAD_INPUT, f"--source must be one of {known}, was {name!r}", as_json=as_json)
    return tuple(sorted(set(wanted)))


def _stack(wanted: str, runs: Sequence[MeasuredRun], *, as_json: bool) -> str:
    """The stack asked for, else the one with most runs, by name among equals."""
    from collections import Counter

    known = Counter(run.stack for run in runs)
    if wanted and runs and wanted not in known:
        _fail(
            EXIT_BAD_INPUT,
            f"--stack must be one of {', '.join(sorted(known))}, was {wanted!r}",
            as_json=as_json,
        )
    return wanted or min(known, key=lambda stack: (-known[stack], stack), default="")


def _answers(
    names: Sequence[str], runs: Sequence[MeasuredRun], configuration: Configuration, stack: str
) -> tuple[Prediction | NoPrediction, ...]:
    from spotline.domain.configuration.registry import make_source

    answers: list[Prediction | NoPrediction] = []
    for name in names:
        source = make_source(name)
        if runs:
            source.learn(runs)
        answers.extend(source.predict((configuration,), stack=stack))
    return tuple(answers)


def _fail(exit_code: int, message: str, *, as_json: bool) -> NoReturn:
    if as_json:
        print(json.dumps({"error": message}, indent=2))
    else:
        typer.secho(f"error: {message}", err=True, fg="red")
    raise typer.Exit(exit_code)


# --- output -----------------------------------------------------------------------------------


def _console() -> Console:
    from rich.console import Console

    return Console()


def _table(title: str, *columns: str) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(
        title=title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False
    )
    for column in columns:
        left = column in _TEXT_COLUMNS
        # Names are read whole and copied; in a narrow window the figures fold instead.
        table.add_column(column, justify="left" if left else "right", overflow="fold", no_wrap=left)
    return table


def _file_summary(one: ImportedFile) -> dict[str, Any]:
    return {
        "file": one.file,
        "format": one.format_name,
        "stacks": list(one.stacks),
        "rows": one.rows,
        "runs": len(one.runs),
        "duplicates": one.duplicates,
        "unknown_columns": list(one.unknown_columns),
        "refused": [
            {
                "row": row.row,
                "field": row.field,
                "expected": row.expected,
                "found": row.found,
            }
            for row in one.refused
        ],
    }


def _print_import(
    imported: Sequence[ImportedFile], summary: dict[str, Any], *, written: bool
) -> None:
    console = _console()
    table = _table("Imported", "file", "format", "rows", "runs", "repeated", "refused")
    for one in imported:
        table.add_row(
            Path(one.file).name,
            one.format_name,
            str(one.rows),
            str(len(one.runs)),
            str(one.duplicates),
            str(len(one.refused)),
        )
    console.print(table)
    for one in imported:
        name = Path(one.file).name
        if one.unknown_columns:
            console.print(
                f"{name}: columns not read: {', '.join(one.unknown_columns)}",
                highlight=False,
                markup=False,
            )
        for (field, reason), rows in _refusals(one).items():
            shown = ", ".join(str(row) for row in rows[:_SHOWN_ROWS])
            more = f" and {len(rows) - _SHOWN_ROWS} more" if len(rows) > _SHOWN_ROWS else ""
            console.print(
                f"refused: {name}, row {shown}{more}: field {field}: {reason}",
                highlight=False,
                markup=False,
                soft_wrap=True,
            )
    if written:
        console.print(
            f"{summary['path']}: {summary['runs']} runs, {summary['new_runs']} new, "
            f"digest {summary['digest'][:12]}",
            highlight=False,
            soft_wrap=True,
        )
    else:
        console.print("nothing imported; no file written", highlight=False)


def _refusals(one: ImportedFile) -> dict[tuple[str, str], list[int]]:
    """Rows by what is wrong with them, in order of the first."""
    rows: dict[tuple[str, str], list[int]] = {}
    for refused in one.refused:
        rows.setdefault((refused.field, refused.reason), []).append(refused.row)
    return rows


def _described(runs: Sequence[MeasuredRun]) -> dict[str, Any]:
    from collections import Counter

    from spotline.domain.configuration.configuration import RunOutcome

    outcomes = Counter(run.outcome for run in runs)
    rates = [run.tokens_per_s for run in runs if run.ran]
    of = [run.configuration for run in runs]
    return {
        "runs": len(runs),
        "outcomes": {outcome.value: outcomes[outcome] for outcome in RunOutcome},
        "models": dict(sorted(Counter(one.model_name for one in of).items())),
        "methods": dict(sorted(Counter(one.method.value for one in of).items())),
        "gpu_models": dict(sorted(Counter(one.gpu_model for one in of).items())),
        "ranges": {
            name: [min(values), max(values)]
            for name, values in (
                ("gpus", [one.gpus for one in of]),
                ("nodes", [one.nodes for one in of]),
                ("tokens_per_sample", [one.tokens_per_sample for one in of]),
                ("batch_size", [one.batch_size for one in of]),
                ("tokens_per_s", rates),
                ("peak_memory_gb", [run.peak_memory_gb for run in runs if run.peak_memory_gb]),
            )
            if values
        },
    }


def _range(described: dict[str, Any], name: str) -> str:
    found = described["ranges"].get(name)
    return "-" if found is None else f"{found[0]:,.0f}..{found[1]:,.0f}"


def _stacks_table(stacks: dict[str, Any]) -> Table:
    table = _table(
        "Stacks",
        "stack",
        "runs",
        "ran",
        "out of\nmemory",
        "rejected",
        "failed",
        "models",
        "GPUs",
        "batch",
        "tokens per\nsample",
        "tokens/s",
    )
    for stack, one in stacks.items():
        outcomes = one["outcomes"]
        table.add_row(
            stack,
            str(one["runs"]),
            str(outcomes["succeeded"]),
            str(outcomes["out_of_memory"]),
            str(outcomes["rejected"]),
            str(outcomes["failed"]),
            str(len(one["models"])),
            _range(one, "gpus"),
            _range(one, "batch_size"),
            _range(one, "tokens_per_sample"),
            _range(one, "tokens_per_s"),
        )
    return table


def _spread_table(described: dict[str, Any]) -> Table:
    table = _table("Runs by", "what", "value", "runs")
    for title, key in (("model", "models"), ("GPU", "gpu_models"), ("method", "methods")):
        for index, (value, count) in enumerate(described[key].items()):
            table.add_row(title if index == 0 else "", value, str(count))
    return table


def _prediction_json(
    configuration: Configuration,
    broken: Sequence[BrokenRule],
    answers: Sequence[Prediction | NoPrediction],
    memory: MemoryBreakdown,
) -> dict[str, Any]:
    from dataclasses import asdict

    from spotline.domain.configuration.registry import DEFAULT_SOURCE

    described = asdict(configuration)
    described["method"] = configuration.method.value
    described["options"] = {one.name: one.value for one in configuration.options}
    return {
        "configuration": described,
        "broken_rules": [asdict(rule) for rule in broken],
        "default_source": DEFAULT_SOURCE,
        "predictions": [asdict(answer) for answer in answers],
        "memory": {
            **{name: round(value, 3) for name, value in asdict(memory).items()},
            "total_gb": round(memory.total_gb, 3),
            "fits": memory.fits,
        },
    }


def _print_prediction(
    configuration: Configuration,
    broken: Sequence[BrokenRule],
    answers: Sequence[Prediction | NoPrediction],
    memory: MemoryBreakdown,
) -> None:
    from spotline.domain.configuration.configuration import NoPrediction
    from spotline.domain.configuration.registry import DEFAULT_SOURCE

    console = _console()
    console.print(
        f"{configuration.model_name} {configuration.method.value} on {configuration.gpus}x "
        f"{configuration.gpu_model} in {configuration.nodes} node(s), "
        f"{configuration.batch_size} x {configuration.tokens_per_sample} tokens a step",
        highlight=False,
    )
    for rule in broken:
        typer.secho(f"refused: {rule.message} ({rule.rule})", err=True, fg="red")
    if answers:
        table = _table("Predictions", "source", "tokens/s", "90 % interval", "runs well", "basis")
        for answer in answers:
            mark = " *" if answer.source_id == DEFAULT_SOURCE else ""
            if isinstance(answer, NoPrediction):
                table.add_row(answer.source_id + mark, "-", "-", "-", answer.reason)
                continue
            table.add_row(
                answer.source_id + mark,
                f"{answer.tokens_per_s:,.0f}",
                f"{answer.low_tokens_per_s:,.0f}..{answer.high_tokens_per_s:,.0f}",
                f"{answer.success_probability:.0%}",
                answer.basis,
            )
        console.print(table)
    verdict = "fits" if memory.fits else "does not fit: expect it to run out of memory"
    console.print(
        f"memory: {memory.total_gb:.1f} of {memory.available_gb:.1f} GB on the fullest GPU, "
        f"{verdict} (weights {memory.weights_gb:.1f}, optimiser {memory.optimiser_gb:.1f}, "
        f"gradients {memory.gradients_gb:.1f} or logits {memory.logits_gb:.1f}, activations "
        f"{memory.activations_gb:.1f}, overhead {memory.overhead_gb:.1f})",
        highlight=False,
        soft_wrap=True,
    )


def _print_evaluation(found: dict[str, Any]) -> None:
    console = _console()
    for line in _lines(found):
        console.print(line, highlight=False, markup=False, soft_wrap=True)


def _lines(value: Any, path: tuple[str, ...] = ()) -> list[str]:
    """One line for every object that holds plain values, named by its path."""
    if not isinstance(value, dict):
        return [f"{' / '.join(path)}: {_shown(value)}"]
    plain = {name: one for name, one in value.items() if not isinstance(one, dict)}
    lines = []
    if plain:
        shown = ", ".join(f"{name} {_shown(one)}" for name, one in plain.items())
        lines.append(f"{' / '.join(path) or 'all'}: {shown}")
    for name, one in value.items():
        if isinstance(one, dict):
            lines.extend(_lines(one, (*path, name)))
    return lines


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list):
        return " ".join(_shown(one) for one in value)
    return str(value)
