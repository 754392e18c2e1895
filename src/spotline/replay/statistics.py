"""Recorded statistics against those recomputed from the log they were recorded in."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from spotline.application.analytics.handler import SPEC, StatisticsFold
from spotline.application.analytics.store import Issue
from spotline.contracts.codec import encode
from spotline.contracts.envelope import OPERATOR, Envelope, StoredEntry
from spotline.contracts.publishers import why_forged
from spotline.contracts.subjects import KINDS
from spotline.domain.events.event import Event
from spotline.domain.events.statistics import MarketStatisticsIssued, PlatformStatisticsIssued

Statistics = MarketStatisticsIssued | PlatformStatisticsIssued


def is_statistics(event: Event, envelope: Envelope) -> bool:
    """Whether the analytics issued this."""
    return envelope.source == SPEC.service and isinstance(event, Statistics)


@dataclass(frozen=True, slots=True, kw_only=True)
class StatisticsDifference:
    """A recorded result and the recomputed one; None where there is no such thing."""

    seq: int
    kind: str
    cause_seq: int
    recorded: Event | None
    recomputed: Event | None


class StatisticsReplay:
    """Folds a log as the analytics did, and compares what they issued.

    They issue when they get there, not right behind the entry that led to it; what the log does not
    hold yet at its end is open, unless something that was issued later is there.
    """

    def __init__(self, fold: StatisticsFold) -> None:
        self._fold = fold
        self._expected: dict[str, Issue] = {}
        self._digest: Any = hashlib.sha256()
        self._last_met_seq = 0
        self.recomputed = 0

    def take(self, entry: StoredEntry, envelope: Envelope, event: Event) -> None:
        """Fold an entry that is no statistics, nor forged, nor published again for another."""
        if envelope.source == OPERATOR or why_forged(event, envelope) is not None:
            return
        issues = self._fold.take(
            event,
            event_id=envelope.event_id,
            seq=entry.seq,
            stored_ns=entry.stored_ns,
            causation_id=envelope.causation_id,
            place=entry.place,
        )
        if not issues:
            return
        self._fold.issued(issues)
        self._fold.forget(entry.seq)
        self.recomputed += len(issues)
        for issue in issues:
            self._expected[issue.event_id] = issue
            self._digest.update(encode(issue.event))

    def meet(
        self, entry: StoredEntry, envelope: Envelope, event: Event
    ) -> StatisticsDifference | None:
        """Compare recorded statistics; None where they are what is recomputed."""
        issue = self._expected.pop(envelope.event_id, None)
        if issue is not None:
            self._last_met_seq = max(self._last_met_seq, issue.seq)
            if issue.event == event and issue.causation_id == envelope.causation_id:
                return None
        return StatisticsDifference(
            seq=entry.seq,
            kind=envelope.kind,
            cause_seq=issue.seq if issue else 0,
            recorded=event,
            recomputed=issue.event if issue else None,
        )

    def missing(self) -> Iterator[StatisticsDifference]:
        """What should have been issued before something that is there."""
        for event_id, issue in list(self._expected.items()):
            if issue.seq < self._last_met_seq:
                del self._expected[event_id]
                yield StatisticsDifference(
                    seq=issue.seq,
                    kind=KINDS[type(issue.event)],
                    cause_seq=issue.seq,
                    recorded=None,
                    recomputed=issue.event,
                )

    def open_seqs(self) -> set[int]:
        """The entries that led to what the log does not hold yet."""
        return {issue.seq for issue in self._expected.values()}

    def digest(self) -> bytes:
        """Over everything recomputed."""
        digest: bytes = self._digest.digest()
        return digest
