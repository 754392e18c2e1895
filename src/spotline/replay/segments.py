"""Verify a log incarnation by incarnation, and name what nobody can recompute."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from spotline.adapters.eventlog.manifest import Environment
from spotline.adapters.eventlog.reader import EventLogReader
from spotline.adapters.eventlog.segments import recorded_end, segment_folder, segments_of
from spotline.application.incarnations import FIRST
from spotline.contracts.build import event_of
from spotline.contracts.envelope import StoredEntry
from spotline.contracts.errors import ContractError
from spotline.contracts.subjects import filter_of
from spotline.domain.events.agreement import IncarnationBegun
from spotline.replay.divergence import VerifyReport
from spotline.replay.handlers import handlers_of, statistics_of
from spotline.replay.verify import verify


@dataclass(frozen=True, slots=True, kw_only=True)
class LostRange:
    """Entries of an incarnation that are recorded nowhere; both 0 where nobody knows how many.

    `detail` is what was said when the next incarnation began, with the entry `begun_seq`.
    """

    incarnation: int
    begun_seq: int
    first_seq: int
    last_seq: int
    detail: str

    def describe(self) -> str:
        """One line for people."""
        head = f"incarnation {self.incarnation + 1} begins with entry {self.begun_seq}"
        if not self.last_seq:
            what = f"how much of incarnation {self.incarnation} is lost is not known"
        elif self.first_seq > self.last_seq:
            what = f"all of incarnation {self.incarnation} is recorded"
        else:
            what = (
                f"entries {self.first_seq:,} to {self.last_seq:,} of incarnation "
                f"{self.incarnation} are lost and cannot be recomputed"
            )
        return f"{head}: {what} ({self.detail})"


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentReport:
    """What the verification of one incarnation found, in which folder."""

    folder: Path
    incarnation: int
    report: VerifyReport
    lost: tuple[LostRange, ...] = ()

    def as_json(self) -> dict[str, object]:
        """The report for `spotline replay verify --json`."""
        return {
            "folder": str(self.folder),
            "incarnation": self.incarnation,
            **self.report.as_json(),
            "lost": [
                {
                    "incarnation": lost.incarnation,
                    "begun_seq": lost.begun_seq,
                    "first_seq": lost.first_seq,
                    "last_seq": lost.last_seq,
                    "detail": lost.detail,
                }
                for lost in self.lost
            ],
        }


def verify_segments(directory: Path, *, here: Environment, most: int) -> Sequence[SegmentReport]:
    """Verify every incarnation of a log, each from its own first entry; the log's own comes last.

    Statistics of a log that lost entries are not recomputed: they are of all that there was.

    Raises
    ------
    UnreadableLog
        There is no log, or one whose manifest cannot be read.
    """
    return [_verified(directory, folder, here=here, most=most) for folder in segments_of(directory)]


def _verified(directory: Path, folder: Path, *, here: Environment, most: int) -> SegmentReport:
    reader = EventLogReader(folder)
    settings, incarnation = reader.manifest.settings, reader.manifest.incarnation
    begun: dict[int, tuple[int, IncarnationBegun]] = {}
    statistics = statistics_of(settings) if incarnation == FIRST else None
    report = verify(
        _noting(reader, begun),
        handlers_of(settings),
        reader.manifest,
        here=here,
        most=most,
        statistics=statistics,
        issued=reader.statistics(),
    )
    lost = tuple(_lost(directory, seq, event) for _, (seq, event) in sorted(begun.items()))
    return SegmentReport(folder=folder, incarnation=incarnation, report=report, lost=lost)


def _noting(
    entries: EventLogReader, begun: dict[int, tuple[int, IncarnationBegun]]
) -> Iterator[StoredEntry]:
    """Pass entries on, and keep which of them begins which incarnation."""
    subject = filter_of(IncarnationBegun)
    for entry in entries:
        if entry.subject == subject:
            try:
                event = event_of(entry)
            except ContractError:
                event = None
            if isinstance(event, IncarnationBegun):
                begun.setdefault(event.incarnation, (entry.seq, event))
        yield entry


def _lost(directory: Path, seq: int, event: IncarnationBegun) -> LostRange:
    before = event.incarnation - 1
    _, recorded_seq = recorded_end(segment_folder(directory, before))
    known = event.last_seq_before
    return LostRange(
        incarnation=before,
        begun_seq=seq,
        first_seq=max(seq, recorded_seq + 1) if known else 0,
        last_seq=known,
        detail=event.detail,
    )
