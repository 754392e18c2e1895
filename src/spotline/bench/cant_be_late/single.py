"""The benchmark on single zones: every trace is a pool of its own."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from spotline.bench.cant_be_late.policies import (
    CLAIRVOYANT,
    RULES,
    SPOTLINE,
    UNIFORM_PROGRESS,
    UNIFORM_PROGRESS_EAGER,
    Say,
    known_policy,
    run_clairvoyant,
    run_rule,
    run_spotline,
    solve_mix,
)
from spotline.bench.cant_be_late.report import PolicyRuns, compared, document, gap_share_percent
from spotline.bench.cant_be_late.rules import LONGEST_DEADLINE_TICKS, Variant, variants_of
from spotline.bench.cant_be_late.ticks import Windows
from spotline.bench.cant_be_late.traces import Trace, read_traces, window_starts
from spotline.contracts.errors import ContractError
from spotline.domain.market.run_law import LawMix, learn_mix

LEAVE_OUT: Final = ("region", "zone", "none")


@dataclass(frozen=True, slots=True, kw_only=True)
class CantBeLateOptions:
    """What to run.

    `traces` holds what is tested, `train` what may be learned from; `leave_out` says which of the
    latter a tested zone must not have been learned from: its region, its zone or none. A series
    equal to the tested one is never learned from.
    """

    traces: Path
    grid: str
    policy: str
    train: Path | None
    leave_out: str = "none"


def bench_single(options: CantBeLateOptions, say: Say) -> dict[str, Any]:
    """Run the benchmark; return its JSON document.

    Raises
    ------
    ValueError
        A name is unknown, or a trace is shorter than the longest deadline.
    ContractError
        A directory or file breaks the format, or nothing is left to learn from.
    """
    policy = known_policy(options.policy)
    variants = variants_of(options.grid)
    tested = read_traces(options.traces)
    windows = {trace.name: windows_of(trace) for trace in tested}
    extra: dict[str, Any] = {"leave_out": options.leave_out}
    if policy == SPOTLINE:
        groups = training_groups(tested, training_of(options.train), options.leave_out)
        extra["trained_on"] = {
            trace.name: [one.name for one in known] for traces, known in groups for trace in traces
        }
        outcome = run_learned(groups, windows, variants, say)
    else:
        outcome = run_known(policy, windows, variants, say)
    others = {
        name: outcome if name == policy else run_known(name, windows, variants, say)
        for name in (UNIFORM_PROGRESS, UNIFORM_PROGRESS_EAGER, CLAIRVOYANT)
    }
    best = others[CLAIRVOYANT].score()
    extra["gap_share_percent"] = {
        name: gap_share_percent(outcome.score(), others[name].score(), best)
        for name in (UNIFORM_PROGRESS, UNIFORM_PROGRESS_EAGER)
    }
    return document(outcome, grid=options.grid, comparison=compared(outcome, others), extra=extra)


def windows_of(trace: Trace) -> Windows:
    """The windows of a trace; raises ValueError naming a trace that is too short."""
    try:
        starts = window_starts(0, len(trace.up), LONGEST_DEADLINE_TICKS)
    except ValueError as error:
        raise ValueError(f"{trace.name}: {error}") from error
    return Windows(up=trace.up[:, np.newaxis], starts=starts)


def training_of(directory: Path | None) -> list[Trace]:
    """Read what may be learned from; raises ContractError where none is given."""
    if directory is None:
        raise ContractError("--train", "expected a directory of traces that may be learned from")
    return read_traces(directory)


def training_groups(
    tested: Sequence[Trace], known: Sequence[Trace], leave_out: str
) -> list[tuple[list[Trace], list[Trace]]]:
    """Tested traces that learn from the same known ones, with those.

    Raises
    ------
    ValueError
        `leave_out` is unknown.
    ContractError
        Nothing is left to learn from.
    """
    if leave_out not in LEAVE_OUT:
        raise ValueError(f"--leave-out: expected {', '.join(LEAVE_OUT)}, found {leave_out!r}")
    groups: dict[tuple[int, ...], tuple[list[Trace], list[Trace]]] = {}
    for trace in tested:
        kept = [index for index, one in enumerate(known) if _may_learn(trace, one, leave_out)]
        if not kept:
            other = "trace" if leave_out == "none" else leave_out
            raise ContractError(
                "--train", f"expected traces of another {other} than {trace.name}, found none"
            )
        group = groups.setdefault(tuple(kept), ([], [known[index] for index in kept]))
        group[0].append(trace)
    return list(groups.values())


def _may_learn(tested: Trace, other: Trace, leave_out: str) -> bool:
    if np.array_equal(tested.up, other.up):
        return False
    if leave_out == "region":
        return other.region != tested.region
    return leave_out == "none" or other.zone != tested.zone


def run_known(
    policy: str, windows: dict[str, Windows], variants: Sequence[Variant], say: Say
) -> PolicyRuns:
    """Run a rule policy or the clairvoyant optimum on every pool."""
    outcome = PolicyRuns(policy=policy)
    _run_once(policy, next(iter(windows.values())), variants[0])
    for variant in variants:
        for pool, of in windows.items():
            begin = time.perf_counter()
            outcome.runs[variant, pool] = _run_once(policy, of, variant)
            outcome.run_s += time.perf_counter() - begin
    say(f"{policy}: {outcome.count()} runs in {outcome.run_s:.1f} s")
    return outcome


def _run_once(policy: str, windows: Windows, variant: Variant) -> np.ndarray[Any, Any]:
    if policy in RULES:
        return run_rule(policy, windows, variant)
    return run_clairvoyant(windows, variant)


def run_learned(
    groups: Sequence[tuple[Sequence[Trace], Sequence[Trace]]],
    windows: dict[str, Windows],
    variants: Sequence[Variant],
    say: Say,
) -> PolicyRuns:
    """Learn a mix per group, solve a table per variant, and run the learned policy."""
    outcome = PolicyRuns(policy=SPOTLINE)
    mixes: list[tuple[LawMix, Sequence[Trace]]] = []
    for traces, known in groups:
        say(
            f"{', '.join(trace.name for trace in traces)}: "
            f"learns from {', '.join(trace.name for trace in known)}"
        )
        mixes.append((learn_mix([trace.up for trace in known]), traces))
    _warm_up(mixes[0][0], windows[mixes[0][1][0].name], variants[0])
    for variant in variants:
        for mix, traces in mixes:
            begin = time.perf_counter()
            table = solve_mix(mix, variant)
            outcome.table_s += time.perf_counter() - begin
            begin = time.perf_counter()
            for trace in traces:
                outcome.runs[variant, trace.name] = run_spotline(mix, table, windows[trace.name])
            outcome.run_s += time.perf_counter() - begin
        say(f"overhead {variant.overhead_h:g} h, deadline {variant.deadline_h} h: done")
    return outcome


def _warm_up(mix: LawMix, windows: Windows, variant: Variant) -> None:
    """Compile before the clock runs, on a window too short to take time."""
    short = Variant(overhead_s=variant.overhead_s, deadline_ticks=2)
    one = Windows(up=windows.up, starts=windows.starts[:1])
    run_spotline(mix, solve_mix(mix, short), one)
