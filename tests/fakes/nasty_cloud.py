"""A cloud that does right and tells it badly: late listings, lost answers, double and late notices.

What is `scripted` it says to the next new launches, and launches nothing.

What is true of it is kept apart from what it shows, so that a test can compare. All chance comes
from a seed; `calm` ends the faults, not what they have led to.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from spotline.application.cloud_actuator.listings import PartialListing
from spotline.application.cloud_actuator.messages import Moment
from spotline.application.cloud_actuator.ports import (
    CloudEvent,
    CloudEventKind,
    Grant,
    Instance,
    InstanceState,
    LaunchRequest,
    Owner,
    OwnerFenced,
    Refusal,
)
from spotline.contracts.errors import ProviderUnavailable, UnknownOutcome
from spotline.domain.events.capacity import InterruptionKind, RefusalClass
from spotline.domain.units import NS_PER_S


@dataclass(frozen=True, kw_only=True)
class Nastiness:
    """Chances, each 0..1, and the longest delays in seconds."""

    refused: float = 0.2
    lost_answer: float = 0.2
    lost_request: float = 0.1
    unavailable: float = 0.1
    hidden_once: float = 0.1
    ignored_stop: float = 0.2
    untold_notice: float = 0.3
    untold_end: float = 0.3
    doubled: float = 0.3
    listing_lag_s: int = 120
    ended_shown_s: int = 60
    event_lag_s: int = 200
    start_s: int = 120


CALM = Nastiness(
    refused=0,
    lost_answer=0,
    lost_request=0,
    unavailable=0,
    hidden_once=0,
    ignored_stop=0,
    untold_notice=0,
    untold_end=0,
    doubled=0,
    listing_lag_s=0,
    event_lag_s=0,
    start_s=0,
)


@dataclass
class Truth:
    """An instance as it is."""

    instance: Instance
    launched_ns: int
    shown_ns: int
    asked: bool = False
    hidden: bool = False
    strange: bool = False
    ended_ns: int | None = None


@dataclass
class NastyCloud:
    """Implements `CloudProvider`; `now_ns` is its clock and the actuator's.

    Of `silent` offerings it shows nothing. The next `scripted` refusal comes after the work was done where `works_before_failing`.
    """

    seed: int
    nasty: Nastiness = field(default_factory=Nastiness)
    now_ns: int = 0
    truths: dict[str, Truth] = field(default_factory=dict)
    grants: dict[str, tuple[LaunchRequest, Grant]] = field(default_factory=dict)
    launches: list[LaunchRequest] = field(default_factory=list)
    refusals: list[tuple[LaunchRequest, Refusal]] = field(default_factory=list)
    lost_answers: int = 0
    epoch: int = 0
    scripted: list[Refusal | Exception] = field(default_factory=list)
    lose_answers: int = 0
    works_before_failing: bool = False
    silent: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self._queue: list[tuple[int, CloudEvent]] = []
        self._takings: dict[str, tuple[CloudEvent, ...]] = {}
        self._notice = 0

    @property
    def notice_lead_s(self) -> int:
        return 0

    def calm(self) -> None:
        """Do and tell everything as it should be from now on."""
        self.nasty = CALM

    def running(self) -> set[str]:
        """What truly runs."""
        return {name for name, truth in self.truths.items() if truth.ended_ns is None}

    # --- what a cloud does by itself ----------------------------------------------------------

    def notice(self, instance_id: str, lead_s: int) -> None:
        """Say that an instance will be taken, unless that is not told."""
        self._notice += 1
        if not self._hits(self.nasty.untold_notice):
            self._tell(
                instance_id,
                f"notice-{self._notice}-{instance_id}",
                CloudEventKind.NOTICE,
                InstanceState.RUNNING,
                lead_s,
            )

    def take(self, instance_id: str) -> None:
        """End an instance."""
        truth = self.truths[instance_id]
        if truth.ended_ns is None:
            truth.ended_ns = self.now_ns
            if not self._hits(self.nasty.untold_end):
                name = f"ended-{instance_id}"
                self._tell(instance_id, name, CloudEventKind.STATE, InstanceState.ENDED, 0)

    def stranger(self, instance_id: str, token: str) -> None:
        """Start an instance that carries the owner's tag and that nobody asked for."""
        known = next(iter(self.truths.values())).instance if self.truths else None
        if known is not None:
            instance = replace(known, instance_id=instance_id, token=token, job_id="stray")
            self.truths[instance_id] = Truth(instance, self.now_ns, self.now_ns, strange=True)

    # --- the port -----------------------------------------------------------------------------

    async def launch(self, request: LaunchRequest) -> Grant:
        self._fence(request.owner)
        if self._hits(self.nasty.unavailable):
            raise ProviderUnavailable("not now")
        if request.token in self.grants:
            first, grant = self.grants[request.token]
            assert replace(first, owner=request.owner, at=request.at) == request
            return grant
        if self.scripted:
            self.launches.append(request)
            word = self.scripted.pop(0)
            if self.works_before_failing:
                self.works_before_failing = False
                for index in range(request.instances):
                    self._start(request, index)
            if isinstance(word, Refusal):
                self.refusals.append((request, word))
                return Grant(instances=(), refusal=word)
            raise word
        if self._hits(self.nasty.lost_request):
            self.lost_answers += 1
            raise UnknownOutcome("nasty", request.token, "the request was lost")
        self.launches.append(request)
        granted, refusal = request.instances, None
        if self._hits(self.nasty.refused):
            refusal_class = self._random.choice(
                [kind for kind in RefusalClass if kind is not RefusalClass.LIMIT]
            )
            refusal = Refusal(refusal_class=refusal_class, detail=f"no: {refusal_class.value}")
            granted = 0
            if refusal_class is RefusalClass.NO_CAPACITY:
                granted = self._random.randrange(request.instances)
            self.refusals.append((request, refusal))
            if refusal_class in (RefusalClass.THROTTLED, RefusalClass.SERVER):
                return Grant(instances=(), refusal=refusal)  # nothing was done: ask again
        instances = tuple(self._start(request, index) for index in range(granted))
        self.grants[request.token] = (request, Grant(instances=instances, refusal=refusal))
        if self.lose_answers or self._hits(self.nasty.lost_answer):
            self.lose_answers = max(0, self.lose_answers - 1)
            self.lost_answers += 1
            raise UnknownOutcome("nasty", request.token, "the answer was lost")
        return self.grants[request.token][1]

    async def terminate(self, owner: Owner, instance_ids: Sequence[str]) -> None:
        self._fence(owner)
        if self._hits(self.nasty.unavailable):
            raise ProviderUnavailable("not now")
        for instance_id in instance_ids:
            truth = self.truths.get(instance_id)
            if truth is not None:
                truth.asked = True
                if not self._hits(self.nasty.ignored_stop):
                    self.take(instance_id)

    async def list(self, owner_name: str) -> Sequence[Instance]:
        shown = []
        for truth in self.truths.values():
            if self.now_ns < truth.shown_ns or truth.instance.offering_id in self.silent:
                continue
            if not truth.hidden and self._hits(self.nasty.hidden_once):
                truth.hidden = True
                continue
            if truth.ended_ns is not None:
                if self.now_ns < truth.ended_ns + self.nasty.ended_shown_s * NS_PER_S:
                    # For a while it is shown as it was.
                    stale = self._hits(0.5)
                    state = InstanceState.RUNNING if stale else InstanceState.ENDED
                    shown.append(replace(truth.instance, state=state))
                continue
            ready = self.now_ns >= truth.instance.ready_ns
            state = InstanceState.RUNNING if ready else InstanceState.PENDING
            shown.append(replace(truth.instance, state=state))
        return PartialListing(shown, self.silent) if self.silent else tuple(shown)

    async def events(self, token: str, at: Moment) -> Sequence[CloudEvent]:
        if token not in self._takings:
            due = [event for due_ns, event in self._queue if due_ns <= self.now_ns]
            self._queue = [item for item in self._queue if item[0] > self.now_ns]
            self._random.shuffle(due)
            self._takings[token] = tuple(due)
        return self._takings[token]

    async def pushed(self) -> None:
        raise NotImplementedError

    # ------------------------------------------------------------------------------------------

    def _hits(self, chance: float) -> bool:
        return self._random.random() < chance

    def _within(self, longest_s: int) -> int:
        return self.now_ns + self._random.randint(0, longest_s) * NS_PER_S

    def _start(self, request: LaunchRequest, index: int) -> Instance:
        instance = Instance(
            instance_id=f"i-{request.token[:12]}-{index}",
            token=request.token,
            job_id=request.job_id,
            tenant=request.tenant,
            quota_pool=request.quota_pool,
            offering_id=request.offering_id,
            capacity_type=request.capacity_type,
            ready_ns=self._within(self.nasty.start_s),
            state=InstanceState.PENDING,
            installation_id=request.installation_id,
        )
        shown_ns = self._within(self.nasty.listing_lag_s)
        self.truths[instance.instance_id] = Truth(instance, self.now_ns, shown_ns)
        return instance

    def _tell(
        self,
        instance_id: str,
        event_id: str,
        kind: CloudEventKind,
        state: InstanceState,
        lead_s: int,
    ) -> None:
        event = CloudEvent(
            event_id=event_id,
            instance=replace(self.truths[instance_id].instance, state=state),
            kind=kind,
            state=state,
            at_ns=self.now_ns,
            lead_s=lead_s,
            interruption=InterruptionKind.CAPACITY_RECLAIMED,
        )
        for _ in range(1 + self._hits(self.nasty.doubled)):
            self._queue.append((self._within(self.nasty.event_lag_s), event))

    def _fence(self, owner: Owner) -> None:
        if owner.epoch < self.epoch:
            raise OwnerFenced(owner, self.epoch)
        self.epoch = owner.epoch
