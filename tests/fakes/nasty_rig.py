"""The actuator before a nasty cloud: random slots and sudden death, and what must be true of them."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence

from spotline.application.cloud_actuator.actuation import CloudActuation
from spotline.application.cloud_actuator.agreeing import AgreementRules
from spotline.application.cloud_actuator.handler import SPEC, ActuateHandler
from spotline.application.cloud_actuator.options import ActuationOptions
from spotline.application.spec import Call
from spotline.contracts.errors import ProviderUnavailable
from spotline.domain.events.capacity import (
    CapacityLost,
    CapacityReported,
    CapacitySignalled,
    InterruptionNoticed,
    LaunchRefused,
    RefusalClass,
    SlotDecided,
)
from spotline.domain.events.event import Event
from spotline.domain.ledger.instance_life import Graces, LifeState
from spotline.domain.ledger.orphans import ANY_ACCOUNT, ReapMode, ReapRules
from spotline.domain.units import NS_PER_S
from tests.fakes.actuator import (
    CTX,
    INSTALLATION,
    OWNER,
    SLOT_S,
    Killed,
    KillSwitch,
    Mortal,
    command,
    lot,
    opened,
    quote,
    submitted,
)
from tests.fakes.memory_ledger import LedgerMemory, MemoryLedger
from tests.fakes.nasty_cloud import Nastiness, NastyCloud

# What nobody ordered is ended at the first comparison that finds it.
REAPS_AT_ONCE = AgreementRules(
    every_slots=1,
    reap=ReapRules(
        mode=ReapMode.REAP,
        installation_id=INSTALLATION,
        accounts=(ANY_ACCOUNT,),
        grace_s=0,
        at_most=1000,
    ),
)


class Clock:
    """The cloud's clock, as the actuator's."""

    def __init__(self, cloud: NastyCloud) -> None:
        self._cloud = cloud

    def now_ns(self) -> int:
        return self._cloud.now_ns


class NastyRig:
    """Feeds what a log would, performs what follows until it is done, and checks each answer."""

    def __init__(
        self, seed: int, nasty: Nastiness | None = None, graces: Graces | None = None
    ) -> None:
        self.cloud = NastyCloud(seed=seed, nasty=nasty or Nastiness())
        self.memory = LedgerMemory()
        self.handler = ActuateHandler()
        self.state = self.handler.initial()
        self.kill = KillSwitch()
        self.graces = graces or Graces()
        self.published: list[Event] = []
        self.slot = self.revision = -1
        self.open()

    def open(self) -> None:
        self.ledger = MemoryLedger(self.memory, OWNER)
        self.actuation = CloudActuation(
            Mortal(self.cloud, self.kill, ("launch", "terminate", "events")),
            Mortal(self.ledger, self.kill, ("write_intents", "record")),
            ActuationOptions(clock=Clock(self.cloud), graces=self.graces, agreement=REAPS_AT_ONCE),
        )

    async def start(self) -> None:
        """Start as a new process, again while the cloud does not answer."""
        while True:
            try:
                await self.actuation.start()
                return
            except ProviderUnavailable:
                continue
            except Killed:
                self.open()

    async def feed(self, event: Event) -> tuple[Event, ...]:
        self.handler.evolve(self.state, event)
        calls = self.handler.decide(self.state, event, CTX).calls
        answers: tuple[Event, ...] = ()
        for call in calls:
            answers += await self._perform(call)
        return answers

    async def open_slot(self, slot: int, *, last: bool = False) -> None:
        self.slot, self.revision = slot, -1
        self.cloud.now_ns = max(self.cloud.now_ns, slot * SLOT_S * NS_PER_S)
        await self.feed(opened(slot, quote("a"), quote("b"), last=last))

    async def decide(self, targets: Iterable[tuple[str, int, int, str]] = ()) -> CapacityReported:
        """Decide a revision now; targets are (job, spot, on-demand, offering)."""
        self.revision += 1
        commands = [
            command(job_id, lot(spot, on_demand, offering_id), self.slot, self.revision, self.now_s)
            for job_id, spot, on_demand, offering_id in targets
        ]
        for commanded in commands:
            await self.feed(commanded)
        answers = await self.feed(
            SlotDecided(
                slot=self.slot,
                revision=self.revision,
                offset_s=self.now_s,
                commands=len(commands),
            )
        )
        return next(event for event in answers if isinstance(event, CapacityReported))

    async def signal(self) -> tuple[Event, ...]:
        return await self.feed(CapacitySignalled(slot=self.slot, offset_s=self.now_s))

    @property
    def now_s(self) -> int:
        return self.cloud.now_ns // NS_PER_S - self.slot * SLOT_S

    def wait(self, seconds: int) -> None:
        self.cloud.now_ns += seconds * NS_PER_S

    async def _perform(self, call: Call) -> tuple[Event, ...]:
        while True:
            try:
                answers = tuple(await self.actuation.perform(call))
                break
            except ProviderUnavailable:
                self.wait(1)
            except Killed:
                self.open()
                await self.start()
        self._check(answers)
        self.published += answers
        # They come round by the log.
        for answer in answers:
            if isinstance(answer, SPEC.consumes):
                self.handler.evolve(self.state, answer)
        return answers

    # --- what must be true --------------------------------------------------------------------

    def _check(self, answers: Sequence[Event]) -> None:
        running = self.cloud.running()
        lost_before = {
            instance_id
            for event in self.published
            if isinstance(event, CapacityLost)
            for instance_id in event.instance_ids
        }
        for event in answers:
            if isinstance(event, CapacityLost):
                for instance_id in event.instance_ids:
                    assert instance_id not in running, f"{instance_id} runs, but was called lost"
                    assert instance_id not in lost_before, f"{instance_id} was lost twice"
            elif isinstance(event, LaunchRefused):
                assert event.refusal_class is not None
                # What is frozen is what a stranger is tagged with.
                ours = event.detail.startswith(
                    ("buying is stopped (", f"slot {self.slot} was over")
                )
                assert ours is (event.refusal_class is RefusalClass.LIMIT)
                assert event.granted < event.requested
            elif isinstance(event, InterruptionNoticed):
                assert event.lead_s >= 0
        reports = [event for event in answers if isinstance(event, CapacityReported)]
        for report in reports:
            assert holdings_of(report) == self.held_counts()
        for request, refusal in self.cloud.refusals:
            if refusal.refusal_class is RefusalClass.NO_CAPACITY:
                self._check_cooling(request)

    def _check_cooling(self, refused) -> None:
        """Nothing is asked of a cooling offering before three minutes are over."""
        for request in self.cloud.launches:
            same = (request.offering_id, request.capacity_type) == (
                refused.offering_id,
                refused.capacity_type,
            )
            wait_s = (request.at.ts_ns - refused.at.ts_ns) / NS_PER_S
            granted_between = any(
                (other.offering_id, other.capacity_type)
                == (refused.offering_id, refused.capacity_type)
                and refused.at.ts_ns <= other.at.ts_ns <= request.at.ts_ns
                and self.cloud.grants.get(other.token, (None, None))[1] is not None
                and self.cloud.grants[other.token][1].instances
                for other in self.cloud.launches
                if other is not refused
            )
            if same and wait_s > 0 and not granted_between:
                assert wait_s >= 180, f"asked again after {wait_s} s"

    def held_counts(self) -> dict[tuple[str, str, str], int]:
        counts: dict[tuple[str, str, str], int] = {}
        for row in self.memory.instances:
            held = row["held"]
            if row["end"] is None:
                key = (held.job_id, held.offering_id, held.capacity_type.value)
                counts[key] = counts.get(key, 0) + 1
        return counts

    def check_agreement(self) -> None:
        """Ledger, cloud and answers say the same once nothing is under way."""
        held = {row["held"].instance_id for row in self.memory.instances if row["end"] is None}
        assert self.cloud.running() == held
        alive = {
            life.subject: life.state
            for life in self.memory.lives.values()
            if life.state is not LifeState.ENDED
        }
        assert alive.keys() == held, alive
        assert set(alive.values()) <= {LifeState.VISIBLE, LifeState.RUNNING, LifeState.NOTICED}
        known = {row["held"].instance_id for row in self.memory.instances}
        reaped = {
            transition.life.instance_id
            for transition in self.memory.transitions
            if not transition.life.ours and transition.life.state is LifeState.STOPPING
        }
        asked = {name for name, truth in self.cloud.truths.items() if truth.asked}
        assert asked - known == reaped - known
        # What shows in time is found, however late its answer: only strangers are reaped.
        assert all(self.cloud.truths[name].strange for name in reaped)
        self._check_history()

    def _check_history(self) -> None:
        """Every change is on record: each transition begins where the one before it ended."""
        states: dict[str, LifeState] = {}
        for transition in self.memory.transitions:
            subject = transition.life.subject
            if subject in states:
                assert states[subject] is transition.before
            states[subject] = transition.life.state
        assert states == {subject: life.state for subject, life in self.memory.lives.items()}


def holdings_of(report: CapacityReported) -> dict[tuple[str, str, str], int]:
    counts: dict[tuple[str, str, str], int] = {}
    for holding in report.holdings:
        for held in holding.lots:
            for kind, number in (("spot", held.spot), ("on_demand", held.on_demand)):
                if number:
                    counts[holding.job_id, held.offering_id, kind] = number
    return counts


async def random_story(rig: NastyRig, seed: int, slots: int = 4) -> None:
    """Slots of random commands, takings, notices, strangers and waits; then calm, and a last word."""
    dice = random.Random(seed)
    for job_id in "xyz":
        await rig.feed(submitted(job_id))
    for slot in range(slots):
        await rig.open_slot(slot)
        await rig.decide(_targets(dice))
        for _ in range(dice.randrange(6)):
            rig.wait(dice.choice([1, 15, 40, 200, 600]))
            if rig.now_s >= SLOT_S:
                break
            running = sorted(rig.cloud.running())
            happening = dice.randrange(5)
            if happening == 0 and running:
                rig.cloud.take(dice.choice(running))
            elif happening == 1 and running:
                rig.cloud.notice(dice.choice(running), 120)
            elif happening == 2:
                name = f"s-{slot}-{rig.cloud.now_ns}"
                rig.cloud.stranger(name, name)
            if dice.random() < 0.5:
                await rig.signal()
            else:
                await rig.decide(_targets(dice) if dice.random() < 0.5 else ())
    await settle(rig, slots)


async def settle(rig: NastyRig, slot: int) -> None:
    """Let the faults end, and time go by, until nothing is under way."""
    rig.kill.at = set()
    rig.cloud.calm()
    # The first opening sees strangers long enough, the next one ends them.
    for opening in (slot, slot + 1, slot + 2):
        await rig.open_slot(opening)
        await rig.decide()
        for _ in range(12):
            rig.wait(280)
            await rig.signal()
    rig.check_agreement()


def _targets(dice: random.Random) -> list[tuple[str, int, int, str]]:
    return [
        (job_id, dice.randrange(4), dice.randrange(3), offering_id)
        for job_id in "xyz"
        for offering_id in "ab"
        if dice.random() < 0.5
    ]
