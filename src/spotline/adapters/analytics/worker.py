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
from urllib.parse import urlencode

import faust
import structlog
from faust.types import TP
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy
from nats.js.errors import APIError

from spotline.adapters.analytics.source import SourcedEntry, SourcedEvent, event_topic
from spotline.adapters.faust.hosting import AppCrashed, data_folder, running
from spotline.adapters.nats.connection import BrokerLink
from spotline.adapters.nats.identities import BusIdentity
from spotline.adapters.nats.passing import passing_consumer
from spotline.application.analytics.handler import SPEC, StatisticsFold
from spotline.application.analytics.messages import (
    KeysPage,
    KeysQuery,
    StatisticsPage,
    StatisticsQuery,
    answer,
    keys_of,
)
from spotline.application.analytics.options import StatisticsOptions
from spotline.application.analytics.store import (
    Issue,
    LateCounts,
    StatisticsStore,
    noted_watermark_s,
)
from spotline.application.market_view import ClockReading
from spotline.contracts.build import envelope_for
from spotline.contracts.errors import ProviderUnavailable, SpotlineError
from spotline.contracts.subjects import filter_of, stream_name, subjects_with
from spotline.domain.units import NS_PER_S
from spotline.runtime.health import Health
from spotline.runtime.metrics import OUTCOME, Readings
from spotline.runtime.stream import EventStream
from spotline.runtime.telemetry import telemetry_for
from spotline.runtime.watched import HostCounters

_log = structlog.get_logger(__name__)

SERVICE = SPEC.service
DEFAULT_LEASE_S = 10.0

_TABLES = ("observations", "issued", "counters")
_STATISTICS = [filter_of(event_type) for event_type in SPEC.produces]
# What an entry leads to is issued in one go; the fold forgets when nothing can ask for it any more.
_FORGET_EVERY = 256
_TURN_S = 0.002
# How old what is known of the log's end may be.
_LOOK_EVERY_S = 1.0
# So many that wait are a backlog, as a full batch is for the other services.
_BACKLOG = 256
# A consumer that was made only to be told what is behind it.
_LOOK_IDLE_S = 5.0
# How far the broker's clock may have been set back between an entry and what it led to.
_CLOCK_SLACK_NS = 300 * NS_PER_S


@dataclass(frozen=True, slots=True, kw_only=True)
class AnalyticsSettings:
    """Where the log is and who this worker is.

    `worker` names it among the workers of one partition: a restarted one takes its lease back at
    once. `lease_s` is how long a worker that was not heard of keeps it. `commit_every_s` is how
    often offset and changelogs are written.
    """

    nats_url: str = field(repr=False)  # it may hold a password
    identity: BusIdentity | None = None
    partition: int = 0
    worker: str = "0"
    lease_s: float = DEFAULT_LEASE_S
    commit_every_s: float = 1.0
    options: StatisticsOptions = field(default_factory=StatisticsOptions)


def _broker_of(settings: AnalyticsSettings) -> str:
    """What Faust is told of the broker; its transport goes by the scheme."""
    query = {"lease_s": f"{settings.lease_s:g}"}
    if settings.identity is not None:
        query |= {"seed": str(settings.identity.seed), "ca": str(settings.identity.ca)}
    separator = "&" if "?" in settings.nats_url else "?"
    server = settings.nats_url.replace("tls://", "nats://", 1)
    return f"{server}{separator}{urlencode(query)}"


class Analytics:
    """The running analytics of one partition; also what its health and metrics are read from.

    Parameters
    ----------
    settings
        Which log, and as whom.
    log
        That log: what was issued before statistics had a stream of their own is there.
    stream
        The stream to issue into.
    """

    def __init__(self, settings: AnalyticsSettings, log: EventStream, stream: EventStream) -> None:
        self._settings = settings
        self._log = log
        self._stream = stream
        self.counters = HostCounters()
        self.started_s = time.time()
        self._telemetry = telemetry_for(SERVICE, self)
        self._telemetry.may_record(SPEC.produces)
        self._telemetry.observe("spotline.statistics.late", self._late)
        # Loaded, and knows what was issued, since this worker holds the log; None before.
        self._fold: StatisticsFold | None = None
        self._tenure = 0
        # What was behind at the last look, and how many were taken by then.
        self._pending = 0
        self._pending_at = 0
        self._entries = 0
        self._stored_ids: frozenset[str] = frozenset()
        self._seq = 0
        self._event_s = 0.0
        self._failed = False
        self._app = faust.App(
            f"spotline-{SERVICE}-{settings.partition}",
            broker=_broker_of(settings),
            consumer_group_instance_id=f"{SERVICE}-{settings.worker}",
            topic_partitions=1,
            web_enabled=False,
            datadir=data_folder(f"{SERVICE}-{settings.partition}"),
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
                while True:
                    await self._look()
                    await asyncio.sleep(_LOOK_EVERY_S)
        except AppCrashed as crashed:
            if isinstance(crashed.__cause__, SpotlineError):
                raise crashed.__cause__ from crashed
            raise

    async def _look(self) -> None:
        """See how many entries are behind the last one taken, as long as the log is ours."""
        self.counters.dead_lettered = self._topic.counters.rejected
        app: Any = self._app
        if not app.started or self._tp not in app.consumer.assignment():
            self._pending = 0
            return
        taken = self._taken
        seq = max(self._seq, self._committed_seq())
        try:
            self._pending = await app.transport.session.ask_on(
                lambda link: _behind(link, stream_name(self._settings.partition), seq),
                patience_s=_LOOK_IDLE_S,
            )
            self._pending_at = taken
        except (ProviderUnavailable, APIError) as error:
            _log.warning("end_of_log_not_seen", service=SERVICE, reason=str(error))

    @property
    def _tp(self) -> TP:
        return TP(self._topic.get_topic_name(), 0)

    @property
    def _taken(self) -> int:
        return self._entries + self._topic.counters.unreadable

    # --- the agent ----------------------------------------------------------------------------

    async def _follow(self, stream: Any) -> None:
        # An entry is acknowledged when all it leads to is stored, and not if that fails.
        async for event in stream.noack().events():
            if self._failed:
                # Faust starts a failed agent again, behind the entry it failed on.
                await asyncio.get_running_loop().create_future()
            entry: SourcedEntry = event.value
            try:
                await self._handle(entry)
            except Exception as error:
                # A restart takes the entry again.
                self._failed = True
                app: Any = self._app
                await app.crash(error)
                raise
            # Where the log was lost, too: Faust waits for it, and it cannot be committed any more.
            event.ack()

    async def _handle(self, entry: SourcedEntry) -> None:
        """Fold an entry, and issue; nothing of it where the log was lost meanwhile."""
        fold = self._fold
        if fold is None or entry.seq <= self._seq:
            fold = await self._resume(entry.seq, entry.stored_ns)
            if fold is None:
                return
        for sourced in entry.events:
            with self._telemetry.handling(sourced.envelope(), sourced.headers, sourced.seq):
                await self._take(fold, sourced)
        self._seq = entry.seq
        self._event_s = entry.stored_ns / 1e9
        self._entries += 1
        if self._entries % _FORGET_EVERY == 0:
            fold.forget(self._committed_seq())

    async def _take(self, fold: StatisticsFold, sourced: SourcedEvent) -> None:
        envelope = sourced.envelope()
        issues = fold.take(
            sourced.event,
            event_id=envelope.event_id,
            seq=sourced.seq,
            stored_ns=sourced.stored_ns,
            causation_id=envelope.causation_id,
            place=sourced.place,
        )
        if issues:
            await self._issue(issues, envelope.correlation_id or envelope.event_id)
            fold.issued(issues)
        self.counters.handled += 1

    async def _resume(self, seq: int, stored_ns: int) -> StatisticsFold | None:
        """Load the fold as of the entry `seq`, and find what was issued from there on.

        That is not stored a second time. None where the log was lost meanwhile.
        """
        tenure = self._tenure
        self._fold = None
        fold = StatisticsFold.unloaded(self._settings.options, self._store)
        for _ in fold.load(before_seq=seq):
            # The lease is renewed on this loop, which takes many of its turns.
            await asyncio.sleep(_TURN_S)
            if tenure != self._tenure:
                return None
        first_seq = await self._stream.first_seq_since(stored_ns - _CLOCK_SLACK_NS)
        self._stored_ids = frozenset(
            [
                *await _ids_behind(self._log, seq),
                *await _ids_behind(self._stream, first_seq),
            ]
        )
        if tenure != self._tenure:
            return None
        _log.info("resumed", service=SERVICE, seq=seq, issued_behind=len(self._stored_ids))
        self._fold = fold
        return fold

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

    def _committed_seq(self) -> int:
        """The last entry that is not taken again, whatever happens."""
        consumer: Any = self._app.consumer
        next_seq = consumer.committed(self._tp)
        return int(next_seq) - 1 if next_seq is not None else 0

    async def _revoked(self, *_: object, **__: object) -> None:
        self._tenure += 1
        self._fold = None

    # --- what others ask ----------------------------------------------------------------------

    @property
    def applied_seq(self) -> int:
        """The last entry of the log that was taken, 0 before any."""
        return self._seq

    @property
    def ready(self) -> bool:
        """Whether this worker holds the log and its tables are recovered."""
        app: Any = self._app
        if not app.started or app.rebalancing or not app.tables.actives_ready:
            return False
        consumer = app.consumer
        return self._tp in consumer.assignment()

    def query(self, query: StatisticsQuery) -> StatisticsPage:
        """Answer from the tables.

        Raises
        ------
        ProviderUnavailable
            Another worker has them, or they are being recovered.
        """
        self._need_tables()
        fold = self._fold
        if fold is None:
            # Nothing came since the start; the fold is loaded for the entry it is to go on from.
            watermark_s, late = noted_watermark_s(self._store), LateCounts.of(self._store)
        else:
            watermark_s, late = fold.watermark_s, fold.late
        return answer(query, self._store.issued, watermark_s=watermark_s, late=late)

    def keys(self, query: KeysQuery) -> KeysPage:
        """Of whom there are statistics; `ProviderUnavailable` as in `query`."""
        self._need_tables()
        return keys_of(query, self._store.issued)

    def clock(self) -> ClockReading | None:
        """Market time as of the last entry known, None before one that says it."""
        return None if self._fold is None else self._fold.clock

    def _need_tables(self) -> None:
        if not self.ready:
            raise ProviderUnavailable(
                f"worker {self._settings.worker} does not hold the statistics: it recovers them, "
                "or another worker has them"
            )

    @property
    def backlog(self) -> int:
        """Entries behind the last one handled, as of a moment ago; none of another worker's log."""
        return max(0, self._pending - (self._taken - self._pending_at))

    @property
    def lag_s(self) -> float:
        """How long ago the last entry handled was stored, while there are more."""
        return max(0.0, time.time() - self._event_s) if self._event_s and self.backlog else 0.0

    @property
    def healthy(self) -> bool:
        """Well as the one who follows the log without a backlog, and as one who would take it over."""
        app: Any = self._app
        return bool(app.started and not app.crashed and self.backlog < _BACKLOG)

    def _late(self) -> Readings:
        fold = self._fold
        if fold is None:
            return []
        late = fold.late
        return [(late.merged, {OUTCOME: "merged"}), (late.dropped, {OUTCOME: "dropped"})]

    def health(self) -> Health:
        """What the health endpoint says."""
        fold = self._fold
        return Health(
            healthy=self.healthy,
            detail={
                "owner": self.ready,
                "backlog": self.backlog,
                "seq": self._seq,
                "handled": self.counters.handled,
                "published": self.counters.published,
                "late_merged": fold.late.merged if fold else 0,
                "late_dropped": fold.late.dropped if fold else 0,
                "rejected": self._topic.counters.rejected,
            },
        )


async def _ids_behind(stream: EventStream, seq: int) -> list[str]:
    """The ids of the statistics that a stream holds from an entry on."""
    last_seq = await stream.last_seq()
    return [
        entry.headers.get("ce-id", "")
        async for entry in stream.read(_STATISTICS, first_seq=seq, last_seq=last_seq)
    ]


async def _behind(link: BrokerLink, stream: str, seq: int) -> int:
    """How many entries that concern the analytics are stored behind `seq`."""
    config = ConsumerConfig(
        deliver_policy=DeliverPolicy.BY_START_SEQUENCE,
        opt_start_seq=seq + 1,
        ack_policy=AckPolicy.NONE,
        filter_subjects=sorted(subjects_with(SPEC.consumes)),
        inactive_threshold=_LOOK_IDLE_S,
        mem_storage=True,
    )
    async with passing_consumer(link, stream, config) as made:
        return made.num_pending or 0
