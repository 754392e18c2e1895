"""What a running generation says: its events, its progress, its checkpoints, turned into news."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from spotline.adapters.grpc.agent.messages import CheckpointNews, News, RestartNews, WorkNews
from spotline.agent.notices import NoticesInForce
from spotline.agent.ports import AgentClock
from spotline.agent.progress import (
    LineTail,
    ProgressMeter,
    reader_of_field,
    reader_of_pattern,
)
from spotline.agent.run_events import (
    CheckpointSaid,
    EventSaid,
    ProgressSaid,
    ResumedSaid,
    read_event,
)
from spotline.agent.timing import MarketTime
from spotline.contracts.errors import ContractError
from spotline.domain.events.training import CheckpointFault, CheckpointKind
from spotline.domain.jobs.run import ProgressReading, ProgressSource

_log = structlog.get_logger()

# Found on resuming: it says nothing of a save of this generation.
_OLD_FAULTS = (CheckpointFault.INCOMPLETE, CheckpointFault.DAMAGED)


class CheckpointRecord:
    """The newest committed checkpoint that this instance knows of, over all generations."""

    def __init__(self) -> None:
        self._newest: tuple[int, int] = (0, -1)
        self.done: float | None = None

    def committed(self, generation: int, step: int, done: float) -> None:
        """Take in a checkpoint; the newest is by generation, then by step."""
        if (generation, step) > self._newest:
            self._newest = (generation, step)
            self.done = done

    def resumed(self, generation: int, done: float) -> None:
        """Take in what a generation started from: older than all that it commits."""
        self.committed(generation, -1, done)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerPorts:
    """What the listeners of all generations share."""

    clock: AgentClock
    market: MarketTime
    board: NoticesInForce
    post: Callable[[News], None]
    record: CheckpointRecord = field(default_factory=CheckpointRecord)


class Listener:
    """Reads what one generation says, and posts it as news.

    Parameters
    ----------
    reading
        Where the work done is read from.
    events, work_dir
        The file of the library's events; the folder that a file of progress is below.
    since_s
        When this instance first was told to run the generation, wall seconds.
    reports
        Whether this instance reports the work done: that of node rank 0 does.
    every_s
        Wall seconds between two reports of work, at least.
    """

    def __init__(
        self,
        *,
        generation: int,
        reading: ProgressReading,
        events: LineTail,
        work_dir: Path,
        since_s: float,
        reports: bool,
        every_s: float,
        ports: ListenerPorts,
    ) -> None:
        self._generation = generation
        self._events = events
        self._since_s = since_s
        self._reports = reports
        self._every_s = every_s
        self._ports = ports
        self._meter = ProgressMeter(ports.market.market_s_per_s)
        self._resumed: ResumedSaid | None = None
        self._unreadable: set[str] = set()
        self._told: tuple[float, int] | None = None
        self._told_at_s = -every_s
        self._reading = reading
        self._file = LineTail(work_dir / reading.path, from_end=True) if reading.path else None
        self._read: Callable[[str], float | None] = lambda _: None
        if reading.source is ProgressSource.OUTPUT:
            self._read = reader_of_pattern(reading.pattern)
        elif reading.source is ProgressSource.FILE:
            self._read = reader_of_field(reading.pattern)

    def disturb(self) -> None:
        """Note a notice or a stop: from now on work is disturbed, and its rate is not measured."""
        self._meter.disturb()

    def heed_line(self, line: str) -> None:
        """Look at a line of the program's output."""
        if self._reading.source is ProgressSource.OUTPUT:
            self._observe_read(line)

    def look(self, *, final: bool = False) -> None:
        """Read what is new, and report what is due; `final`: the program has ended."""
        for line in self._lines(self._events, final=final):
            try:
                event = read_event(line)
            except ContractError as error:
                _log.warning("event_unreadable", generation=self._generation, error=str(error))
                continue
            if event is not None and event.generation == self._generation:
                self._take(event)
        if self._file is not None:
            for line in self._lines(self._file, final=final):
                self._observe_read(line)
        self._report(final=final)

    def _lines(self, tail: LineTail, *, final: bool) -> list[str]:
        """What is new in a file; one that cannot be read says nothing, which is logged once."""
        try:
            return tail.read(final=final)
        except OSError as error:
            if str(error) not in self._unreadable:
                self._unreadable.add(str(error))
                _log.error("file_unreadable", generation=self._generation, error=str(error))
            return []

    def _observe_read(self, line: str) -> None:
        done = self._read(line)
        if done is not None:
            self._meter.observe(done, self._ports.clock.wall_s())

    def _take(self, event: EventSaid) -> None:
        match event:
            case ProgressSaid():
                if self._reading.source is ProgressSource.SDK:
                    self._meter.observe(event.done, event.at_s, step=event.step)
            case ResumedSaid():
                self._resumed = event
                if event.sha256:
                    self._ports.record.resumed(event.generation, event.done)
            case CheckpointSaid():
                self._take_checkpoint(event)

    def _take_checkpoint(self, event: CheckpointSaid) -> None:
        ports = self._ports
        if event.fault is None:
            ports.record.committed(event.generation, event.step, event.done)
            ports.board.saved(event.at_s)
        elif event.fault not in _OLD_FAULTS:
            ports.board.not_saved(event.at_s, event.fault)
        if event.kind is CheckpointKind.PREEMPTION:
            self._meter.disturb()
        ports.post(
            CheckpointNews(
                generation=event.generation,
                step=event.step,
                done=event.done,
                uri=event.uri,
                sha256="" if event.fault else event.sha256,
                size_bytes=event.size_bytes,
                kind=event.kind,
                save_s=ports.market.market_s(event.save_s),
                fault=event.fault,
                detail=event.detail,
            )
        )

    def _report(self, *, final: bool) -> None:
        done, step = self._meter.done, self._meter.step
        if not self._reports or done is None or self._told == (done, step):
            return
        now_s = self._ports.clock.elapsed_s()
        if not final and now_s - self._told_at_s < self._every_s:
            return
        restart = self._restart() if self._told is None else None
        self._told, self._told_at_s = (done, step), now_s
        self._ports.post(
            WorkNews(
                generation=self._generation,
                done=done,
                step=step,
                rate_per_hour=self._meter.rate_per_hour,
                checkpointed=self._ports.record.done,
                restart=restart,
            )
        )

    def _restart(self) -> RestartNews:
        first_s = self._meter.first_at_s or self._since_s
        market, resumed = self._ports.market, self._resumed
        return RestartNews(
            restart_s=market.market_s(first_s - self._since_s),
            load_s=market.market_s(resumed.load_s) if resumed else 0,
            resumed_done=resumed.done if resumed else 0.0,
            resumed_sha256=resumed.sha256 if resumed else "",
        )
