"""Instances and agents of one job in memory, for stories about gangs: time is a number."""

from __future__ import annotations

from dataclasses import dataclass, replace

from spotline.application.allocator.agent_messages import AllocationState
from spotline.application.allocator.gang_facts import AgentTimes, GangFacts
from spotline.application.allocator.gangs import GangView, follows, note_stop, told
from spotline.application.allocator.handler import JobsHandler
from spotline.domain.events.capacity import (
    CapacityLost,
    CapacityReported,
    InstancesEnded,
    InterruptionKind,
    InterruptionNoticed,
    InterruptionWithdrawn,
)
from spotline.domain.events.lifecycle import (
    JobExited,
    JobProgressReported,
    JobRetryScheduled,
    JobSubmitted,
)
from spotline.domain.events.training import AgentJoined, GenerationFormed
from spotline.domain.jobs.lot import JobHolding, Lot
from spotline.domain.jobs.run import Run
from tests.fakes.allocator import EAST, START_NS, job, market_opened, slot_opened

TIMES = AgentTimes(heartbeat_s=1.0, silent_s=4.0)
NS = 1_000_000_000


def run_job(request_id="r1", *, counts=(1, 2, 3, 4), run=None, **fields):
    run = run or Run(command=("train",))
    return replace(job(request_id, counts=counts), run=run, **fields)


@dataclass
class Machine:
    """An instance with its agent; `reached` says whether the control plane hears of it.

    Its program saves for `saves_steps` steps after it was told to stop; with `slow_news` a heartbeat
    comes before the word on how its program ended. `disowned` is the
    generation that ran there, out of reach, when another one was formed.
    """

    name: str
    alive: bool = True
    reached: bool = True
    joined: bool = False
    running: int = 0
    started: int = 0
    saves_steps: int = 1
    slow_news: bool = False
    kept_back: bool = False
    saving: int = 0
    disowned: int = 0
    report: tuple[int, int] | None = None
    last_heard_s: float = 0.0


class Story:
    """What happens to one job; `step` lets the control plane and the agents act once."""

    def __init__(self, *, counts=(1, 2, 3, 4), run=None):
        self.job = run_job(counts=counts, run=run)
        self.handler = JobsHandler()
        self.state = self.handler.initial()
        self.facts = GangFacts(since_s=0.0)
        self.now_s = 0.0
        self.machines: dict[str, Machine] = {}
        self.held: list[str] = []
        self.unreported_dead: list[str] = []
        self.log: list = []
        self.made = 0
        for event in (
            market_opened(),
            slot_opened(0),
            JobSubmitted(job=self.job, ts_event_ns=START_NS),
        ):
            self.record(event)

    # --- the log ------------------------------------------------------------------------------

    @property
    def gang(self):
        return self.state.gangs.by_job[self.job.job_id]

    def record(self, event):
        self.log.append(event)
        self.handler.evolve(self.state, event)
        if isinstance(event, GenerationFormed):
            self.facts.form(self.now_s)
            for machine in self.machines.values():
                if self.silent(machine):
                    machine.disowned = machine.running

    @property
    def now_ns(self):
        return START_NS + round(self.now_s * NS)

    def report(self, done=1.0, *, generation=None):
        """The program says how far it is."""
        self.record(
            self.of_job(
                JobProgressReported,
                done=done,
                ts_event_ns=self.now_ns,
                generation=self.gang.generation if generation is None else generation,
            )
        )
        self.facts.report(self.now_s)

    def of_job(self, event_type, **fields):
        return event_type(job_id=self.job.job_id, tenant=self.job.tenant, **fields)

    def view(self):
        return GangView(
            gang=self.gang,
            facts=self.facts,
            times=TIMES,
            now_s=self.now_s,
            now_ns=self.now_ns,
            slot_s=self.state.recent.slot_s,
        )

    def generations(self):
        return [event for event in self.log if isinstance(event, GenerationFormed)]

    def exits(self):
        return [event for event in self.log if isinstance(event, JobExited)]

    # --- what happens ---------------------------------------------------------------------------

    def report_holding(self):
        lots = (Lot(offering_id=EAST, spot=len(self.held)),)
        holding = JobHolding(job_id=self.job.job_id, lots=lots, instance_ids=tuple(self.held))
        self.record(
            CapacityReported(
                slot=0, revision=0, offset_s=0, settled=True, holdings=(holding,) * bool(self.held)
            )
        )

    def launch(self):
        self.made += 1
        name = f"i-{self.made}"
        self.machines[name] = Machine(
            name, saves_steps=1 + 2 * (self.made % 3), slow_news=self.made % 2 == 0
        )
        self.held.append(name)
        self.report_holding()
        return name

    def release(self, name):
        self.held.remove(name)
        self.report_holding()

    def join(self, name):
        machine = self.machines[name]
        if machine.joined or not machine.alive or not machine.reached:
            return
        machine.joined = True
        machine.last_heard_s = self.now_s
        self.record(
            self.of_job(
                AgentJoined,
                instance_id=name,
                token_sha256="t",
                nonce_sha256="n",
                host=f"host-{name}",
                ts_event_ns=START_NS,
            )
        )
        self.facts.join(name, self.now_s)

    def kill(self, name):
        """The instance is gone without a word; others that ran with it may crash."""
        machine = self.machines[name]
        machine.alive = False
        machine.running = 0
        if name in self.held:
            self.held.remove(name)
            self.unreported_dead.append(name)

    def tell_lost(self):
        for name in self.unreported_dead:
            self.record(
                self.of_job(
                    CapacityLost, offering_id=EAST, instance_ids=(name,), slot=0, offset_s=1
                )
            )
        if self.unreported_dead:
            self.unreported_dead = []
            self.report_holding()

    def tell_ended(self):
        """The cloud shows that what was released has ended."""
        for machine in self.machines.values():
            name = machine.name
            if not machine.alive and name in self.gang.gone - self.gang.lost - self.gang.ended:
                self.record(
                    self.of_job(
                        InstancesEnded, offering_id=EAST, instance_ids=(name,), slot=0, offset_s=1
                    )
                )

    def notice(self, name, lead_s=60):
        self.record(
            self.of_job(
                InterruptionNoticed,
                offering_id=EAST,
                instance_ids=(name,),
                slot=0,
                offset_s=1,
                lead_s=lead_s,
                kind=InterruptionKind.CAPACITY_RECLAIMED,
            )
        )

    def withdraw(self, name):
        self.record(
            self.of_job(
                InterruptionWithdrawn, offering_id=EAST, instance_ids=(name,), slot=0, offset_s=2
            )
        )

    def retry(self, not_before_s):
        self.record(
            self.of_job(
                JobRetryScheduled,
                slot=0,
                retry=1,
                not_before_ns=START_NS + round(not_before_s * NS),
                detail="",
            )
        )

    def ranks_end(self, name, exit_code):
        machine = self.machines[name]
        if machine.alive and machine.running:
            machine.report = (machine.running, exit_code)
            machine.running = 0
            machine.saving = 0

    def restart_control_plane(self):
        """The log stays, what agents said is forgotten."""
        self.facts = GangFacts(
            since_s=self.now_s, restored=self.gang.generation, formed_s=self.now_s
        )

    # --- time ---------------------------------------------------------------------------------

    def step(self, elapsed_s=0.5):
        """Time passes, agents report, rules are applied, agents do what they are told."""
        self.now_s += elapsed_s
        for machine in self.machines.values():
            self._tell(machine)
        self.decide()
        for machine in self.machines.values():
            self._obey(machine)

    def decide(self):
        for _ in range(4):
            note_stop(self.view())
            events = follows(self.view())
            if not events:
                return
            for event in events:
                self.record(event)
        raise AssertionError(f"there is no end to what follows: {events}")

    def _tell(self, machine):
        if not (machine.alive and machine.reached and machine.joined):
            return
        machine.last_heard_s = self.now_s
        if machine.slow_news and machine.report is not None and not machine.kept_back:
            machine.kept_back = True
        elif machine.report is not None:
            machine.kept_back = False
            generation, exit_code = machine.report
            self.facts.stop(machine.name, generation, exit_code, "", self.now_s)
            machine.report = None
        self.facts.beat(machine.name, machine.running, self.now_s)

    def _obey(self, machine):
        if not (machine.alive and machine.reached and machine.joined):
            return
        if machine.saving:
            machine.saving -= 1
            if not machine.saving:
                self.ranks_end(machine.name, 75)
            return
        allocation = told(self.view(), machine.name)
        if allocation is None:
            return
        match allocation.state:
            case AllocationState.RUN:
                assert machine.running in (0, allocation.generation)
                assert machine.name in [member.instance_id for member in allocation.members]
                if machine.started < allocation.generation:
                    machine.started = machine.running = allocation.generation
                    self.facts.start(machine.name, allocation.generation, self.now_s)
            case AllocationState.WAIT:
                assert not machine.running, "a program that runs must not be told to wait"
            case AllocationState.STOP:
                machine.saving = machine.saves_steps if machine.running else 0
            case AllocationState.ABORT:
                self.ranks_end(machine.name, -9)
            case AllocationState.LEAVE | AllocationState.OVER:
                if machine.running:
                    machine.saving = machine.saves_steps
                elif machine.report is None:
                    machine.alive = False

    def running(self):
        """The generations that run on instances that are within reach, and were since."""
        return {
            machine.running
            for machine in self.machines.values()
            if machine.alive
            and machine.running
            and machine.running != machine.disowned
            and not self.silent(machine)
        }

    def silent(self, machine):
        return self.now_s - machine.last_heard_s >= TIMES.silent_after_s

    def all_run(self):
        """Whether the present generation runs on all that is held."""
        gang = self.gang
        return set(self.held) == set(gang.members) != set() and all(
            self.machines[name].running == gang.generation for name in self.held
        )

    def until(self, condition, *, steps=200):
        for _ in range(steps):
            if condition():
                return
            self.step()
        raise AssertionError(f"not within {steps} steps; the log ends with {self.log[-6:]}")
