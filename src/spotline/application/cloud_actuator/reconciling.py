"""Looking at the cloud: what it shows against what the ledger knows, and what follows.

An absence is no loss, an unknown instance no orphan, and a request to end no end until it was seen
as often and as far apart as `Graces` says. Every step that looks records what it learnt.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from spotline.application.cloud_actuator.listings import silent_in
from spotline.application.cloud_actuator.lives import SEEN, LivesInHand, stranger_life
from spotline.application.cloud_actuator.messages import Moment
from spotline.application.cloud_actuator.ports import (
    BilledInstance,
    CloudEvent,
    CloudEventKind,
    CloudProvider,
    Instance,
    InstanceState,
    Ledger,
    LedgerEntry,
)
from spotline.domain.ledger.instance_life import InstanceLife, LifeInput, LifeState
from spotline.domain.units import NS_PER_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconciliation:
    """What a look at the cloud found.

    Parameters
    ----------
    reaped
        Instances that belonged to no job and were asked to end; a look alone asks that of none.
    missing
        Held instances that the cloud did not show.
    gone
        Held instances that are over.
    adopted
        Instances of launches whose outcome was unknown.
    given_up
        Tokens of launches that were looked up in vain until their grace was over.
    states
        How many instances and launches are in which state; none that have ended.
    ended
        Instances that the cloud shows as ended, or that have ended since it was last looked at.
    """

    reaped: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()
    adopted: tuple[Instance, ...] = ()
    given_up: tuple[str, ...] = ()
    states: Mapping[LifeState, int] = field(default_factory=dict)
    unknown_launches: int = 0
    ended: tuple[BilledInstance, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudNews:
    """What the cloud told of instances that are held.

    `notices` are those of held instances, `withdrawn` take back notices of them that were told
    before, `ends_s` is when held instances ended, seconds of the slot, `ended_ns` the moment of each,
    by id, and `event_ids` all that was told and is dealt with now.
    """

    notices: tuple[CloudEvent, ...] = ()
    withdrawn: tuple[CloudEvent, ...] = ()
    ends_s: tuple[int, ...] = ()
    ended_ns: Mapping[str, int] = field(default_factory=dict)
    event_ids: tuple[str, ...] = ()

    @property
    def noticed(self) -> tuple[str, ...]:
        """The ids of the instances of which it gives notice."""
        return tuple(event.instance.instance_id for event in self.notices)

    def noticed_among(self, instance_ids: Collection[str]) -> tuple[str, ...]:
        """Those of these instances of which it gives notice."""
        return tuple(noticed for noticed in self.noticed if noticed in instance_ids)


def offset_of(at_ns: int, at: Moment) -> int:
    """Seconds into the slot of `at`, not below 0: what happened before it is learnt in it."""
    return max(0, at.offset_s + (at_ns - at.ts_ns) // NS_PER_S)


def hear(
    told: Sequence[CloudEvent],
    known: Collection[str],
    lives: LivesInHand,
    held: Iterable[str],
    at: Moment,
) -> CloudNews:
    """Apply what the cloud told. `known` are events that were dealt with before: they came twice."""
    held = set(held)
    notices: dict[str, CloudEvent] = {}
    withdrawn: dict[str, CloudEvent] = {}
    ends_s: list[int] = []
    ended_ns: dict[str, int] = {}
    fresh = {event.event_id: event for event in told if event.event_id not in known}
    for event in sorted(fresh.values(), key=lambda event: (event.at_ns, event.event_id)):
        instance_id = event.instance.instance_id
        life = lives.get(instance_id)
        if life is None:
            continue  # what nobody ordered is the listing's business
        at_ns = max(lives.now_ns, event.at_ns)
        # Also where a look has seen its end already: what is held has not been reported.
        ours = instance_id in held
        if event.kind is CloudEventKind.NOTICE:
            lives.learn(instance_id, LifeInput.NOTICED, at_ns)
            if ours:
                notices.setdefault(instance_id, event)
        elif event.kind is CloudEventKind.WITHDRAWN:
            noticed = life.state is LifeState.NOTICED
            lives.learn(instance_id, LifeInput.WITHDRAWN, at_ns)
            # A notice and its end that come together come to nothing.
            if ours and noticed and notices.pop(instance_id, None) is None:
                withdrawn.setdefault(instance_id, event)
        elif event.state is InstanceState.ENDED:
            lives.learn(instance_id, LifeInput.SEEN_ENDED, at_ns)
            if ours:
                ends_s.append(offset_of(event.at_ns, at))
                ended_ns.setdefault(instance_id, event.at_ns)
        elif event.at_ns >= life.since_ns and life.state is not LifeState.ENDED:
            # Older ones come late: they are taken back by what was learnt since.
            lives.learn(instance_id, SEEN[event.state], at_ns)
    return CloudNews(
        notices=tuple(notices.values()),
        withdrawn=tuple(withdrawn.values()),
        ends_s=tuple(ends_s),
        ended_ns=ended_ns,
        event_ids=tuple(fresh),
    )


async def look(
    cloud: CloudProvider,
    ledger: Ledger,
    lives: LivesInHand,
    held: Collection[str],
    *,
    may_adopt: bool,
    may_stop: bool,
    left: Collection[str] = (),
) -> Reconciliation:
    """Compare what the cloud shows with the lives in hand, and ask ends for what should not be.

    Parameters
    ----------
    held
        Instances that the ledger holds.
    may_adopt
        Whether instances of unknown launches are taken over: only where they can be booked.
    may_stop
        Whether anything may be asked to end.
    left
        Instances that the ledger holds no more and that are not to be asked to end yet.
    """
    listing = await cloud.list(ledger.owner.name)
    shown, silent = {instance.instance_id: instance for instance in listing}, silent_in(listing)
    not_in_hand = [instance_id for instance_id in shown if instance_id not in lives]
    lives.remember((await ledger.lives_of(not_in_hand)).values())
    tokens = {launch.token for intent in await ledger.pending() for launch in intent.launches}
    before = {life.subject: life for life in lives.all()}
    unknown = {life.token: life for life in lives.unknown_launches()}
    adopted: list[Instance] = []
    for instance in shown.values():
        seen = SEEN[instance.state]
        if instance.instance_id in lives and instance.offering_id in silent:
            continue  # it is shown as it was
        if instance.instance_id in lives:
            lives.learn(instance.instance_id, seen)
        elif instance.token in unknown:
            if may_adopt and instance.state is not InstanceState.ENDED:
                launch = unknown[instance.token]
                lives.begin(replace(launch, instance_id=instance.instance_id, instances=1), seen)
                adopted.append(instance)
        elif instance.token not in tokens and instance.state is not InstanceState.ENDED:
            # Nobody knows who ordered it: it is ended only if it is seen again.
            lives.begin(stranger_life(instance, lives.now_ns), seen)
    _miss(lives, shown, silent)
    waiting = _look_up(lives, unknown, shown, silent)
    for life in lives.all():
        if life.subject not in waiting and life.offering_id not in silent:
            lives.learn(life.subject, LifeInput.TIME_PASSED)
    booked = {*held, *left, *(instance.instance_id for instance in adopted)}
    stopping = [*lives.to_stop(), *_unbooked(lives, booked)] if may_stop else []
    condemned = {subject for subject in stopping if not _is_ours(lives, subject)}
    if condemned:
        # What nobody ordered leaves no trace but this one.
        await ledger.record(LedgerEntry(transitions=lives.drain_of(condemned)))
    if stopping:
        await cloud.terminate(ledger.owner, stopping)
        for instance_id in stopping:
            lives.learn(instance_id, LifeInput.STOP_ASKED)
    return _found(lives, before, held, shown, adopted)


def count_states(lives: Iterable[InstanceLife]) -> dict[LifeState, int]:
    """How many are in which state; 0 for none, ended ones left out."""
    counts = Counter(life.state for life in lives)
    return {state: counts[state] for state in LifeState if state is not LifeState.ENDED}


def _unbooked(lives: LivesInHand, booked: Collection[str]) -> list[str]:
    """Instances of ours that live on and that the ledger does not hold: their end was not asked."""
    over = (LifeState.STOPPING, LifeState.ENDED)
    return [
        life.instance_id
        for life in lives.all()
        if life.ours
        and not life.is_launch
        and life.state not in over
        and life.instance_id not in booked
    ]


def _look_up(
    lives: LivesInHand,
    unknown: Mapping[str, InstanceLife],
    shown: Mapping[str, Instance],
    silent: Collection[str],
) -> set[str]:
    """Learn what became of launches of unknown outcome.

    What shows, and may not be taken over by this look, waits for one that may: those tokens are
    returned. A launch where nobody answers is not looked up in vain.
    """
    waiting = {
        instance.token
        for instance in shown.values()
        if instance.state is not InstanceState.ENDED and instance.instance_id not in lives
    }
    for token, launch in unknown.items():
        if len(lives.of_token(token)) >= launch.instances:
            lives.learn(token, LifeInput.FOUND)
        elif token not in waiting and launch.offering_id not in silent:
            lives.learn(token, LifeInput.NOT_FOUND)
    return waiting


def _is_ours(lives: LivesInHand, subject: str) -> bool:
    life = lives.get(subject)
    return life is not None and life.ours


def _miss(lives: LivesInHand, shown: Mapping[str, Instance], silent: Collection[str]) -> None:
    for life in lives.all():
        if life.offering_id in silent:
            continue
        if not life.is_launch and life.instance_id not in shown:
            lives.learn(life.instance_id, LifeInput.MISSING)


def _found(
    lives: LivesInHand,
    before: Mapping[str, InstanceLife],
    held: Collection[str],
    shown: Mapping[str, Instance],
    adopted: Sequence[Instance],
) -> Reconciliation:
    changed = [(before.get(life.subject), life) for life in lives.all()]
    return Reconciliation(
        missing=tuple(sorted(set(held) - set(shown))),
        gone=tuple(sorted(instance_id for instance_id in held if lives.is_gone(instance_id))),
        adopted=tuple(adopted),
        given_up=tuple(
            life.token
            for was, life in changed
            if was is not None
            and life.is_launch
            and (was.state, life.state) == (LifeState.UNKNOWN, LifeState.ENDED)
            and len(lives.of_token(life.token)) < life.instances
        ),
        states=count_states(lives.all()),
        unknown_launches=len(lives.unknown_launches()),
        ended=_ended(lives, shown.values()),
    )


def _ended(lives: LivesInHand, shown: Iterable[Instance]) -> tuple[BilledInstance, ...]:
    over: dict[str, Instance | InstanceLife] = {
        instance.instance_id: instance
        for instance in shown
        if instance.state is InstanceState.ENDED
    }
    for life in lives.all():
        if life.state is LifeState.ENDED and not life.is_launch:
            over.setdefault(life.instance_id, life)
    return tuple(
        BilledInstance(
            instance_id=instance_id,
            offering_id=instance.offering_id,
            capacity_type=instance.capacity_type,
        )
        for instance_id, instance in over.items()
    )
