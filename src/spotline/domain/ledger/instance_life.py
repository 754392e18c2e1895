"""What became of an instance, as far as its cloud has shown it: a total state machine.

A cloud is eventually consistent: what a listing does not show may be there, what it shows may be
gone. So a fresh grant is pending and not lost while no listing shows it; an instance that was shown
is lost when two listings some time apart lack it; an end is seen and never inferred from "not
found". A launch whose outcome nobody knows is looked up by its token and tag until its grace is
over. In every state but the last something happens by itself when time passes. All times are ns of
market time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import Enum

from spotline.domain.market.offering import CapacityType
from spotline.domain.units import NS_PER_S


class LifeState(Enum):
    """Where an instance, or a launch whose instances are not known yet, stands.

    `REQUESTED` was or is about to be sent; `PENDING` was granted and never shown; `VISIBLE` is
    shown and does not run yet; `NOTICED` will be, or is being, taken back; `STOPPING` was asked by us
    to end, or is to be, and is not seen to have; `UNKNOWN` may or may not be there. `ENDED` is over, and of a launch: its outcome
    is known, or it was given up.
    """

    REQUESTED = "requested"
    PENDING = "pending"
    VISIBLE = "visible"
    RUNNING = "running"
    NOTICED = "noticed"
    STOPPING = "stopping"
    ENDED = "ended"
    UNKNOWN = "unknown"


class LifeInput(Enum):
    """What is learnt of an instance or a launch.

    `SEEN_*` are what a listing or an event shows, `MISSING` is a listing without it. `FOUND` and
    `NOT_FOUND` answer a look-up by token and tag; the latter proves nothing. `WITHDRAWN` takes
    `NOTICED` back.
    """

    GRANTED = "granted"
    REFUSED = "refused"
    OUTCOME_UNKNOWN = "outcome_unknown"
    FOUND = "found"
    NOT_FOUND = "not_found"
    SEEN_PENDING = "seen_pending"
    SEEN_RUNNING = "seen_running"
    SEEN_STOPPING = "seen_stopping"
    SEEN_ENDED = "seen_ended"
    MISSING = "missing"
    NOTICED = "noticed"
    WITHDRAWN = "withdrawn"
    STOP_ASKED = "stop_asked"
    TIME_PASSED = "time_passed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Graces:
    """How long each state may last, seconds of market time.

    Parameters
    ----------
    requested_s
        From a request to the suspicion that its answer is lost.
    pending_s
        From a grant to running: the provisioning time-out of cluster-autoscaler
        (`max-node-provision-time`) and the registration time-out of Karpenter, both 15 minutes.
    apart_s
        At least this long apart are two listings that prove an absence, and two that prove an
        orphan: Karpenter's collector leaves alone what is younger than 30 s.
    noticed_s
        A notice that is not followed by the end within this lapses.
    stop_again_s
        An end that is not seen is asked for again.
    stopping_s
        What was asked to end and was never shown at all is given up.
    unseen_s
        After one absence, without another look, nobody knows.
    unknown_s
        A launch of unknown outcome is looked up: AWS asks to expect up to 5 minutes until a
        description shows what a request did.
    """

    requested_s: int = 60
    pending_s: int = 900
    apart_s: int = 30
    noticed_s: int = 900
    stop_again_s: int = 30
    stopping_s: int = 3600
    unseen_s: int = 900
    unknown_s: int = 300

    def __post_init__(self) -> None:
        for name in self.__slots__:
            if getattr(self, name) <= 0:
                raise ValueError(f"grace {name} must be > 0, was {getattr(self, name)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceLife:
    """An instance, or a launch (`instance_id` empty) whose instances are not all known.

    Parameters
    ----------
    instances
        Of a launch: how many were asked for.
    since_ns
        When it came into its state.
    shown
        Whether the cloud ever showed it.
    absent_ns
        The first look that lacked it since it was last shown, or since what is fresh must show;
        None if none did.
    asked_ns
        When its end was last asked for; None if it never was.
    ours
        Whether the ledger ordered it; otherwise it carries our tag and nobody knows why.
    """

    instance_id: str
    token: str
    command_id: str
    attempt: int
    job_id: str
    tenant: str
    quota_pool: str
    offering_id: str
    capacity_type: CapacityType
    state: LifeState
    since_ns: int
    instances: int = 1
    shown: bool = False
    absent_ns: int | None = None
    asked_ns: int | None = None
    ours: bool = True

    @property
    def subject(self) -> str:
        """What it is filed under: the instance's id, else the launch's token."""
        return self.instance_id or self.token

    @property
    def is_launch(self) -> bool:
        """Whether only the token is known."""
        return not self.instance_id


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition:
    """A life after something was learnt of it, and the state that it was in before."""

    life: InstanceLife
    before: LifeState
    what: LifeInput
    at_ns: int


def advance_life(
    life: InstanceLife, what: LifeInput, now_ns: int, graces: Graces
) -> tuple[InstanceLife, Transition | None]:
    """Apply `what`, learnt at `now_ns`; None where that changes nothing.

    Total: every input is defined in every state. A time before the life's last change counts as
    that.
    """
    now_ns = max(now_ns, life.since_ns)
    noted = _noted(life, what, now_ns, graces)
    state = _NEXT[life.state, what](noted, now_ns, graces)
    after = noted if state is life.state else replace(noted, state=state, since_ns=now_ns)
    if after == life:
        return life, None
    return after, Transition(life=after, before=life.state, what=what, at_ns=now_ns)


def needs_stop(life: InstanceLife, now_ns: int, graces: Graces) -> bool:
    """Whether its end must be asked for now, for the first time or again."""
    if life.state is not LifeState.STOPPING or life.is_launch:
        return False
    return life.asked_ns is None or _is_over(life.asked_ns, graces.stop_again_s, now_ns)


def next_look_ns(life: InstanceLife, graces: Graces) -> int | None:
    """When something is to be looked at or done even if nothing happens; None for never."""
    match life.state:
        case LifeState.ENDED:
            return None
        case LifeState.REQUESTED:
            return life.since_ns + graces.requested_s * NS_PER_S
        case LifeState.STOPPING:
            asked_ns = life.since_ns if life.asked_ns is None else life.asked_ns
            return asked_ns + graces.stop_again_s * NS_PER_S
        case LifeState.UNKNOWN if not life.ours:
            return life.since_ns + graces.apart_s * NS_PER_S
        case LifeState.UNKNOWN:
            return life.since_ns + graces.unknown_s * NS_PER_S
        case LifeState.PENDING | LifeState.VISIBLE:
            return life.since_ns + graces.pending_s * NS_PER_S
        case _ if life.absent_ns is not None:
            return life.absent_ns + graces.apart_s * NS_PER_S
        case LifeState.NOTICED:
            return life.since_ns + graces.noticed_s * NS_PER_S
        case _:
            return None


_Rule = Callable[[InstanceLife, int, Graces], LifeState]


def _is_over(since_ns: int, grace_s: int, now_ns: int) -> bool:
    return now_ns - since_ns >= grace_s * NS_PER_S


def _noted(life: InstanceLife, what: LifeInput, now_ns: int, graces: Graces) -> InstanceLife:
    """Take down what is remembered beside the state."""
    if what in _AS_SEEN:
        return replace(life, shown=True, absent_ns=None)
    if what is LifeInput.STOP_ASKED:
        return replace(life, asked_ns=now_ns)
    lacking = what is LifeInput.NOT_FOUND if life.is_launch else what is LifeInput.MISSING
    if lacking and life.absent_ns is None and _counts(life, now_ns, graces):
        return replace(life, absent_ns=now_ns)
    return life


def _counts(life: InstanceLife, now_ns: int, graces: Graces) -> bool:
    """Whether an absence means anything yet: what is fresh need not show."""
    match life.state:
        case LifeState.REQUESTED | LifeState.ENDED:
            return False
        case LifeState.PENDING:
            return _is_over(life.since_ns, graces.pending_s, now_ns)
        case LifeState.UNKNOWN if life.is_launch:
            return _is_over(life.since_ns, graces.unknown_s, now_ns)
        case _:
            return True


def _to(state: LifeState) -> _Rule:
    return lambda _life, _now_ns, _graces: state


def _stay(life: InstanceLife, _now_ns: int, _graces: Graces) -> LifeState:
    return life.state


def _granted(life: InstanceLife, _now_ns: int, _graces: Graces) -> LifeState:
    """A launch is answered; its instances live on by themselves."""
    return LifeState.ENDED if life.is_launch else LifeState.PENDING


def _unknown_refused(life: InstanceLife, _now_ns: int, _graces: Graces) -> LifeState:
    """The cloud's word on a launch says nothing of an instance."""
    return LifeState.ENDED if life.is_launch else LifeState.UNKNOWN


def _is_absent(life: InstanceLife, now_ns: int, graces: Graces) -> bool:
    """Whether two looks without it are far enough apart; the second may be about to come."""
    return life.absent_ns is not None and _is_over(life.absent_ns, graces.apart_s, now_ns)


def _absent(life: InstanceLife, now_ns: int, graces: Graces) -> LifeState:
    """Over after two listings without it, apart; only if it was shown before."""
    gone = life.shown and not life.is_launch and _is_absent(life, now_ns, graces)
    return LifeState.ENDED if gone else life.state


def _unknown_absent(life: InstanceLife, now_ns: int, graces: Graces) -> LifeState:
    """A stranger that is not shown any more is forgotten."""
    return _absent(life, now_ns, graces) if life.ours else LifeState.ENDED


def _seen_stopping(life: InstanceLife, _now_ns: int, _graces: Graces) -> LifeState:
    """It is the cloud that ends what we did not; asking too might cost what the cloud would not."""
    return LifeState.NOTICED if life.asked_ns is None else LifeState.STOPPING


def _unknown_seen(found: _Rule) -> _Rule:
    """What the ledger ordered is found; a stranger stays one until it ends or is asked to."""

    def rule(life: InstanceLife, now_ns: int, graces: Graces) -> LifeState:
        if life.ours or found(life, now_ns, graces) is LifeState.ENDED:
            return found(life, now_ns, graces)
        return LifeState.UNKNOWN

    return rule


def _unknown_noticed(life: InstanceLife, _now_ns: int, _graces: Graces) -> LifeState:
    return LifeState.NOTICED if life.ours and not life.is_launch else LifeState.UNKNOWN


def _unknown_stop(life: InstanceLife, _now_ns: int, _graces: Graces) -> LifeState:
    return LifeState.UNKNOWN if life.is_launch else LifeState.STOPPING


def _unknown_time(life: InstanceLife, now_ns: int, graces: Graces) -> LifeState:
    """A launch is given up; an instance is asked to end, whether it is there or not."""
    if not life.ours or not _is_over(life.since_ns, graces.unknown_s, now_ns):
        return LifeState.UNKNOWN
    if not life.is_launch:
        return LifeState.STOPPING
    return LifeState.ENDED if _is_absent(life, now_ns, graces) else LifeState.UNKNOWN


def _requested_time(life: InstanceLife, now_ns: int, graces: Graces) -> LifeState:
    over = _is_over(life.since_ns, graces.requested_s, now_ns)
    return LifeState.UNKNOWN if over else LifeState.REQUESTED


def _starting_time(life: InstanceLife, now_ns: int, graces: Graces) -> LifeState:
    """Too slow to start: shown as it is not running, or lacking in two looks."""
    looked = _is_absent(life, now_ns, graces) or (life.shown and life.absent_ns is None)
    over = looked and _is_over(life.since_ns, graces.pending_s, now_ns)
    return LifeState.STOPPING if over else _unseen_time(life, now_ns, graces)


def _unseen_time(life: InstanceLife, now_ns: int, graces: Graces) -> LifeState:
    """Nobody has looked again after an absence."""
    unseen = life.shown and life.absent_ns is not None
    if unseen and _is_over(life.absent_ns or 0, graces.unseen_s, now_ns):
        return LifeState.UNKNOWN
    return life.state


def _as_before(life: InstanceLife, _now_ns: int, _graces: Graces) -> LifeState:
    """It is as it was before the notice, which for what was never shown is pending."""
    return LifeState.RUNNING if life.shown else LifeState.PENDING


def _noticed_time(life: InstanceLife, now_ns: int, graces: Graces) -> LifeState:
    """The notice lapses."""
    if not _is_over(life.since_ns, graces.noticed_s, now_ns):
        return _unseen_time(life, now_ns, graces)
    return _as_before(life, now_ns, graces)


def _stopping_time(life: InstanceLife, now_ns: int, graces: Graces) -> LifeState:
    """What was never shown is given up; if it shows later, it is an orphan."""
    over = not life.shown and _is_over(life.since_ns, graces.stopping_s, now_ns)
    return LifeState.ENDED if over else LifeState.STOPPING


def _row(
    *,
    granted: _Rule = _stay,
    refused: _Rule = _stay,
    unknown: _Rule = _stay,
    seen: Mapping[LifeInput, _Rule],
    missing: _Rule,
    noticed: _Rule,
    stop: _Rule,
    time: _Rule,
) -> dict[LifeInput, _Rule]:
    """One state's answers; a look-up that finds is a grant, one that does not proves nothing."""
    return {
        LifeInput.GRANTED: granted,
        LifeInput.REFUSED: refused,
        LifeInput.OUTCOME_UNKNOWN: unknown,
        LifeInput.FOUND: granted,
        LifeInput.NOT_FOUND: _stay,
        **seen,
        LifeInput.MISSING: missing,
        LifeInput.NOTICED: noticed,
        LifeInput.WITHDRAWN: _stay,
        LifeInput.STOP_ASKED: stop,
        LifeInput.TIME_PASSED: time,
    }


_NOTICED, _STOPPING = _to(LifeState.NOTICED), _to(LifeState.STOPPING)
_AS_SEEN: Mapping[LifeInput, _Rule] = {
    LifeInput.SEEN_PENDING: _to(LifeState.VISIBLE),
    LifeInput.SEEN_RUNNING: _to(LifeState.RUNNING),
    LifeInput.SEEN_STOPPING: _seen_stopping,
    LifeInput.SEEN_ENDED: _to(LifeState.ENDED),
}
# Events come in no order: one that says "pending" takes nothing back.
_NOT_BACK: Mapping[LifeInput, _Rule] = {**_AS_SEEN, LifeInput.SEEN_PENDING: _stay}
_ONWARD: Mapping[LifeInput, _Rule] = {**_NOT_BACK, LifeInput.SEEN_RUNNING: _stay}

_TABLE: Mapping[LifeState, Mapping[LifeInput, _Rule]] = {
    LifeState.REQUESTED: _row(
        granted=_granted,
        refused=_to(LifeState.ENDED),
        unknown=_to(LifeState.UNKNOWN),
        seen=_AS_SEEN,
        missing=_stay,
        noticed=_NOTICED,
        stop=_STOPPING,
        time=_requested_time,
    ),
    LifeState.PENDING: _row(
        seen=_AS_SEEN, missing=_stay, noticed=_NOTICED, stop=_STOPPING, time=_starting_time
    ),
    LifeState.VISIBLE: _row(
        seen=_AS_SEEN, missing=_absent, noticed=_NOTICED, stop=_STOPPING, time=_starting_time
    ),
    LifeState.RUNNING: _row(
        seen=_NOT_BACK, missing=_absent, noticed=_NOTICED, stop=_STOPPING, time=_unseen_time
    ),
    LifeState.NOTICED: {
        **_row(seen=_ONWARD, missing=_absent, noticed=_stay, stop=_STOPPING, time=_noticed_time),
        LifeInput.WITHDRAWN: _as_before,
    },
    LifeState.STOPPING: _row(
        seen={**_ONWARD, LifeInput.SEEN_STOPPING: _stay},
        missing=_absent,
        noticed=_stay,
        stop=_stay,
        time=_stopping_time,
    ),
    LifeState.ENDED: _row(
        # It was not: a listing lacked it twice, or it was given up. It is asked to end.
        seen={
            LifeInput.SEEN_PENDING: _STOPPING,
            LifeInput.SEEN_RUNNING: _STOPPING,
            LifeInput.SEEN_STOPPING: _stay,
            LifeInput.SEEN_ENDED: _stay,
        },
        missing=_stay,
        noticed=_stay,
        stop=_stay,
        time=_stay,
    ),
    LifeState.UNKNOWN: _row(
        granted=_granted,
        refused=_unknown_refused,
        seen={what: _unknown_seen(rule) for what, rule in _AS_SEEN.items()},
        missing=_unknown_absent,
        noticed=_unknown_noticed,
        stop=_unknown_stop,
        time=_unknown_time,
    ),
}
_NEXT: Mapping[tuple[LifeState, LifeInput], _Rule] = {
    (state, what): rule for state, row in _TABLE.items() for what, rule in row.items()
}
