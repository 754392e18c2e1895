"""A whole actuator on files, with a place to kill it between any two of its steps."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from spotline.adapters.clouds.simulated.cloud import SimulatedCloud
from spotline.adapters.clouds.simulated.driver import SimulatedCloudDriver
from spotline.adapters.clouds.simulated.faults import SimulatedCloudSettings
from spotline.adapters.clouds.simulated.paper import PaperCloud
from spotline.adapters.ledger.opening import ledger_url
from spotline.adapters.ledger.sql import SqlLedger
from spotline.adapters.ledger.threaded import ThreadedLedger
from spotline.application.cloud_actuator.actuation import CloudActuation
from spotline.application.cloud_actuator.agreeing import AgreementRules
from spotline.application.cloud_actuator.handler import SPEC, ActuateHandler
from spotline.application.cloud_actuator.messages import Moment
from spotline.application.cloud_actuator.options import ActuationOptions
from spotline.application.cloud_actuator.ports import (
    CloudProvider,
    Instance,
    InstanceBiller,
    InstanceState,
    LaunchRequest,
    LedgerLaunch,
    Owner,
)
from spotline.application.cloud_actuator.reconciling import Reconciliation
from spotline.application.spec import Call, Context
from spotline.domain.events.capacity import CapacityReported, ProvisioningCommanded, SlotDecided
from spotline.domain.events.event import Event
from spotline.domain.events.lifecycle import JobSubmitted
from spotline.domain.events.market import SlotOpened
from spotline.domain.jobs.job import Deadline, DeadlineKind
from spotline.domain.jobs.lot import Lot
from spotline.domain.ledger.caps import Caps
from spotline.domain.ledger.instance_life import InstanceLife
from spotline.domain.market.believed import PaperSettings
from spotline.domain.market.offering import (
    UNKNOWN_COUNT,
    CapacityType,
    Count,
    Provenance,
    Quote,
)
from spotline.domain.market.slot_quote import SlotQuote
from spotline.domain.modes import LIVE_FROM_THE_START, StatedModes
from spotline.domain.units import NS_PER_S
from tests.fakes.allocator import job

SLOT_S = 3600
OWNER = "test"
INSTALLATION = "here"
CTX = Context(seq=1, now_ns=0, event_id="e", correlation_id="c")


class Killed(BaseException):
    """The process died here. Not an Exception: nothing may catch it."""


class KillSwitch:
    """Counts the points passed, two for every step, and dies at those in `at`."""

    def __init__(self) -> None:
        self.at: set[int] = set()
        self.passed = 0

    def point(self) -> None:
        self.passed += 1
        if self.passed - 1 in self.at:
            raise Killed


class Mortal:
    """Passes everything on to `inner`, with a kill point before and after each step named."""

    def __init__(self, inner: object, switch: KillSwitch, steps: Sequence[str]) -> None:
        self._inner, self._switch, self._steps = inner, switch, steps

    def __getattr__(self, name: str):
        attribute = getattr(self._inner, name)
        if name not in self._steps:
            return attribute

        async def step(*args):
            self._switch.point()
            done = await attribute(*args)
            self._switch.point()
            return done

        return step


class Rig:
    """Handler, actuation, ledger and cloud in a directory; `feed` runs an event through them."""

    def __init__(
        self,
        directory: Path,
        *,
        settings: SimulatedCloudSettings | None = None,
        caps: Caps | None = None,
        modes: StatedModes = LIVE_FROM_THE_START,
        agreement: AgreementRules | None = None,
        biller: InstanceBiller | None = None,
    ) -> None:
        self.directory, self.settings, self.caps, self.modes = directory, settings, caps, modes
        self.agreement, self.biller = agreement, biller
        self.handler = ActuateHandler()
        self.state = self.handler.initial()
        self.published: list[Event] = []
        self.kill = KillSwitch()
        self.looks: list[Reconciliation] = []
        self.open()

    def open(self) -> None:
        if self.modes.run.on_paper:
            path = self.directory / "paper.sqlite"
            self.cloud = PaperCloud(path, PaperSettings(), notice_lead_s=120)
        else:
            self.cloud = SimulatedCloud(self.directory / "cloud.sqlite", self.settings)
        self.ledger = SqlLedger(ledger_url(self.directory / "ledger.sqlite"), OWNER)
        self.actuation = CloudActuation(
            Mortal(self.cloud, self.kill, ("launch", "terminate", "events")),
            Mortal(ThreadedLedger(self.ledger), self.kill, ("write_intents", "record", "settle")),
            ActuationOptions(
                caps=self.caps or Caps(),
                modes=self.modes,
                on_look=self.looks.append,
                agreement=self.agreement,
                lease_s=self.settings.lease_s or None if self.settings else None,
                biller=self.biller,
            ),
        )
        self.perform = SimulatedCloudDriver(self.cloud, self.actuation.perform)

    def close(self) -> None:
        self.cloud.close()
        self.ledger.close()

    async def lives_of(self, *subjects: str) -> list[InstanceLife]:
        lives = await ThreadedLedger(self.ledger).lives_of(subjects)
        return [lives[subject] for subject in subjects]

    def call(self, event: Event) -> Call | None:
        self.handler.evolve(self.state, event)
        calls = self.handler.decide(self.state, event, CTX).calls
        return calls[0] if calls else None

    async def feed(self, event: Event) -> tuple[Event, ...]:
        """Perform what follows from `event`; a process killed on the way is started again."""
        call = self.call(event)
        if call is None:
            return ()
        while True:
            try:
                answers = tuple(await self.perform(call))
                break
            except Killed:
                await self.restart()
        self.published += answers
        # They come round by the log.
        for answer in answers:
            if isinstance(answer, SPEC.consumes):
                self.handler.evolve(self.state, answer)
        return answers

    async def restart(self) -> None:
        while True:
            self.close()
            self.open()
            try:
                await self.actuation.start()
                return
            except Killed:
                continue

    async def decide(
        self, slot: int, revision: int, offset_s: int, targets: Sequence[tuple[str, Lot]]
    ) -> tuple[Event, ...]:
        for job_id, target in targets:
            await self.feed(command(job_id, target, slot, revision, offset_s))
        return await self.feed(
            SlotDecided(slot=slot, revision=revision, offset_s=offset_s, commands=len(targets))
        )

    async def run_slot(
        self,
        opened: SlotOpened,
        targets: Sequence[tuple[str, Lot]] = (),
        after: Callable[[CapacityReported], None] = lambda report: None,
    ) -> None:
        """Open, decide once, and then keep what is left until the slot has settled."""
        await self.feed(opened)
        answers = await self.decide(opened.slot, 0, 0, targets)
        report = reported(answers)
        after(report)
        while not report.settled:
            revision = report.revision + 1
            answers = await self.decide(opened.slot, revision, report.offset_s, ())
            report = reported(answers)
            after(report)


def submitted(job_id: str = "j", *, deadline_slot: int = 100) -> JobSubmitted:
    """A job of this rig's tenant with a hard deadline."""
    deadline_ns = deadline_slot * SLOT_S * NS_PER_S
    stated = replace(
        job(),
        job_id=job_id,
        tenant="acme",
        deadline=Deadline(kind=DeadlineKind.HARD, at_ns=deadline_ns, expires_ns=deadline_ns),
    )
    return JobSubmitted(job=stated, ts_event_ns=0)


def command(
    job_id: str, target: Lot, slot: int, revision: int = 0, offset_s: int = 0
) -> ProvisioningCommanded:
    return ProvisioningCommanded(
        command_id=f"{job_id}-{target.offering_id}-{slot}-{revision}",
        job_id=job_id,
        tenant="acme",
        quota_pool="pool",
        slot=slot,
        revision=revision,
        offset_s=offset_s,
        target=target,
    )


def lot(spot: int = 0, on_demand: int = 0, offering_id: str = "a") -> Lot:
    return Lot(offering_id=offering_id, spot=spot, on_demand=on_demand)


def quote(
    offering_id: str = "a",
    spot: int | None = 8,
    on_demand: int | None = None,
    price: int = 1_000_001,
) -> Quote:
    def count(instances: int | None) -> Count:
        if instances is None:
            return UNKNOWN_COUNT
        return Count(instances=instances, provenance=Provenance.OBSERVED)

    return Quote(
        offering_id=offering_id,
        ts_event_ns=0,
        spot_price_micro_usd=price,
        on_demand_price_micro_usd=3 * price,
        spot_available=count(spot),
        on_demand_available=count(on_demand),
    )


def opened(slot: int, *quotes: Quote, last: bool = False) -> SlotOpened:
    return SlotOpened(
        slot=slot,
        ts_event_ns=slot * SLOT_S * NS_PER_S,
        slot_s=SLOT_S,
        quotes=tuple(SlotQuote(quote=one, age_s=0) for one in quotes or (quote(),)),
        last=last,
    )


async def running_in(cloud: CloudProvider) -> list[Instance]:
    """What the cloud shows of our instances and has not ended."""
    shown = await cloud.list(OWNER)
    return [instance for instance in shown if instance.state is not InstanceState.ENDED]


def reported(answers: Sequence[Event]) -> CapacityReported:
    return next(one for one in answers if isinstance(one, CapacityReported))


def moment(slot: int = 0, offset_s: int = 0) -> Moment:
    ts_ns = (slot * SLOT_S + offset_s) * NS_PER_S
    return Moment(slot=slot, slot_s=SLOT_S, offset_s=offset_s, ts_ns=ts_ns)


def launch(
    token: str, instances: int, *, at: Moment | None = None, epoch: int = 1, job_id: str = "j"
) -> LaunchRequest:
    return LaunchRequest(
        token=token,
        owner=Owner(name=OWNER, epoch=epoch),
        job_id=job_id,
        tenant="acme",
        quota_pool="pool",
        offering_id="a",
        capacity_type=CapacityType.SPOT,
        instances=instances,
        at=at or moment(),
    )


def ledger_launch(instance_id: str, *, slot: int = 0, offset_s: int = 0) -> LedgerLaunch:
    instance = Instance(
        instance_id=instance_id,
        token="t",
        job_id="j",
        tenant="acme",
        quota_pool="pool",
        offering_id="a",
        capacity_type=CapacityType.SPOT,
        ready_ns=0,
    )
    return LedgerLaunch(instance=instance, command_id="c", attempt=0, slot=slot, offset_s=offset_s)
