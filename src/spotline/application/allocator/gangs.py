"""The rules of gangs: what each instance is to do, and what follows from what agents said.

A generation is formed when all instances that are held have joined, none of them is silent, their
number is allowed, and nothing runs any more on any instance of the job that can be reached. So no
two generations of a job run at a time. Interruptions are never failures: an exit code is believed
only where no member was lost, noticed, released, silent or told to stop before it, and only after
every member's agent has been heard of again, since an instance that is taken away may still say
how its program was killed.

Members that come in addition do not stop a program before all of them have joined.

A program is stalled that has reported nothing for too long, while the agents of all its members are
there and nothing else ends it. Where it is to be started again, its end is a failure: a retry.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from spotline.application.allocator.agent_messages import (
    AllocationState,
    OpenNotice,
    TrainingAllocation,
    TrainingMember,
)
from spotline.application.allocator.gang import Gang
from spotline.application.allocator.gang_facts import AgentTimes, GangFacts, RanksEnd
from spotline.domain.events.event import Event
from spotline.domain.events.lifecycle import JobExited
from spotline.domain.events.training import (
    GenerationFormed,
    JobHeard,
    JobSilent,
    JobStalled,
    JobStallEnded,
)
from spotline.domain.jobs.run import OnStall
from spotline.domain.units import NS_PER_S

# The program saved and wants to go on (`EX_TEMPFAIL`).
GOES_ON = 75
# It was ended because it was stalled; as `timeout` says it.
STALLED = 124


@dataclass(frozen=True, slots=True, kw_only=True)
class GangView:
    """A gang with what its agents said, at `now_s` of wall and `now_ns` of market time.

    Slots are `slot_s` seconds of market time long, 0 where that is not known.
    """

    gang: Gang
    facts: GangFacts
    times: AgentTimes
    now_s: float
    now_ns: int
    slot_s: int = 0

    # --- one instance ---------------------------------------------------------------------------

    def silent(self, instance_id: str) -> bool:
        """Whether an agent has not been heard of for too long."""
        quiet_s = self.now_s - self.facts.last_heard_s(instance_id)
        return quiet_s >= self.times.silent_after_s

    def out_of_reach(self, instance_id: str) -> bool:
        """Whether nothing is to be expected of an instance."""
        over = instance_id in self.gang.lost or instance_id in self.gang.ended
        return over or self.silent(instance_id)

    def end_of(self, member: str) -> RanksEnd | None:
        """How the present generation ended on a member, None where that was not heard."""
        return self.facts.end_of(member, self.gang.generation)

    def ended(self, member: str) -> bool:
        """Whether nothing of the present generation runs on a member, as far as can be known."""
        return self.end_of(member) is not None or self.ended_unheard(member)

    def ended_unheard(self, member: str) -> bool:
        """Whether a member has nothing running, though it was not heard how that ended.

        Its word was lost with the process that got it, or it was told to stop before it started.
        """
        agent = self.facts.agents.get(member)
        if agent is None or agent.running != 0 or self.end_of(member) is not None:
            return False
        generation = self.gang.generation
        # A heartbeat may come before the word on how it ended: it must have said so for a while.
        if self.facts.stopped == generation:
            since_s = max(agent.idle_since_s, self.facts.stopped_s)
            return agent.idle_s - since_s >= self.times.heartbeat_s
        if generation not in (self.facts.restored, agent.started):
            return False
        since_s = max(agent.idle_since_s, self.facts.formed_s)
        return agent.idle_s - since_s >= self.times.silent_after_s

    # --- the program ----------------------------------------------------------------------------

    def ends(self) -> Mapping[str, RanksEnd]:
        """How the present generation ended, by member that said so."""
        found = {member: self.end_of(member) for member in self.gang.members}
        return {member: end for member, end in found.items() if end is not None}

    def first_failure(self) -> RanksEnd | None:
        """The first end of the present generation that is neither done nor wants to go on."""
        failures = [end for end in self.ends().values() if end.exit_code not in (0, GOES_ON)]
        return min(failures, key=lambda end: end.at_s, default=None)

    def first_wish(self) -> RanksEnd | None:
        """The first end that wants to go on, and did not come of an abort after a failure."""
        wishes = [end for end in self.ends().values() if end.exit_code == GOES_ON]
        failure = self.first_failure()
        if failure is not None:
            latest_s = failure.at_s + self.times.heartbeat_s
            wishes = [end for end in wishes if end.at_s <= latest_s]
        return min(wishes, key=lambda end: end.at_s, default=None)

    def failed(self) -> bool:
        """Whether the present generation ended with a failure before anything else happened."""
        failure = self.first_failure()
        if failure is None or self.gang.disturbed or self.first_wish() is not None:
            return False
        excused = self.facts.excused == self.gang.generation
        return not (excused and self.facts.excused_s <= failure.at_s)

    def settled(self) -> bool:
        """Whether nothing of the present generation runs that can be reached."""
        return all(self.out_of_reach(member) or self.ended(member) for member in self.gang.members)

    def quiet(self) -> bool:
        """Whether the program has reported nothing for too long, and should have.

        In market time, and for so long in wall time that an agent would count as silent: at a high
        speed a program has no time to report within minutes of the market.
        """
        gang, facts, times = self.gang, self.facts, self.times
        if not gang.generation or gang.finished or gang.exited >= gang.generation:
            return False
        if self.why_stop() is not None or self.now_s - facts.quiet_since_s < times.silent_after_s:
            return False
        limit_ns = gang.run.seconds_to_stall(self.slot_s) * NS_PER_S
        lately_s = max(2 * times.heartbeat_s, times.silent_after_s / 2)
        return self.now_ns - gang.reported_ns >= limit_ns and all(
            # Of an instance that is gone nothing is to be expected, though it does not show yet.
            self.now_s - facts.last_heard_s(member) <= lately_s
            and not self.out_of_reach(member)
            and not self.ended(member)
            for member in gang.members
        )

    # --- those who are held ---------------------------------------------------------------------

    def complete(self) -> bool:
        """Whether all that are held have joined, are there, and are as many as may be."""
        gang = self.gang
        return len(gang.held) in gang.allowed_counts and not any(
            name not in gang.joined or self.silent(name) for name in gang.held
        )

    def why_stop(self) -> tuple[AllocationState, str] | None:
        """How members are to end the present generation and why, None while it may run."""
        gang = self.gang
        lost = [member for member in gang.members if member in gang.lost]
        if lost:
            return AllocationState.ABORT, f"{_names(lost)} gone"
        released = [member for member in gang.members if member in gang.gone]
        if released:
            return AllocationState.STOP, f"{_names(released)} held no more"
        if set(gang.held) > set(gang.members) and self.complete():
            came = [name for name in gang.held if name not in gang.members]
            return AllocationState.STOP, f"{_names(came)} come in addition"
        if gang.restarting:
            return AllocationState.ABORT, _why_restarted(gang)
        failure, wish = self.first_failure(), self.first_wish()
        patience_s = self.times.heartbeat_s
        if failure is not None and wish is None and self.now_s > failure.at_s + patience_s:
            return AllocationState.ABORT, f"the program failed with exit code {failure.exit_code}"
        if wish is not None and self.now_s > wish.at_s + patience_s:
            return AllocationState.STOP, "a member has saved and wants to go on"
        if self.facts.stopped == gang.generation:
            return AllocationState.STOP, "the instances changed"
        forgotten = [member for member in gang.members if self.ended_unheard(member)]
        if forgotten:
            return AllocationState.STOP, f"how it ended on {_names(forgotten)} is not known"
        return None


def note_stop(view: GangView) -> None:
    """Note in the facts that a generation was told to stop: it is not told to run after all."""
    gang, facts = view.gang, view.facts
    if not gang.generation or gang.over or view.why_stop() is None:
        return
    if facts.stopped != gang.generation:
        facts.stopped, facts.stopped_s = gang.generation, view.now_s
    if facts.excused != gang.generation and not view.failed():
        facts.excused, facts.excused_s = gang.generation, view.now_s


# --- what each instance is told -----------------------------------------------------------------


def told(view: GangView, instance_id: str) -> TrainingAllocation | None:
    """What an instance is to do now, None while that cannot be said.

    After a restart it cannot before the agent has said what runs there: "wait" would end it.
    """
    gang = view.gang
    if gang.over:
        return _allocation(view, AllocationState.OVER, "the job is over")
    if instance_id in gang.gone:
        return _allocation(view, AllocationState.LEAVE, "held no more")
    running = view.facts.running(instance_id)
    if running is None:
        return None
    if running not in (0, gang.generation):
        # It was out of reach while others went on.
        return TrainingAllocation(
            job_id=gang.job_id,
            generation=running,
            state=AllocationState.ABORT,
            detail=f"generation {gang.generation} has followed",
        )
    if instance_id not in gang.members or gang.finished or view.ended(instance_id):
        return _allocation(view, AllocationState.WAIT, _awaited(view))
    why = view.why_stop()
    if why is not None:
        return _allocation(view, *why)
    if not running and gang.generation == view.facts.restored:
        # Whether it has ended here or has not begun died with the process before this one.
        return _allocation(view, AllocationState.WAIT, "how it ended here is not known")
    return _allocation(view, AllocationState.RUN, "")


def _allocation(view: GangView, state: AllocationState, detail: str) -> TrainingAllocation:
    gang = view.gang
    return TrainingAllocation(
        job_id=gang.job_id,
        generation=gang.generation,
        state=state,
        members=tuple(
            TrainingMember(
                instance_id=name,
                node_rank=rank,
                host=gang.joined[name].host if name in gang.joined else "",
            )
            for rank, name in enumerate(gang.members)
        ),
        notices=() if gang.over else _notices(gang),
        detail=detail,
    )


def _notices(gang: Gang) -> tuple[OpenNotice, ...]:
    """The notices to members and to those who are to be, by deadline."""
    instances: dict[str, list[str]] = {}
    deadlines: dict[str, int] = {}
    for name, notice in gang.notices.items():
        instances.setdefault(notice.notice_id, []).append(name)
        deadlines[notice.notice_id] = notice.deadline_ns
    return tuple(
        OpenNotice(
            notice_id=notice_id,
            instance_ids=tuple(sorted(instances[notice_id])),
            deadline_ns=deadlines[notice_id],
        )
        for notice_id in sorted(instances, key=lambda notice_id: (deadlines[notice_id], notice_id))
    )


def _awaited(view: GangView) -> str:
    """What an instance that stands by waits for."""
    gang = view.gang
    if gang.finished:
        return "the program is done"
    if gang.awaits_retry or view.now_ns < gang.not_before_ns:
        return "the program failed: it is started again later"
    absent = [name for name in gang.held if name not in gang.joined]
    if absent:
        return f"{_names(absent)} to join"
    silent = [name for name in gang.held if view.silent(name)]
    if silent:
        return f"{_names(silent)} to be heard of again"
    if len(gang.held) not in gang.allowed_counts:
        counts = ", ".join(map(str, gang.allowed_counts))
        return f"{len(gang.held)} instances are held, the program runs on {counts}"
    running = [name for name in gang.members if not view.ended(name)]
    return f"the program to end on {_names(running)}" if running else ""


def _names(instance_ids: Sequence[str]) -> str:
    shown = ", ".join(instance_ids[:3])
    more = len(instance_ids) - 3
    return f"{shown} and {more} more" if more > 0 else shown


# --- what follows -------------------------------------------------------------------------------


def follows(view: GangView) -> tuple[Event, ...]:
    """The events that are to be recorded now, each once: applied, it follows no more."""
    gang = view.gang
    if gang.over:
        return ()
    heard = (*_silences(view), *_stalls(view))
    if gang.finished or (gang.generation and not view.settled()):
        return heard
    if gang.generation and gang.exited < gang.generation:
        exited = _exit(view)
        if exited is not None:
            return (*heard, exited)
        if _unsure(view):
            return heard
    formed = _formed(view)
    return heard if formed is None else (*heard, formed)


def _silences(view: GangView) -> tuple[Event, ...]:
    gang = view.gang
    found: list[Event] = []
    for name in dict.fromkeys((*gang.members, *gang.held)):
        if name in gang.gone or name not in gang.joined:
            continue
        last_s = view.facts.last_heard_s(name)
        if view.silent(name) and name not in gang.silent:
            quiet_ns = round((view.now_s - last_s) * view.times.market_s_per_s * NS_PER_S)
            silent = JobSilent(
                job_id=gang.job_id,
                tenant=gang.tenant,
                instance_id=name,
                since_ns=max(view.now_ns - quiet_ns, 0),
                ts_event_ns=view.now_ns,
            )
            found.append(silent)
        elif name in gang.silent and name in view.facts.agents and not view.silent(name):
            heard = JobHeard(
                job_id=gang.job_id, tenant=gang.tenant, instance_id=name, ts_event_ns=view.now_ns
            )
            found.append(heard)
    return tuple(found)


def _stalls(view: GangView) -> tuple[Event, ...]:
    """That the program is stalled, or reports again."""
    gang, stall = view.gang, view.gang.stall
    if stall is not None:
        if gang.restarting or gang.reported_ns <= stall.since_ns:
            return ()
        ended = JobStallEnded(
            job_id=gang.job_id,
            tenant=gang.tenant,
            generation=gang.generation,
            since_ns=stall.since_ns,
            ts_event_ns=view.now_ns,
        )
        return (ended,)
    if not view.quiet():
        return ()
    stalled = JobStalled(
        job_id=gang.job_id,
        tenant=gang.tenant,
        generation=gang.generation,
        since_ns=gang.reported_ns,
        on_stall=gang.run.on_stall or OnStall.ALARM,
        ts_event_ns=view.now_ns,
    )
    return (stalled,)


def _why_restarted(gang: Gang) -> str:
    stall = gang.stall
    quiet = f" for {(stall.ts_event_ns - stall.since_ns) // NS_PER_S} s" if stall else ""
    return f"the program reported nothing{quiet}"


def _exit(view: GangView) -> JobExited | None:
    """The end of a job's program, None where it goes on or that cannot be said yet."""
    gang, ends = view.gang, view.ends()
    if len(ends) == len(gang.members) and all(end.exit_code == 0 for end in ends.values()):
        return _exited(view, 0, "")
    if gang.restarting:
        return _exited(view, STALLED, _why_restarted(gang))
    failure = view.first_failure()
    if failure is None or not _failed_whole(view) or _unsure(view):
        return None
    return _exited(view, failure.exit_code, failure.detail)


def _failed_whole(view: GangView) -> bool:
    """Whether a program failed, and every member has ended; of none the word was lost."""
    stopped = view.facts.stopped == view.gang.generation
    return view.failed() and all(
        view.end_of(member) is not None or (stopped and view.ended_unheard(member))
        for member in view.gang.members
    )


def _unsure(view: GangView) -> bool:
    """Whether a failure may yet turn out to be an instance that was taken away."""
    if not _failed_whole(view):
        return False
    last_s = max(end.at_s for end in view.ends().values())
    return any(
        view.facts.last_heard_s(member) < last_s + view.times.heartbeat_s / 2
        for member in view.gang.members
    )


def _exited(view: GangView, exit_code: int, detail: str) -> JobExited:
    return JobExited(
        job_id=view.gang.job_id,
        tenant=view.gang.tenant,
        generation=view.gang.generation,
        exit_code=exit_code,
        detail=detail,
        ts_event_ns=view.now_ns,
    )


def _formed(view: GangView) -> GenerationFormed | None:
    gang, facts = view.gang, view.facts
    if gang.awaits_retry or view.now_ns < gang.not_before_ns or not view.complete():
        return None
    if any(facts.running(name) != 0 for name in gang.held):
        return None
    others = (name for name in facts.agents if name not in gang.held)
    if any(facts.running(name) and not view.out_of_reach(name) for name in others):
        return None
    if gang.generation and view.now_s < facts.formed_s + view.times.heartbeat_s:
        # A program that ends at once and wants to go on is not started without a pause.
        return None
    stayed = [name for name in gang.members if name in gang.held]
    came = [name for name in gang.held if name not in stayed]
    return GenerationFormed(
        job_id=gang.job_id,
        tenant=gang.tenant,
        generation=gang.generation + 1,
        instance_ids=(*stayed, *came),
        detail=_why_formed(gang, came),
        ts_event_ns=view.now_ns,
    )


def _why_formed(gang: Gang, came: Sequence[str]) -> str:
    if not gang.generation:
        return "the first start"
    left = [name for name in gang.members if name not in gang.held]
    said = [f"{_names(left)} left"] if left else []
    if came:
        said.append(f"{_names(came)} came")
    if not said and gang.exited == gang.generation:
        said.append("a retry")
    return "; ".join(said) or "the program wants to go on"
