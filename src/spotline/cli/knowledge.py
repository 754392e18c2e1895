"""`spotline knowledge`: import measured runs, describe them, predict from them, check predictions."""

# Imports of what the commands use are inside them: pyarrow and the sources cost seconds.

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from spotline.cli.knowledge_view import (
    described_runs,
    file_summary,
    prediction_json,
    print_description,
    print_evaluation,
    print_import,
    print_prediction,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spotline.domain.configuration.configuration import Configuration, MeasuredRun, NoPrediction
    from spotline.domain.configuration.interface import KnowledgeSource
    from spotline.domain.configuration.scaling import Scaling

EXIT_REFUSED = 1
EXIT_BAD_INPUT = 2

_WITHOUT_HISTORY = ("analytic",)
_SCALING_COUNTS = (1, 2, 4, 8, 16, 32)

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
        "files": [file_summary(one) for one in imported],
    }
    if as_json:
        print(json.dumps(summary, indent=2))
    else:
        print_import(imported, summary, written=some)
    if not some:
        raise typer.Exit(EXIT_BAD_INPUT)


@knowledge_app.command("describe")
def describe_command(file: _File, as_json: _Json = False) -> None:
    """Say what a knowledge base holds: runs, stacks, models, GPUs, ranges, failures."""
    from spotline.adapters.knowledge.store import knowledge_digest

    runs = _read(file, as_json=as_json)
    described: dict[str, Any] = {
        "path": str(file),
        "digest": knowledge_digest(runs),
        **described_runs(runs),
        "stacks": {
            stack: described_runs([run for run in runs if run.stack == stack])
            for stack in sorted({run.stack for run in runs})
        },
    }
    if as_json:
        print(json.dumps(described, indent=2))
        return
    print_description(described)


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
    scaling: Annotated[
        bool,
        typer.Option(
            "--scaling", help="Show H(n) on 1 to 32 instances of --gpus / --nodes GPUs each."
        ),
    ] = False,
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
    sources = () if broken else _taught(names, own)
    answers = tuple(one.predict((configuration,), stack=stack)[0] for one in sources)
    laws = _scalings(sources, configuration, stack) if scaling else ()
    memory = gpu_memory(configuration)
    if as_json:
        found = prediction_json(configuration, broken, answers, memory, laws)
        print(json.dumps(found, indent=2))
    else:
        print_prediction(configuration, broken, answers, memory, laws)
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
        print_evaluation(found)


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


def _taught(names: Sequence[str], runs: Sequence[MeasuredRun]) -> tuple[KnowledgeSource, ...]:
    from spotline.domain.configuration.registry import make_source

    sources = tuple(make_source(name) for name in names)
    for source in sources:
        if runs:
            source.learn(runs)
    return sources


def _scalings(
    sources: Sequence[KnowledgeSource], configuration: Configuration, stack: str
) -> tuple[Scaling | NoPrediction, ...]:
    """H(n) by the default source, or by the only one asked: weak, then at the same batch."""
    from spotline.domain.configuration.registry import DEFAULT_SOURCE
    from spotline.domain.configuration.scaling import ScalingMode, scaling_of

    asked = [one for one in sources if one.source_id == DEFAULT_SOURCE] or list(sources[:1])
    each = max(1, configuration.gpus // configuration.nodes)
    return tuple(
        scaling_of(source, configuration, each, _SCALING_COUNTS, mode, stack)
        for source in asked
        for mode in ScalingMode
    )


def _fail(exit_code: int, message: str, *, as_json: bool) -> NoReturn:
    if as_json:
        print(json.dumps({"error": message}, indent=2))
    else:
        typer.secho(f"error: {message}", err=True, fg="red")
    raise typer.Exit(exit_code)
