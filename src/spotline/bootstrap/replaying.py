"""Replays for the page: verification and what-ifs of a recorded log, in a process of their own."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path

from spotline.adapters.eventlog.manifest import environment
from spotline.adapters.eventlog.reader import EventLogReader
from spotline.application.page.replaying import (
    DivergenceShown,
    EntryVerdict,
    JobBeside,
    ReplayAsked,
    ReplayShown,
    ReplayVerdict,
    RunBeside,
    ServiceVerified,
    SlotLived,
    Verified,
    WhatIfAsked,
)
from spotline.bootstrap.beside import ProcessBeside
from spotline.contracts.errors import ContractError, SpotlineError
from spotline.domain.events.lifecycle import JobAdvanced
from spotline.domain.policies.registry import BASELINES, POOL
from spotline.replay.account import BY_ITSELF, JobRow, account, read_recorded
from spotline.replay.account import RECORDED as AS_IT_WAS
from spotline.replay.availability import Availability
from spotline.replay.handlers import handlers_of
from spotline.replay.recorded import readable_events
from spotline.replay.segments import SegmentReport, verify_segments
from spotline.replay.summary import SPOTLINE
from spotline.replay.verify import is_decision
from spotline.replay.what_if import share_of, what_if_of

_MOST_KEPT = 16
_MOST_DIVERGENCES = 20
_MOST_VERDICTS = 20_000

RULES = tuple(dict.fromkeys((SPOTLINE, *(policy.policy_id for policy in (*BASELINES, *POOL)))))
"""What jobs may be run again under."""


class LogReplays:
    """Works out what is asked of one log, one question after another; each once.

    Answers are kept: a question is a pure function of the log.
    """

    def __init__(self, log: Path) -> None:
        self._log = log
        self._beside = ProcessBeside()
        self._known: OrderedDict[ReplayAsked, Future[Verified | RunBeside]] = OrderedDict()

    def answer(self, asked: ReplayAsked) -> ReplayShown:
        """What is known by now; begins to work out what is not. Never waits."""
        shown = ReplayShown(log=str(self._log), rules=RULES)
        if asked == ReplayAsked():
            return shown
        known = self._known.get(asked) or self._begin(asked)
        if known is None or not known.done():
            return ReplayShown(log=shown.log, rules=RULES, running=True)
        found = _outcome(asked, known)
        if isinstance(found, Verified):
            return ReplayShown(log=shown.log, rules=RULES, verified=found)
        return ReplayShown(log=shown.log, rules=RULES, beside=found)

    def close(self) -> None:
        """Work nothing out any more. Safe to repeat."""
        self._beside.close()

    def _begin(self, asked: ReplayAsked) -> Future[Verified | RunBeside] | None:
        """Begin with a question; None where as many others as are kept are still open."""
        while len(self._known) >= _MOST_KEPT:
            oldest = next((key for key, known in self._known.items() if known.done()), None)
            if oldest is None:
                return None
            del self._known[oldest]
        begun = self._beside.begin(worked_out, self._log, asked)
        self._known[asked] = begun
        return begun


def _outcome(asked: ReplayAsked, known: Future[Verified | RunBeside]) -> Verified | RunBeside:
    """What came of a question, or why nothing did."""
    error = known.exception()
    if error is None:
        return known.result()
    problem = f"{type(error).__name__}: {error}"
    if asked.what_if is None:
        return Verified(problem=problem)
    return RunBeside(rule=asked.what_if.rule, problem=problem)


def worked_out(log: Path, asked: ReplayAsked) -> Verified | RunBeside:
    """Answer a question in this process: seconds, the first time minutes of compiling."""
    if asked.what_if is None:
        return verified(log)
    try:
        return beside(log, asked.what_if)
    except (SpotlineError, ValueError) as error:
        return RunBeside(rule=asked.what_if.rule, problem=str(error))


def verified(log: Path) -> Verified:
    """Verify a log, and say of each event whether it is a decision that was made again."""
    try:
        segments = verify_segments(log, here=environment(), most=_MOST_DIVERGENCES)
    except SpotlineError as error:
        return Verified(problem=str(error))
    own = segments[-1].report
    others = tuple(_note_of(segment) for segment in segments[:-1])
    diverged = tuple(
        DivergenceShown(
            seq=found.seq,
            cause_seq=found.cause_seq,
            service=found.handler,
            kind=found.kind,
            recorded=found.recorded,
            recomputed=found.recomputed,
            differences=found.differences,
        )
        for found in own.divergences
    )
    wrong = {(found.seq, found.service) for found in diverged}
    replayed = not (own.environment or own.unreadable)
    return Verified(
        entries=own.entries,
        answers=own.answers,
        skipped=own.skipped,
        parked=own.parked,
        open_inputs=own.open_inputs,
        sha256=own.decisions_sha256,
        services=tuple(
            ServiceVerified(
                service=service, decisions=made, sha256=own.sha256_by_service.get(service, "")
            )
            for service, made in own.decisions.items()
        ),
        divergences=diverged,
        verdicts=tuple(_verdicts(log, wrong)) if replayed else (),
        elsewhere=own.environment,
        notes=(*others, *(taken.describe() for taken in own.now_taken)),
        problem=own.unreadable,
    )


def _note_of(segment: SegmentReport) -> str:
    said = {0: "same", 1: "diverged"}.get(segment.report.exit_code, "not read")
    return f"incarnation {segment.incarnation}, in {segment.folder.name}: {said}"


def _verdicts(log: Path, wrong: set[tuple[int, str]]) -> Iterator[EntryVerdict]:
    reader = EventLogReader(log)
    specs = {
        handler.spec.service: handler.spec for handler in handlers_of(reader.manifest.settings)
    }
    for place, found in enumerate(readable_events(reader)):
        if place >= _MOST_VERDICTS:
            return
        service = found.envelope.source
        spec = specs.get(service)
        decided = spec is not None and is_decision(spec, found.event, found.envelope)
        verdict = ReplayVerdict.SAME if decided else ReplayVerdict.INPUT
        if (found.seq, service) in wrong:
            verdict = ReplayVerdict.DIVERGED
        yield EntryVerdict(
            seq=found.seq, kind=found.envelope.kind, service=service, verdict=verdict
        )


def beside(log: Path, asked: WhatIfAsked) -> RunBeside:
    """Run a log's jobs again under a rule, and show each beside what it was.

    Raises
    ------
    ContractError
        A factor, deadline or rule is none.
    UnreadableLog
        The log cannot be read to its end.
    """
    if asked.rule not in RULES:
        raise ContractError("rule", f"expected one of {', '.join(RULES)}, found {asked.rule!r}")
    factors = (("spot", asked.spot_factor), ("on_demand", asked.on_demand_factor))
    terms = what_if_of(
        asked.deadline,
        ",".join(f"{name}={factor}" for name, factor in factors if factor),
        availability=Availability(
            gone_offering=asked.gone,
            first_slot=asked.gone_from,
            last_slot=asked.gone_to,
            gone_cloud=asked.gone_cloud,
            count_factor=share_of(asked.counts),
        ),
    )
    made = account(read_recorded(log), (asked.rule,), terms=terms)
    left_out = {left.job_id: left.reason for left in made.left_out}
    by_basis: dict[str, dict[str, JobRow]] = {AS_IT_WAS: {}, BY_ITSELF: {}}
    for row in made.rows():
        by_basis.get(row.basis, {})[row.job_id] = row
    lived = {job_id: _lived(advances) for job_id, advances in made.report.advances.items()}
    other_lived = {life.job_id: _lived(life.advances) for life in made.by_itself[asked.rule]}
    return RunBeside(
        rule=asked.rule,
        changed=made.changed,
        assumptions=made.assumptions,
        jobs=tuple(
            replace(
                _job_beside(row, by_basis[BY_ITSELF].get(job_id), left_out.get(job_id, "")),
                slots=lived.get(job_id, ()),
                other_slots=other_lived.get(job_id, ()),
            )
            for job_id, row in by_basis[AS_IT_WAS].items()
        ),
    )


def _lived(advances: Sequence[JobAdvanced]) -> tuple[SlotLived, ...]:
    return tuple(
        SlotLived(
            slot=advanced.slot,
            lots=advanced.lots,
            cost_micro_usd=advanced.cost_micro_usd,
            progress_ppm=advanced.progress_ppm,
        )
        for advanced in advances
    )


def _job_beside(was: JobRow, other: JobRow | None, why: str) -> JobBeside:
    if not was.counted:
        other = None
    return JobBeside(
        job_id=was.job_id,
        name=was.name,
        deadline_ns=was.deadline_ns,
        cost_micro_usd=was.cost_micro_usd,
        on_time=was.on_time,
        other_cost_micro_usd=None if other is None else other.cost_micro_usd,
        other_on_time=None if other is None else other.on_time,
        other_deadline_ns=0 if other is None else other.deadline_ns,
        why=why or "it cannot be run again",
    )
