"""The lives that one step of the actuator works on: read once, changed here, recorded with it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from spotline.application.cloud_actuator.ports import Instance, InstanceState
from spotline.domain.ledger.instance_life import (
    Graces,
    InstanceLife,
    LifeInput,
    LifeState,
    Transition,
    advance_life,
    needs_stop,
)
from spotline.domain.ledger.intents import Intent, Launch

SEEN = {
    InstanceState.PENDING: LifeInput.SEEN_PENDING,
    InstanceState.RUNNING: LifeInput.SEEN_RUNNING,
    InstanceState.STOPPING: LifeInput.SEEN_STOPPING,
    InstanceState.ENDED: LifeInput.SEEN_ENDED,
}


class LivesInHand:
    """Lives by subject, at one moment of the market's time, and what has been learnt of them."""

    def __init__(self, lives: Iterable[InstanceLife], graces: Graces, now_ns: int) -> None:
        self._lives = {life.subject: life for life in lives}
        self._graces = graces
        self._transitions: list[Transition] = []
        self._leaving = [s for s, life in self._lives.items() if _was_asked(life, now_ns)]
        self.now_ns = now_ns

    @property
    def transitions(self) -> tuple[Transition, ...]:
        """All that was learnt since the lives were read or `drain` was called, in order."""
        return tuple(self._transitions)

    def drain(self) -> tuple[Transition, ...]:
        """Hand over what was learnt, to be recorded."""
        learnt, self._transitions = self.transitions, []
        return learnt

    def drain_of(self, subjects: Collection[str]) -> tuple[Transition, ...]:
        """Hand over what was learnt of some of them."""
        learnt = tuple(step for step in self._transitions if step.life.subject in subjects)
        self._transitions = [step for step in self._transitions if step not in learnt]
        return learnt

    def __contains__(self, subject: object) -> bool:
        return subject in self._lives

    def all(self) -> Sequence[InstanceLife]:
        """The lives as they stand, those that have ended here too."""
        return list(self._lives.values())

    def get(self, subject: str) -> InstanceLife | None:
        """One of them."""
        return self._lives.get(subject)

    def remember(self, lives: Iterable[InstanceLife]) -> None:
        """Take in lives that were read later."""
        for life in lives:
            self._lives.setdefault(life.subject, life)

    def learn(self, subject: str, what: LifeInput, at_ns: int | None = None) -> None:
        """Apply what is learnt of a life at `at_ns`, or now."""
        at_ns = self.now_ns if at_ns is None else at_ns
        life, transition = advance_life(self._lives[subject], what, at_ns, self._graces)
        if transition is not None:
            self._lives[subject] = life
            self._transitions.append(transition)

    def begin(self, life: InstanceLife, what: LifeInput, at_ns: int | None = None) -> None:
        """Take up a life that is not recorded yet, by what is learnt of it first."""
        at_ns = self.now_ns if at_ns is None else at_ns
        after, transition = advance_life(life, what, at_ns, self._graces)
        self._lives[after.subject] = after
        first = Transition(life=after, before=life.state, what=what, at_ns=at_ns)
        self._transitions.append(transition or first)

    def left(self) -> list[InstanceLife]:
        """Instances whose end had been asked for before, and that are seen to have ended since."""
        lives = [self._lives[subject] for subject in self._leaving]
        return [life for life in lives if life.state is LifeState.ENDED]

    def to_stop(self) -> list[str]:
        """Instances whose end must be asked for now, for the first time or again."""
        return [
            life.instance_id
            for life in self._lives.values()
            if needs_stop(life, self.now_ns, self._graces)
        ]

    def is_gone(self, instance_id: str) -> bool:
        """Whether what the ledger still holds is over, or was given up and asked to end.

        The ledger reads no ended lives: what is held and not in hand is over.
        """
        life = self._lives.get(instance_id)
        return life is None or life.state in (LifeState.STOPPING, LifeState.ENDED)

    def unknown_launches(self) -> list[InstanceLife]:
        """Launches of which nobody knows what they did."""
        return [
            life
            for life in self._lives.values()
            if life.is_launch and life.state is LifeState.UNKNOWN
        ]

    def of_token(self, token: str) -> list[InstanceLife]:
        """Instances in hand that a token launched."""
        return [life for life in self._lives.values() if life.token == token and not life.is_launch]


def _was_asked(life: InstanceLife, now_ns: int) -> bool:
    """Whether an instance of ours is ending, and was asked to before now.

    What a step asked for that was killed and is done again is of now, whichever time it is.
    """
    asked = life.asked_ns is not None and life.asked_ns < now_ns
    return asked and life.ours and life.state is LifeState.STOPPING


def launch_life(intent: Intent, launch: Launch, *, instance_id: str = "") -> InstanceLife:
    """A launch as it was requested, or one of its instances."""
    return InstanceLife(
        instance_id=instance_id,
        token=launch.token,
        command_id=intent.command_id,
        attempt=intent.attempt,
        job_id=intent.job_id,
        tenant=intent.tenant,
        quota_pool=intent.quota_pool,
        offering_id=intent.offering_id,
        capacity_type=launch.capacity_type,
        state=LifeState.REQUESTED,
        since_ns=intent.ts_ns,
        instances=1 if instance_id else launch.permitted,
    )


def stranger_life(instance: Instance, now_ns: int) -> InstanceLife:
    """An instance that carries our tag and that the ledger did not order."""
    return InstanceLife(
        instance_id=instance.instance_id,
        token=instance.token,
        command_id="",
        attempt=0,
        job_id=instance.job_id,
        tenant=instance.tenant,
        quota_pool=instance.quota_pool,
        offering_id=instance.offering_id,
        capacity_type=instance.capacity_type,
        state=LifeState.UNKNOWN,
        since_ns=now_ns,
        ours=False,
    )
