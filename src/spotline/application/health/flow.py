"""Whether events flow: the log followed, the broker answering, what is decided stored, room left."""

from __future__ import annotations

from dataclasses import dataclass, field

from spotline.application.health.conditions import (
    ConditionKind,
    HealthLimits,
    Judged,
    lasting,
    size,
)
from spotline.application.incarnations import FIRST


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceFacts:
    """How far a durable place in the log has come, as the broker has it.

    `floor_seq` is the last acknowledged entry, `waiting` how many behind it are not acknowledged,
    `incarnation` that of the log when the place was opened last.
    """

    floor_seq: int
    waiting: int
    incarnation: int = FIRST


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFacts:
    """The log and its room, as the broker has them.

    `places` are those of services, by name, read before `last_seq`. Bytes are of the account that
    the log is in; a limit of 0 is none.
    """

    first_seq: int
    last_seq: int
    storage_bytes: int = 0
    storage_limit_bytes: int = 0
    places: dict[str, PlaceFacts] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Failing:
    """That something fails: since when, when it was tried last, how often, and what was said."""

    since_s: float
    last_s: float
    times: int
    problem: str


@dataclass(slots=True, kw_only=True)
class FollowJudge:
    """Judges whether one service follows the log; it remembers when that moved last."""

    limits: HealthLimits
    _reached: int = 0
    _moved_s: float | None = None
    _before: int = 0
    _grows_s: float | None = None
    # How far the service had come when the log was found to end before that, 0 for never.
    _lost_from: int = 0

    def judge(
        self, *, applied_seq: int, place: PlaceFacts | None, last_seq: int, now_s: float
    ) -> Judged:
        """Judge by what was applied, the service's place, and the log's last entry.

        `applied_seq` and `place` must have been read before `last_seq`: what is applied was stored.
        """
        reached = max(applied_seq, 0 if place is None else place.floor_seq)
        waiting = 0 if place is None else place.waiting
        if reached != self._reached or not waiting or self._moved_s is None:
            self._moved_s = now_s
        self._reached = reached
        if reached > last_seq:
            self._lost_from = reached
        elif reached != self._lost_from:
            # It follows again: behind what was lost, or from where another log begins.
            self._lost_from = 0
        grown_s = self._grown_s(waiting, now_s)
        if self._lost_from:
            return self._lost(last_seq)
        stood_s = now_s - self._moved_s
        if stood_s >= self.limits.stall_s:
            detail = f"{waiting} entries wait, and none was taken for {lasting(stood_s)}"
            return self._judged(detail, healthy=False)
        if grown_s >= self.limits.stall_s:
            detail = f"{waiting} entries wait, and for {lasting(grown_s)} they become no fewer"
            return self._judged(detail, healthy=False)
        return self._judged(f"at {reached} of {last_seq}, {waiting} wait", healthy=True)

    def _grown_s(self, waiting: int, now_s: float) -> float:
        """For how long too many have waited, and never fewer than before."""
        grows = waiting > self.limits.backlog and waiting >= self._before
        if not grows:
            self._grows_s = None
        elif self._grows_s is None:
            self._grows_s = now_s
        self._before = waiting
        return 0.0 if self._grows_s is None else now_s - self._grows_s

    def _lost(self, last_seq: int) -> Judged:
        took = f"this service has taken entries up to {self._lost_from}"
        detail = f"the log lost its end: it ends at {last_seq}, but {took}"
        if last_seq >= self._lost_from:
            detail = f"the log lost its end, and {took}: new ones below that were left out"
        return Judged(
            kind=ConditionKind.LOG,
            healthy=False,
            detail=detail,
            figure=max(0, self._lost_from - last_seq),
            continue_with="spotline store check",
        )

    @staticmethod
    def _judged(detail: str, *, healthy: bool) -> Judged:
        return Judged(
            kind=ConditionKind.LOG,
            healthy=healthy,
            detail=detail,
            figure=0,
            continue_with="the service's own log; its other conditions",
        )


@dataclass(slots=True, kw_only=True)
class BusJudge:
    """Judges whether the broker says how the log is; it remembers when it last did."""

    limits: HealthLimits
    _said_s: float | None = None

    def judge(self, *, problem: str, now_s: float, is_final: bool = False) -> Judged:
        """Judge an answer (`problem` empty) or its lack; `is_final`: the log is not there."""
        if not problem or self._said_s is None:
            self._said_s = now_s
        silent_s = now_s - self._said_s
        healthy = not problem or (not is_final and silent_s < self.limits.bus_silent_s)
        detail = "the broker answers"
        if problem:
            detail = f"the broker has not told of the log for {lasting(silent_s)}: {problem}"
        return Judged(
            kind=ConditionKind.BUS,
            healthy=healthy,
            detail=detail,
            figure=silent_s,
            continue_with="spotline store check" if is_final else "the log of nats-server",
        )


def publishing(failing: Failing | None, limits: HealthLimits, now_s: float) -> Judged:
    """Whether what is to be recorded can be.

    A failure that nobody tries again is told for `stall_s`: after that nothing is known, and a
    service that is not asked because it is not ready could never show that it works again.
    """
    if failing is None or now_s - failing.last_s >= limits.stall_s:
        return Judged(
            kind=ConditionKind.PUBLISHING, healthy=True, detail="events are stored", figure=0
        )
    since_s = max(0.0, now_s - failing.since_s)
    return Judged(
        kind=ConditionKind.PUBLISHING,
        healthy=False,
        detail=f"events could not be stored for {lasting(since_s)}, {failing.times} times: "
        f"{failing.problem}",
        figure=since_s,
        continue_with="the log of nats-server: room on its disk, and its limits",
    )


def storage(facts: LogFacts, limits: HealthLimits) -> Judged:
    """Whether JetStream has room for more."""
    used, limit = facts.storage_bytes, facts.storage_limit_bytes
    if not limit:
        return Judged(
            kind=ConditionKind.STORAGE, healthy=True, detail=f"{size(used)} stored, no limit"
        )
    free = limit - used
    return Judged(
        kind=ConditionKind.STORAGE,
        healthy=free * 1_000_000 >= limit * limits.storage_free_ppm,
        detail=f"JetStream holds {size(used)} of {size(limit)}, {size(free)} are free",
        figure=free,
        continue_with="raise JetStream's limit, or remove streams that are not Spotline's",
    )


def snapshot(failing: Failing | None, now_s: float) -> Judged:
    """Whether the state is saved, which spares a restart most of the log."""
    if failing is None:
        return Judged(
            kind=ConditionKind.SNAPSHOT, healthy=True, detail="nothing failed to be saved", figure=0
        )
    since_s = max(0.0, now_s - failing.since_s)
    return Judged(
        kind=ConditionKind.SNAPSHOT,
        healthy=False,
        detail=f"the state was not saved for {lasting(since_s)}, {failing.times} times, and a "
        f"restart will take longer: {failing.problem}",
        figure=since_s,
        continue_with="the log of nats-server: room on its disk, and its limits",
    )
