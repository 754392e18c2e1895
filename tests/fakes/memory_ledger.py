"""A ledger in memory that keeps the port's promises; it outlives the actuators that use it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from spotline.application.cloud_actuator.agreed_mark import AgreedMark
from spotline.application.cloud_actuator.ports import (
    Admission,
    LedgerEntry,
    LedgerIntent,
    Owner,
    OwnerFenced,
)
from spotline.domain.events.event import Event
from spotline.domain.ledger.billing import HeldInterval
from spotline.domain.ledger.instance_life import InstanceLife, LifeState, Transition
from spotline.domain.ledger.intents import HeldInstance, Intent, IntentResult
from spotline.domain.ledger.job_records import JobRecord


@dataclass
class LedgerMemory:
    """What is written, by any owner."""

    epoch: int = 0
    intents: list[Intent] = field(default_factory=list)
    results: dict[tuple[str, int], IntentResult] = field(default_factory=dict)
    instances: list[dict[str, Any]] = field(default_factory=list)
    charges: list[Any] = field(default_factory=list)
    answers: dict[str, tuple[Event, ...]] = field(default_factory=dict)
    slots: set[int] = field(default_factory=set)
    lives: dict[str, InstanceLife] = field(default_factory=dict)
    transitions: list[Transition] = field(default_factory=list)
    cooldowns: dict[Any, Any] = field(default_factory=dict)
    taken: set[str] = field(default_factory=set)
    admissions: dict[str, Admission] = field(default_factory=dict)
    job_records: dict[str, JobRecord] = field(default_factory=dict)
    agreed: AgreedMark | None = None


class MemoryLedger:
    """Implements `Ledger`; making one takes the owner over."""

    def __init__(self, memory: LedgerMemory, owner_name: str) -> None:
        self.memory = memory
        memory.epoch += 1
        self.owner = Owner(name=owner_name, epoch=memory.epoch)

    def close(self) -> None:
        """Nothing to let go of."""

    async def answers(self, call_key: str) -> tuple[Event, ...] | None:
        return self.memory.answers.get(call_key)

    async def intents(self, command_ids: Sequence[str]) -> Mapping[str, LedgerIntent]:
        return {
            intent.command_id: LedgerIntent(intent=intent, result=self._result(intent))
            for intent in self.memory.intents
            if intent.command_id in set(command_ids)
        }

    async def pending(self) -> Sequence[Intent]:
        return [intent for intent in self.memory.intents if self._result(intent) is None]

    async def held(self) -> Sequence[HeldInstance]:
        return [row["held"] for row in self.memory.instances if row["end"] is None]

    async def intervals(self, slot: int, slot_s: int) -> Sequence[HeldInterval]:
        found = []
        for row in self.memory.instances:
            start, end, held = row["start"], row["end"], row["held"]
            if start[0] > slot or (end is not None and end[0] < slot):
                continue
            found.append(
                HeldInterval(
                    job_id=held.job_id,
                    tenant=held.tenant,
                    quota_pool=held.quota_pool,
                    offering_id=held.offering_id,
                    capacity_type=held.capacity_type,
                    start_s=start[1] if start[0] == slot else 0,
                    end_s=end[1] if end is not None and end[0] == slot else slot_s,
                )
            )
        return found

    async def spend_by_job(self) -> Mapping[str, int]:
        spent: dict[str, int] = {}
        for charge in self.memory.charges:
            job_id = charge.cost.job_id
            spent[job_id] = spent.get(job_id, 0) + charge.cost.cost_micro_usd
        return dict(sorted(spent.items()))

    async def launches_since(self, ts_ns: int) -> int:
        return sum(
            launch.permitted
            for intent in self.memory.intents
            if intent.ts_ns > ts_ns
            for launch in intent.launches
        )

    async def lives(self) -> Sequence[InstanceLife]:
        lives = self.memory.lives.values()
        return [life for life in lives if life.state is not LifeState.ENDED]

    async def lives_of(self, subjects: Sequence[str]) -> Mapping[str, InstanceLife]:
        return {one: self.memory.lives[one] for one in subjects if one in self.memory.lives}

    async def cooldowns(self) -> Sequence[Any]:
        return [self.memory.cooldowns[key] for key in sorted(self.memory.cooldowns, key=str)]

    async def taken(self, event_ids: Sequence[str]) -> frozenset[str]:
        return frozenset(event_ids) & self.memory.taken

    async def latest_ns(self) -> int:
        times = [transition.at_ns for transition in self.memory.transitions]
        return max([0, *times, *(intent.ts_ns for intent in self.memory.intents)])

    async def latest_slot(self) -> int:
        return max([-1, *self.memory.slots, *(intent.slot for intent in self.memory.intents)])

    async def check_epoch(self) -> None:
        if self.memory.epoch != self.owner.epoch:
            raise OwnerFenced(self.owner, self.memory.epoch)

    async def admit(self, admissions: Sequence[Admission]) -> None:
        await self.check_epoch()
        for admission in admissions:
            self.memory.admissions.setdefault(admission.job_id, admission)
            if admission.record is not None:
                self.memory.job_records.setdefault(admission.record.event_id, admission.record)

    async def note_jobs(self, records: Sequence[JobRecord]) -> None:
        for record in records:
            self.memory.job_records.setdefault(record.event_id, record)

    async def job_records(self) -> Sequence[JobRecord]:
        return list(self.memory.job_records.values())

    async def admitted_ids(self) -> Sequence[str]:
        return sorted(self.memory.admissions)

    async def charges_since(self, slot: int) -> Sequence[Any]:
        return [charge for charge in self.memory.charges if charge.cost.slot >= slot]

    async def agreed(self) -> AgreedMark | None:
        return self.memory.agreed

    async def note_agreed(self, mark: AgreedMark) -> None:
        self.memory.agreed = mark

    async def raise_epoch(self, epoch: int) -> None:
        await self.check_epoch()
        self.memory.epoch = max(self.memory.epoch, epoch)
        self.owner = replace(self.owner, epoch=self.memory.epoch)

    async def write_intents(self, intents: Sequence[Intent]) -> None:
        await self.check_epoch()
        known = {(intent.command_id, intent.attempt) for intent in self.memory.intents}
        self.memory.intents += [
            intent for intent in intents if (intent.command_id, intent.attempt) not in known
        ]

    async def record(self, entry: LedgerEntry) -> None:
        await self.check_epoch()
        memory = self.memory
        if entry.call_key:
            if entry.call_key in memory.answers:
                return
            memory.answers[entry.call_key] = entry.answers
            memory.slots.add(entry.slot)
        for result in entry.results:
            memory.results[result.intent.command_id, result.intent.attempt] = result
        for launch in entry.launched:
            instance = launch.instance
            held = HeldInstance(
                instance_id=instance.instance_id,
                job_id=instance.job_id,
                tenant=instance.tenant,
                quota_pool=instance.quota_pool,
                offering_id=instance.offering_id,
                capacity_type=instance.capacity_type,
                order=len(memory.instances) + 1,
            )
            assert all(row["held"].instance_id != held.instance_id for row in memory.instances)
            row = {"held": held, "start": (launch.slot, launch.offset_s), "end": None, "reason": ""}
            memory.instances.append(row)
        for end in entry.ended:
            for row in memory.instances:
                if row["held"].instance_id == end.instance_id and row["end"] is None:
                    row["end"], row["reason"] = (end.slot, end.offset_s), end.reason
        for row in memory.instances:
            if row["held"].instance_id in entry.noticed:
                row["held"] = replace(row["held"], noticed_slot=entry.slot)
        memory.charges += entry.charges
        for transition in entry.transitions:
            memory.transitions.append(transition)
            memory.lives[transition.life.subject] = transition.life
        for cooldown in entry.cooldowns:
            memory.cooldowns[cooldown.scope, cooldown.key] = cooldown
        for key in entry.warmed:
            memory.cooldowns.pop(key, None)
        memory.taken |= set(entry.taken)

    def _result(self, intent: Intent) -> IntentResult | None:
        return self.memory.results.get((intent.command_id, intent.attempt))
