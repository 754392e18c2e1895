"""What `spotline knowledge` prints and writes as JSON."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from spotline.cli.tables import Column, Kind, number_columns, print_line, print_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spotline.adapters.knowledge.reader import ImportedFile
    from spotline.domain.configuration.configuration import (
        Configuration,
        MeasuredRun,
        NoPrediction,
        Prediction,
    )
    from spotline.domain.configuration.memory import MemoryBreakdown
    from spotline.domain.configuration.rules import BrokenRule
    from spotline.domain.configuration.scaling import Scaling

# Rows refused for one and the same reason that are listed by number; --json has all.
_SHOWN_ROWS = 20

_TEXT_COLUMNS = frozenset({"file", "format", "stack", "what", "value", "source", "basis"})

_FOLDED_COLUMNS = frozenset({"basis", "file", "format"})


def file_summary(file: ImportedFile) -> dict[str, Any]:
    """One imported table as JSON has it."""
    return {
        "file": file.file,
        "format": file.format_name,
        "stacks": list(file.stacks),
        "rows": file.rows,
        "runs": len(file.runs),
        "duplicates": file.duplicates,
        "unknown_columns": list(file.unknown_columns),
        "refused": [
            {
                "row": row.row,
                "field": row.field,
                "expected": row.expected,
                "found": row.found,
            }
            for row in file.refused
        ],
    }


def print_import(
    imported: Sequence[ImportedFile], summary: dict[str, Any], *, written: bool
) -> None:
    """Show what came in, and every refused row with its reason."""
    numbers = number_columns("runs", "refused", "rows", "repeated", rank=0)
    print_table(
        (Column("file", Kind.ID), Column("format", rank=1), *numbers),
        [
            (
                Path(file.file).name,
                file.format_name,
                str(len(file.runs)),
                str(len(file.refused)),
                str(file.rows),
                str(file.duplicates),
            )
            for file in imported
        ],
    )
    for file in imported:
        name = Path(file.file).name
        if file.unknown_columns:
            print_line(
                f"{name}: columns not read: {', '.join(file.unknown_columns)}",
            )
        for (field, reason), rows in _refusals(file).items():
            shown = ", ".join(str(row) for row in rows[:_SHOWN_ROWS])
            more = f" and {len(rows) - _SHOWN_ROWS} more" if len(rows) > _SHOWN_ROWS else ""
            print_line(
                f"refused: {name}, row {shown}{more}: field {field}: {reason}",
            )
    if written:
        print_line(
            f"{summary['path']}: {summary['runs']} runs, {summary['new_runs']} new, "
            f"digest {summary['digest'][:12]}",
        )
    else:
        print_line("nothing imported; no file written")


def _refusals(file: ImportedFile) -> dict[tuple[str, str], list[int]]:
    """Rows by what is wrong with them, in order of the first."""
    rows: dict[tuple[str, str], list[int]] = {}
    for refused in file.refused:
        rows.setdefault((refused.field, refused.reason), []).append(refused.row)
    return rows


def described_runs(runs: Sequence[MeasuredRun]) -> dict[str, Any]:
    """Count runs by outcome, model, GPU and method, with the ranges of what was measured."""
    from collections import Counter

    from spotline.domain.configuration.configuration import RunOutcome

    outcomes = Counter(run.outcome for run in runs)
    rates = [run.tokens_per_s for run in runs if run.ran]
    of = [run.configuration for run in runs]
    return {
        "runs": len(runs),
        "outcomes": {outcome.value: outcomes[outcome] for outcome in RunOutcome},
        "models": dict(sorted(Counter(case.model_name for case in of).items())),
        "methods": dict(sorted(Counter(case.method.value for case in of).items())),
        "gpu_models": dict(sorted(Counter(case.gpu_model for case in of).items())),
        "ranges": {
            name: [min(values), max(values)]
            for name, values in (
                ("gpus", [case.gpus for case in of]),
                ("nodes", [case.nodes for case in of]),
                ("tokens_per_sample", [case.tokens_per_sample for case in of]),
                ("batch_size", [case.batch_size for case in of]),
                ("tokens_per_s", rates),
                ("peak_memory_gb", [run.peak_memory_gb for run in runs if run.peak_memory_gb]),
            )
            if values
        },
    }


def _range(described: dict[str, Any], name: str) -> str:
    found = described["ranges"].get(name)
    return "-" if found is None else f"{found[0]:,.0f}..{found[1]:,.0f}"


def print_description(described: dict[str, Any]) -> None:
    """Show what a knowledge base holds."""
    _print_stacks(described["stacks"])
    print_line()
    _print_spread(described)
    print_line()
    print_line(
        f"{described['path']}: {described['runs']} runs, digest {described['digest'][:12]}",
    )


def _print_stacks(stacks: dict[str, Any]) -> None:
    numbers = number_columns("runs", "ran", "OOM", "failed", "models", "GPUs", "tokens/s", rank=0)
    rows = []
    for stack, figures in stacks.items():
        outcomes = figures["outcomes"]
        rows.append(
            (
                stack,
                str(figures["runs"]),
                str(outcomes["succeeded"]),
                str(outcomes["out_of_memory"]),
                str(outcomes["rejected"] + outcomes["failed"]),
                str(len(figures["models"])),
                _range(figures, "gpus"),
                _range(figures, "tokens_per_s"),
            )
        )
    print_table((Column("stack", Kind.ID), *numbers), rows)


def _print_spread(described: dict[str, Any]) -> None:
    print_table(
        (Column("runs by"), Column("value", Kind.ID), Column("runs", Kind.NUMBER)),
        [
            (title if index == 0 else "", value, str(count))
            for title, key in (("model", "models"), ("GPU", "gpu_models"), ("method", "methods"))
            for index, (value, count) in enumerate(described[key].items())
        ],
    )


def prediction_json(
    configuration: Configuration,
    broken: Sequence[BrokenRule],
    answers: Sequence[Prediction | NoPrediction],
    memory: MemoryBreakdown,
    laws: Sequence[Scaling | NoPrediction],
) -> dict[str, Any]:
    """What is said of one configuration, as JSON has it."""
    from dataclasses import asdict

    from spotline.domain.configuration.registry import DEFAULT_SOURCE

    described = asdict(configuration)
    described["method"] = configuration.method.value
    described["options"] = {part.name: part.value for part in configuration.options}
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
        "scaling": [_law_json(law) for law in laws],
    }


def _law_json(law: Scaling | NoPrediction) -> dict[str, Any]:
    from spotline.domain.configuration.configuration import NoPrediction

    if isinstance(law, NoPrediction):
        return {"source_id": law.source_id, "reason": law.reason}
    return {
        "mode": law.mode.value,
        "alpha_tokens_per_hour": law.alpha,
        "beta_tokens_per_hour": law.beta,
        "residual_percent": law.residual_percent,
        "linear": law.linear,
        "table_tokens_per_hour": list(law.table),
        "skipped": {str(count.instances): count.reason for count in law.skipped},
    }


def print_prediction(
    configuration: Configuration,
    broken: Sequence[BrokenRule],
    answers: Sequence[Prediction | NoPrediction],
    memory: MemoryBreakdown,
    laws: Sequence[Scaling | NoPrediction],
) -> None:
    """Show what every source says of one configuration, and how it scales."""
    from spotline.domain.configuration.configuration import NoPrediction
    from spotline.domain.configuration.registry import DEFAULT_SOURCE

    print_line(
        f"{configuration.model_name} {configuration.method.value} on {configuration.gpus}x "
        f"{configuration.gpu_model} in {configuration.nodes} node(s), "
        f"{configuration.batch_size} x {configuration.tokens_per_sample} tokens a step",
    )
    for rule in broken:
        print_line(f"refused: {rule.message} ({rule.rule})", err=True, style="red")
    if answers:
        rows: list[tuple[str, ...]] = []
        for answer in answers:
            mark = " *" if answer.source_id == DEFAULT_SOURCE else ""
            if isinstance(answer, NoPrediction):
                rows.append((answer.source_id + mark, "-", "-", "-", answer.reason))
                continue
            rows.append(
                (
                    answer.source_id + mark,
                    f"{answer.tokens_per_s:,.0f}",
                    f"{answer.low_tokens_per_s:,.0f}..{answer.high_tokens_per_s:,.0f}",
                    f"{answer.success_probability:.0%}",
                    answer.basis,
                )
            )
        numbers = number_columns("tokens/s", "90 % interval", "runs well", rank=0)
        columns = (Column("source", Kind.ID), *numbers, Column("basis", Kind.SENTENCE))
        print_table(columns, rows, whole=True)
    for law in laws:
        print_line(_law_line(law))
    verdict = "fits" if memory.fits else "does not fit: expect it to run out of memory"
    print_line(
        f"memory: {memory.total_gb:.1f} of {memory.available_gb:.1f} GB on the fullest GPU, "
        f"{verdict} (weights {memory.weights_gb:.1f}, optimiser {memory.optimiser_gb:.1f}, "
        f"gradients {memory.gradients_gb:.1f} or logits {memory.logits_gb:.1f}, activations "
        f"{memory.activations_gb:.1f}, overhead {memory.overhead_gb:.1f})",
    )


def _law_line(law: Scaling | NoPrediction) -> str:
    from spotline.domain.configuration.configuration import NoPrediction

    if isinstance(law, NoPrediction):
        return f"H(n): {law.source_id} has none: {law.reason}"
    rates = ", ".join(f"{count.instances}: {count.tokens_per_hour:.4g}" for count in law.rates)
    kind = "a line" if law.linear else "no line, take the table"
    left_out = "".join(f"; not {count.instances} ({count.reason})" for count in law.skipped)
    return (
        f"H(n), {law.mode.value.replace('_', ' ')} batch: {law.alpha:.4g} n {law.beta:+.4g} tokens/h, "
        f"off by {law.residual_percent:.1f} % at most ({kind}); {rates}{left_out}"
    )


def print_evaluation(found: dict[str, Any]) -> None:
    """Show the figures of an evaluation, a line for every group."""
    for line in _lines(found):
        print_line(line)


def _lines(value: Any, path: tuple[str, ...] = ()) -> list[str]:
    """One line for every object that holds plain values, named by its path."""
    if not isinstance(value, dict):
        return [f"{' / '.join(path)}: {_shown(value)}"]
    plain = {name: inner for name, inner in value.items() if not isinstance(inner, dict)}
    lines = []
    if plain:
        shown = ", ".join(f"{name} {_shown(inner)}" for name, inner in plain.items())
        lines.append(f"{' / '.join(path) or 'all'}: {shown}")
    for name, inner in value.items():
        if isinstance(inner, dict):
            lines.extend(_lines(inner, (*path, name)))
    return lines


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list):
        return " ".join(_shown(part) for part in value)
    return str(value)
