"""`spotline knowledge`: import measured runs, describe them, predict from them, check predictions."""

# Imports of what the commands use are inside them: pyarrow and the sources cost seconds.

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from spotline.cli.calls import EXIT_BAD_INPUT, EXIT_REFUSED
from spotline.cli.failures import explained, writable
from spotline.cli.jobs_view import print_json
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

    from spotline.domain.configuration.configuration import (
        Configuration,
        MeasuredRun,
        Method,
        MethodOption,
        NoPrediction,
    )
    from spotline.domain.configuration.interface import KnowledgeSource
    from spotline.domain.configuration.scaling import Scaling

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

    with explained(as_json=as_json):
        imported = [read_file(path, format_name=source_format, stack=stack) for path in files]
        before = read_knowledge(to) if to.exists() else ()
        runs = merged(before, *(file.runs for file in imported))
        some = any(file.runs for file in imported)
        digest = ""
        if some:
            with writable(to):
                digest = write_knowledge(runs, to)
    summary = {
        "path": str(to),
        "runs": len(runs),
        "new_runs": len(runs) - len(before),
        "digest": digest,
        "files": [file_summary(file) for file in imported],
    }
    if as_json:
        print_json(summary)
    else:
        print_import(imported, summary, written=some)
    if not some:
        raise typer.Exit(EXIT_BAD_INPUT)


@knowledge_app.command("describe")
def describe_command(file: _File, as_json: _Json = False) -> None:
    """Say what a knowledge base holds: runs, stacks, models, GPUs, ranges, failures."""
    from spotline.adapters.knowledge.store import knowledge_digest, read_knowledge

    with explained(as_json=as_json):
        runs = read_knowledge(file)
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
        print_json(described)
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
    from spotline.adapters.knowledge.store import read_knowledge
    from spotline.domain.configuration.configuration import Configuration
    from spotline.domain.configuration.memory import gpu_memory
    from spotline.domain.configuration.rules import broken_rules

    with explained(as_json=as_json):
        known_method, options = _method(method), _options(option or ())
        configuration = Configuration(
            model_name=_model_name(model, parameters),
            method=known_method,
            gpu_model=_gpu_name(gpu),
            gpus=gpus,
            nodes=nodes,
            tokens_per_sample=seq,
            batch_size=gpus if batch is None else batch,
            precision=precision,
            expert_parallel=expert_parallel,
            model_parameters=parameters,
            options=options,
        )
        runs = () if file is None else read_knowledge(file)
        names = _source_names(source, with_history=bool(runs))
        stack = _stack(stack, runs)
    # Sources learn every stack by itself: the others would only take time.
    own = [run for run in runs if run.stack == stack]
    broken = broken_rules(configuration)
    sources = () if broken else _taught(names, own)
    answers = tuple(each.predict((configuration,), stack=stack)[0] for each in sources)
    laws = _scalings(sources, configuration, stack) if scaling else ()
    memory = gpu_memory(configuration)
    if as_json:
        found = prediction_json(configuration, broken, answers, memory, laws)
        print_json(found)
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
    from spotline.adapters.knowledge.store import read_knowledge

    with explained(as_json=as_json):
        runs = read_knowledge(file)
        names = _source_names(source, with_history=True)
        # After the input is known to be good: it loads every source's library.
        from spotline.bench.knowledge.evaluation import evaluate_sources

        try:
            report = evaluate_sources(runs, sources=names, repeats=repeats, seed=seed)
        except ValueError as error:
            raise ValueError(f"{file}: {error}") from error
    found = report.as_json()
    if as_json:
        print_json(found)
    else:
        print_evaluation(found)


# --- input and failure ------------------------------------------------------------------------


def _method(text: str) -> Method:
    from spotline.domain.configuration.configuration import Method

    try:
        return Method(text)
    except ValueError:
        methods = ", ".join(method.value for method in Method)
        raise ValueError(f"--method must be one of {methods}, was {text!r}") from None


def _options(texts: Sequence[str]) -> tuple[MethodOption, ...]:
    from spotline.domain.configuration.configuration import MethodOption

    given: list[MethodOption] = []
    for text in texts:
        name, separator, value = text.partition("=")
        if not name or not separator:
            raise ValueError(f"--option must be NAME=VALUE, was {text!r}")
        given.append(MethodOption(name=name, value=value))
    return tuple(sorted(given, key=lambda option: option.name))


def _model_name(text: str, parameters: int) -> str:
    from spotline.domain.configuration.models import UnknownModel, model_facts

    try:
        return model_facts(text, parameters).name
    except UnknownModel as error:
        raise ValueError(f"--model: {error}") from error


def _gpu_name(text: str) -> str:
    from spotline.domain.configuration.gpus import UnknownGpu, gpu_facts

    try:
        return gpu_facts(text).name
    except UnknownGpu as error:
        raise ValueError(f"--gpu: {error}") from error


def _source_names(wanted: list[str] | None, *, with_history: bool) -> tuple[str, ...]:
    from spotline.domain.configuration.registry import source_names

    if not wanted:
        return source_names() if with_history else _WITHOUT_HISTORY
    for name in wanted:
        if name not in source_names():
            known = ", ".join(source_names())
            raise ValueError(f"--source must be one of {known}, was {name!r}")
    return tuple(sorted(set(wanted)))


def _stack(wanted: str, runs: Sequence[MeasuredRun]) -> str:
    """The stack asked for, else the one with most runs, by name among equals."""
    from collections import Counter

    known = Counter(run.stack for run in runs)
    if wanted and runs and wanted not in known:
        raise ValueError(f"--stack must be one of {', '.join(sorted(known))}, was {wanted!r}")
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

    asked = [source for source in sources if source.source_id == DEFAULT_SOURCE] or list(
        sources[:1]
    )
    each = max(1, configuration.gpus // configuration.nodes)
    return tuple(
        scaling_of(source, configuration, each, _SCALING_COUNTS, mode, stack)
        for source in asked
        for mode in ScalingMode
    )
