"""A job whose instances end again and again right after their start: a pause that doubles.

An agent or a program that dies of a bug ends its instance, and another one is launched for it, at
once and for ever. After a few such ends in a row nothing is launched for the job for a while. What
the cloud takes back after a notice is no such end. All times are ns of market time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from spotline.domain.events.capacity import RefusalClass
from spotline.domain.ledger.cooldowns import Cooldown, CoolingScope
from spotline.domain.limits.freezes import Freeze, FreezeReason, FreezeScope
from spotline.domain.units import NS_PER_S

PREFIX = "crash-loop"


@dataclass(frozen=True, slots=True, kw_only=True)
class CrashRules:
    """What counts as a loop, and how long it is paused, seconds of market time.

    Parameters
    ----------
    early_s
        An instance that ends within this after its launch died of its start.
    ends
        So many in a row begin a pause. Those of one moment, such as of a gang, are one.
    within_s
        Ends further apart are not in a row.
    first_s, longest_s
        The first pause, which doubles with every end that follows, and its bound.
    """

    early_s: int = 300
    ends: int = 3
    within_s: int = 7200
    first_s: int = 300
    longest_s: int = 3600

    def __post_init__(self) -> None:
        for name in self.__slots__:
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be > 0, was {getattr(self, name)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlyEnd:
    """An instance of a job that ended without a notice; both moments are market time."""

    job_id: str
    launched_ns: int
    ended_ns: int


def crashed(
    ends: Iterable[EarlyEnd], earlier: Sequence[Cooldown], rules: CrashRules
) -> tuple[Cooldown, ...]:
    """The jobs' cool-downs after these ends, which happened at one moment; by job id.

    One of fewer ends than `rules.ends` only counts: it is over when it begins.
    """
    known = {one.key: one for one in earlier if one.scope is CoolingScope.JOB}
    latest: dict[str, int] = {}
    for end in ends:
        if end.ended_ns - end.launched_ns < rules.early_s * NS_PER_S:
            latest[end.job_id] = max(end.ended_ns, latest.get(end.job_id, 0))
    return tuple(
        _after(job_id, ended_ns, known.get(job_id), rules)
        for job_id, ended_ns in sorted(latest.items())
    )


def is_loop(cooldown: Cooldown, rules: CrashRules) -> bool:
    """Whether a cool-down is a job's whose instances ended too often."""
    return cooldown.scope is CoolingScope.JOB and cooldown.refusals >= rules.ends


def loop_freeze(cooldown: Cooldown, *, slot: int) -> Freeze:
    """The stop of buying that a loop begins."""
    return Freeze(
        freeze_id=freeze_id_of(cooldown.key),
        scope=FreezeScope.JOB,
        key=cooldown.key,
        reason=FreezeReason.CRASH_LOOP,
        detail=cooldown.detail,
        continue_with=f"spotline resume --freeze {freeze_id_of(cooldown.key)}",
        slot=slot,
        ts_event_ns=cooldown.refused_ns,
    )


def freeze_id_of(job_id: str) -> str:
    """The id of the stop that a job's loop begins."""
    return f"{PREFIX}/{job_id}"


def _after(job_id: str, ended_ns: int, before: Cooldown | None, rules: CrashRules) -> Cooldown:
    count = 1
    if before is not None:
        since_ns = max(before.refused_ns, before.until_ns or 0)
        if before.refused_ns < ended_ns < since_ns + rules.within_s * NS_PER_S:
            count = before.refusals + 1
        elif ended_ns <= before.refused_ns:
            count = before.refusals
    rest_s = 0
    if count >= rules.ends:
        rest_s = min(rules.first_s << min(count - rules.ends, 30), rules.longest_s)
    return Cooldown(
        scope=CoolingScope.JOB,
        key=job_id,
        refusal_class=RefusalClass.LIMIT,
        refusals=count,
        refused_ns=ended_ns,
        until_ns=ended_ns + rest_s * NS_PER_S,
        epoch=0,
        detail=f"instances ended {count} times within {rules.early_s} s of their start; nothing is "
        f"launched for {rest_s} s",
    )
