"""Statistics of the log as a Faust app: an agent on Spotline's own events, three tables.

The tables hold what `StatisticsFold` keeps. Their changelogs and the offset are not written at once,
so after a kill a table may be ahead of the offset; the fold lets go of what is beyond the entry it
goes on from. What is issued has an id that says which window and revision it is, and is stored
before the entry that led to it is acknowledged: killed in between, the very same is issued again,
and dropped, by the broker or because it is found in the log.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import faust
import structlog
from faust.types import TP

from spotline.adapters.faust.hosting import AppCrashed, running
from spotline.adapters.faust.source import SourcedEvent, event_topic
from spotline.application.statistics import (
    SPEC,
    Issue,
    LateCounts,
    StatisticsOptions,
    StatisticsStore,
)
from spotline.application.statistics_fold import StatisticsFold
from spotline.application.statistics_query import (
    KeysPage,
    KeysQuery,
    StatisticsPage,
    StatisticsQuery,
    answer,
    keys_of,
)
from spotline.contracts.build import envelope_for
from spotline.contracts.errors import ProviderUnavailable, SpotlineError
from spotline.contracts.subjects import filter_of
from spotline.runtime.health import Health
from spotline.runtime.metrics import OUTCOME, HostCounters, Readings
from spotline.runtime.stream import EventStream
from spotline.runtime.telemetry import telemetry_for

_log = structlog.get_logger(__name__)

SERVICE = SPEC.service
DEFAULT_LEASE_S = 10.0

_TABLES = ("observations", "issued", "counters")
_STATISTICS = [filter_of(event_type) for event_type in SPEC.produces]
# What an entry leads to is issued in one go; the fold forgets when nothing can ask for it any more.
_FORGET_EVERY = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class AnalyticsSettings:
    """Where the log is and who this worker is.

    `worker` names it among the workers of one partition: a restarted one takes its lease back at
    once. `lease_s` is how long a worker that was not heard of keeps it. `commit_every_s` is how
    often offset and changelogs are written.
    """

    nats_url: str
    partition: int = 0
    worker: str = "0"
    lease_s: float = DEFAULT_LEASE_S
    commit_every_s: float = 1.0
    options: StatisticsOptions = field(default_factory=StatisticsOptions)


class Analytics:
    """The running analytics of one partition; also what its health and metrics are read from.

    Parameters
    ----------
    settings
        Which log, and as whom.
    stream
        That log, to issue into.
    """

    def __init__(self, settings: AnalyticsSettings, stream: EventStream) -> None:
        self._settings = settings
        self._stream = stream
        self.counters = HostCounters()
        self.started_s = time.time()
        self._telemetry = telemetry_for(SERVICE, self)
        self._telemetry.may_record(SPEC.produces)
        self._telemetry.observe("spotline.statistics.late", self._late)
        self._fold: StatisticsFold | None = None
        self._stored_ids: frozenset[str] = frozenset()
        self._seq = 0
        self._event_s = 0.0
        self._failed = False
        separator = "&" if "?" in settings.nats_url else "?"
        self._app = faust.App(
            f"spotline-{SERVICE}-{settings.partition}",
            broker=f"{settings.nats_url}{separator}lease_s={settings.lease_s:g}",
            consumer_group_instance_id=f"{SERVICE}-{settings.worker}",
            topic_partitions=1,
            web_enabled=False,
            broker_commit_interval=settings.commit_every_s,
        )
        self._topic = event_topic(
            self._app,
            SPEC.consumes,
            name=f"{SERVICE}-events-{settings.partition}",
            # One worker follows one log; as a Faust partition it is always the first.
            first_partition=settings.partition,
        )
        tables = [self._table(name) for name in _TABLES]
        self._store = StatisticsStore(**dict(zip(_TABLES, tables, strict=True)))
        self._app.agent(self._topic, name=f"{SERVICE}-fold")(self._follow)
        self._app.on_partitions_revoked.connect(self._revoked)

    def _table(self, name: str) -> MutableMapping[str, bytes]:
        table = self._app.Table(
            f"{SERVICE}-{name}-{self._settings.partition}",
            partitions=1,
            key_type=str,
            value_type=bytes,
        )
        return cast("MutableMapping[str, bytes]", table)

    async def run(self) -> None:
        """Follow the log until cancelled.

        Raises
        ------
        ProviderUnavailable
            The log did not take what was to be issued. The entry is handled again after a restart,
            as after any other error.
        AppCrashed
            Faust failed.
        """
        try:
            async with running(self._app):
                await asyncio.get_running_loop().create_future()
        except AppCrashed as crashed:
            if isinstance(crashed.__cause__, SpotlineError):
                raise crashed.__cause__ from crashed
            raise

    # --- the agent ----------------------------------------------------------------------------

    async def _follow(self, stream: Any) -> None:
        # An entry is acknowledged when all it leads to is stored, and not if that fails.
        async for event in stream.noack().events():
            if self._failed:
                # Faust starts a failed agent again, behind the entry it failed on.
                await asyncio.get_running_loop().create_future()
            sourced: SourcedEvent = event.value
            try:
                with self._telemetry.handling(sourced.envelope(), sourced.headers, sourced.seq):
                    await self._handle(sourced)
            except Exception as error:
                # A restart takes the entry again.
                self._failed = True
                app: Any = self._app
                await app.crash(error)
                raise
            event.ack()

    async def _handle(self, sourced: SourcedEvent) -> None:
        if self._fold is None or sourced.seq <= self._seq:
            await self._resume(sourced.seq)
        fold = self._own_fold()
        envelope = sourced.envelope()
        issues = fold.take(
            sourced.event,
            event_id=envelope.event_id,
            seq=sourced.seq,
            stored_ns=sourced.stored_ns,
            causation_id=envelope.causation_id,
        )
        if issues:
            await self._issue(issues, envelope.correlation_id or envelope.event_id)
            fold.issued(issues)
        self._seq = sourced.seq
        self._event_s = sourced.stored_ns / 1e9
        self.counters.handled += 1
        if self.counters.handled % _FORGET_EVERY == 0:
            fold.forget(self._committed_seq())

    async def _resume(self, seq: int) -> None:
        """Find what was issued from the entry `seq` on: it is not stored a second time."""
        self._fold = None
        last_seq = await self._stream.last_seq()
        self._stored_ids = frozenset(
            [
                entry.headers.get("ce-id", "")
                async for entry in self._stream.read(_STATISTICS, first_seq=seq, last_seq=last_seq)
            ]
        )
        _log.info("resumed", service=SERVICE, seq=seq, issued_behind=len(self._stored_ids))

    async def _issue(self, issues: Sequence[Issue], correlation_id: str) -> None:
        fresh = [
            self._telemetry.traced(
                envelope_for(
                    issue.event,
                    event_id=issue.event_id,
                    source=SERVICE,
                    causation_id=issue.causation_id,
                    correlation_id=correlation_id,
                )
            )
            for issue in issues
            if issue.event_id not in self._stored_ids
        ]
        if fresh:
            await self._stream.publish(fresh)
            self.counters.published += len(fresh)

    def _own_fold(self) -> StatisticsFold:
        if self._fold is None:
            self._fold = StatisticsFold(self._settings.options, self._store)
        return self._fold

    def _committed_seq(self) -> int:
        """The last entry that is not taken again, whatever happens."""
        consumer: Any = self._app.consumer
        next_seq = consumer.committed(TP(self._topic.get_topic_name(), 0))
        return int(next_seq) - 1 if next_seq is not None else 0

    async def _revoked(self, *_: object, **__: object) -> None:
        self._fold = None

    # --- what others ask ----------------------------------------------------------------------

    @property
    def ready(self) -> bool:
        """Whether this worker holds the log and its tables are recovered."""
        app: Any = self._app
        if not app.started or app.rebalancing or not app.tables.actives_ready:
            return False
        consumer = app.consumer
        return TP(self._topic.get_topic_name(), 0) in consumer.assignment()

    def query(self, query: StatisticsQuery) -> StatisticsPage:
        """Answer from the tables.

        Raises
        ------
        ProviderUnavailable
            Another worker has them, or they are being recovered.
        """
        self._need_tables()
        fold = self._own_fold()
        return answer(query, self._store.issued, watermark_s=fold.watermark_s, late=fold.late)

    def keys(self, query: KeysQuery) -> KeysPage:
        """Of whom there are statistics; `ProviderUnavailable` as in `query`."""
        self._need_tables()
        return keys_of(query, self._store.issued)

    def _need_tables(self) -> None:
        if not self.ready:
            raise ProviderUnavailable(
                f"worker {self._settings.worker} does not hold the statistics: it recovers them, "
                "or another worker has them"
            )

    @property
    def backlog(self) -> int:
        """Entries known to be behind the last one handled."""
        if not self.ready:
            return 0
        consumer: Any = self._app.consumer
        next_seq: int = consumer.highwater(TP(self._topic.get_topic_name(), 0))
        return max(0, next_seq - 1 - self._seq)

    @property
    def lag_s(self) -> float:
        """How long ago the last entry handled was stored, while there are more."""
        return max(0.0, time.time() - self._event_s) if self._event_s and self.backlog else 0.0

    @property
    def healthy(self) -> bool:
        """Well as the owner of the log, and as the one who would take it over."""
        app: Any = self._app
        return bool(app.started and not app.crashed)

    def _late(self) -> Readings:
        late = LateCounts() if self._fold is None else self._fold.late
        return [(late.merged, {OUTCOME: "merged"}), (late.dropped, {OUTCOME: "dropped"})]

    def health(self) -> Health:
        """What the health endpoint says."""
        fold = self._fold
        return Health(
            healthy=self.healthy,
            detail={
                "owner": self.ready,
                "seq": self._seq,
                "handled": self.counters.handled,
                "published": self.counters.published,
                "late_merged": fold.late.merged if fold else 0,
                "late_dropped": fold.late.dropped if fold else 0,
                "rejected": self._topic.counters.rejected,
            },
        )
