"""Up to where a log and a ledger were seen to agree about jobs and spend: so far none is read again.

A mark is kept in the ledger, whose rows are only ever added to. So that of an older copy of the
ledger holds for that copy, and whether it holds for the log is seen by the entry that it names.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace

from spotline.application.cloud_actuator.retelling import LogOfJobs
from spotline.contracts.envelope import StoredEntry
from spotline.domain.events.capacity import CostAccrued
from spotline.domain.events.event import Event
from spotline.domain.events.lifecycle import JobSubmitted
from spotline.domain.ledger.job_records import JobRecord

_NO_SLOT = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class AgreedMark:
    """Where log and ledger were seen to agree.

    Parameters
    ----------
    created, incarnation
        Of the log.
    seq, stored_ns
        The last entry that need not be read again, and when the broker stored it.
    records
        So many of the first job records are in the log.
    slot, charges, micro_usd
        The charges of slots before this one are: so many, that sum up to so much.
    unrecorded
        So many admitted jobs had no record of their submission, and were known to the log.
    """

    created: str
    incarnation: int
    seq: int
    stored_ns: int
    records: int
    slot: int
    charges: int
    micro_usd: int
    unrecorded: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ChargesToCome:
    """Charges that the actuator will say by itself.

    `held` are the slots whose instances it charges, `copied` those in which it charges copies.
    """

    held: frozenset[int] = frozenset()
    copied: frozenset[int] = frozenset()

    def covers(self, cost: CostAccrued) -> bool:
        """Whether this is one of them."""
        return cost.slot in (self.held if cost.instances else self.copied)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOfJobs:
    """What a ledger holds of jobs and costs, records in its order."""

    records: Sequence[JobRecord] = ()
    costs: Sequence[CostAccrued] = ()
    admitted: Collection[str] = ()

    @property
    def is_empty(self) -> bool:
        """Whether it holds nothing, so that no log can lack any of it."""
        return not (self.records or self.costs or self.admitted)

    @property
    def unrecorded(self) -> int:
        """How many admitted jobs have no record of their submission."""
        told = {one.job_id for one in self.records if isinstance(one.event, JobSubmitted)}
        return len(set(self.admitted) - told)

    def without(self, coming: ChargesToCome) -> HeldOfJobs:
        """The same without charges that are still to come."""
        return replace(self, costs=[cost for cost in self.costs if not coming.covers(cost)])

    def before(self, slot: int) -> tuple[int, int]:
        """How many charges there are of slots before one, and their sum in micro-USD."""
        costs = [cost.cost_micro_usd for cost in self.costs if cost.slot < slot]
        return len(costs), sum(costs)


@dataclass(slots=True)
class ReadOfLog:
    """What was read of a log: all of it, or what comes behind a mark."""

    log: LogOfJobs = field(default_factory=LogOfJobs)
    # Of each entry its seq, when it was stored, and the latest slot of its costs.
    _places: list[tuple[int, int, int]] = field(default_factory=list)

    def fold(self, entry: StoredEntry, events: Iterable[tuple[Event, str]]) -> None:
        """Take in an entry, with the events that it holds and their ids."""
        slot = _NO_SLOT
        for event, event_id in events:
            self.log.fold(event, event_id)
            if isinstance(event, CostAccrued):
                slot = max(slot, event.slot)
        self._places.append((entry.seq, entry.stored_ns, slot))

    def last_before(self, slot: int) -> tuple[int, int] | None:
        """The last entry, and when it was stored, before the first with a cost of `slot` or later."""
        found = None
        for seq, stored_ns, costs_slot in self._places:
            if costs_slot >= slot:
                break
            found = seq, stored_ns
        return found


def is_all_told(mark: AgreedMark, held: HeldOfJobs, tail: LogOfJobs) -> bool:
    """Whether the log has all that the ledger holds, by what is behind the mark of each.

    False says no more than that the whole log is to be looked at: a record may be of an entry
    before the mark that was taken up after it.
    """
    if len(held.records) < mark.records or held.unrecorded != mark.unrecorded:
        return False
    if held.before(mark.slot) != (mark.charges, mark.micro_usd):
        return False
    if any(record.event_id not in tail.event_ids for record in held.records[mark.records :]):
        return False
    costs = Counter(cost for cost in held.costs if cost.slot >= mark.slot)
    return all(count <= tail.costs[cost] for cost, count in costs.items())


def mark_of(
    held: HeldOfJobs, read: ReadOfLog, *, created: str, incarnation: int, before: AgreedMark | None
) -> AgreedMark | None:
    """Where they agree now that nothing is missing; None where no entry can be named.

    Parameters
    ----------
    before
        The mark behind which it was read, None where all was.
    """
    # More is charged in the last slot: its costs are looked at again.
    slot = max((cost.slot for cost in held.costs), default=0)
    place = read.last_before(slot)
    if place is None:
        return before
    charges, micro_usd = held.before(slot)
    return AgreedMark(
        created=created,
        incarnation=incarnation,
        seq=place[0],
        stored_ns=place[1],
        records=len(held.records),
        slot=slot,
        charges=charges,
        micro_usd=micro_usd,
        unrecorded=held.unrecorded,
    )
