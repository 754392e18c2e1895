"""Where a job is to run, first and perhaps later: the one rule of the selector and of simulation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType

from spotline.application.selector.home_prospects import HomeProspects
from spotline.domain.events.market import SlotOpened
from spotline.domain.jobs.job import Job, Throughput
from spotline.domain.jobs.program import JobProgram, compile_program
from spotline.domain.jobs.stay import claim_on, stay_on
from spotline.domain.market.offering import Count, Offering
from spotline.domain.remembered import Same

# Slots of the past that say how much spot an offering carries.
RECENT_SLOTS = 48
# Offerings beside its home that a job gets value tables for: each is a table to build and to keep.
MOST_ALTERNATIVES = 3


@dataclass(frozen=True, slots=True)
class Load:
    """Instances that others take of an offering, in the mean and at most."""

    mean: int = 0
    most: int = 0

    @classmethod
    def always(cls, instances: int) -> Load:
        """As many at any time."""
        return cls(mean=instances, most=instances)

    def __add__(self, other: Load) -> Load:
        return Load(mean=self.mean + other.mean, most=self.most + other.most)


_NOBODY: Mapping[str, Load] = MappingProxyType({})


def best_offering(
    job: Job,
    offerings: Mapping[str, Offering],
    opened: SlotOpened,
    past: Sequence[SlotOpened],
    taken: Mapping[str, Load] = _NOBODY,
    full: Set[str] = frozenset(),
    prospects: HomeProspects | None = None,
) -> str | None:
    """Return the offering whose recent past promises the cheapest work, None where none can run.

    A reservation costs nothing, and is taken only where its instances are not claimed by running
    jobs and do all the work before it ends.

    Work that spot would not have carried is priced on demand; what running jobs may take is not
    counted as available. An offering on which on-demand alone cannot meet the deadline is taken
    only where all are like that. Ties go to the smaller id.

    Parameters
    ----------
    opened, past
        The slot of the job's arrival and those before it, oldest first; the last `RECENT_SLOTS` of
        them count.
    taken
        What jobs that run already take, by offering id.
    full
        Offerings whose on-demand stock others may need: there it cannot meet the deadline.
    prospects
        What the job costs by the laws of spot, None where homes go by the past alone.
    """
    for _, _, offering_id in _ranks(
        job, offerings, opened, past, taken, full=full, prospects=prospects
    ):
        if has_room(offerings, offering_id, job, taken):
            return offering_id
    return None


def has_room(
    offerings: Mapping[str, Offering], offering_id: str, job: Job, taken: Mapping[str, Load]
) -> bool:
    """Whether the claims of other jobs leave room for that of this one; off reservations, always.

    Parameters
    ----------
    taken
        Instances that other jobs claim, by offering id. The money of a savings plan is claimed by
        all of its offerings together.
    """
    reservation = offerings[offering_id].reservation
    if reservation is None:
        return True
    claim = claim_on(reservation, job.allowed_counts)
    if taken.get(offering_id, Load()).most + claim > reservation.instances:
        return False
    if not reservation.plan:
        return True
    claimed = sum(
        load.most * other.sunk_price_micro_usd
        for name, load in taken.items()
        if name in offerings
        and (other := offerings[name].reservation) is not None
        and other.plan == reservation.plan
    )
    return claimed + claim * reservation.sunk_price_micro_usd <= reservation.plan_micro_usd_per_hour


def leaves_for(
    job: Job,
    offerings: Mapping[str, Offering],
    opened: SlotOpened,
    past: Sequence[SlotOpened],
    done_quanta: int,
) -> str | None:
    """Return where a job goes whose reservation is over, None where nothing else is.

    Parameters as above; the job has done `done_quanta` of its work. Not to another reservation:
    what other jobs claim of that is theirs.
    """
    ranks = _ranks(job, offerings, opened, past, _NOBODY, done_quanta)
    free = (offering_id for *_, offering_id in ranks if offerings[offering_id].reservation is None)
    return next(free, None)


def other_offerings(
    job: Job,
    home: str,
    offerings: Mapping[str, Offering],
    opened: SlotOpened,
    past: Sequence[SlotOpened],
    taken: Mapping[str, Load] = _NOBODY,
    *,
    full: Set[str] = frozenset(),
    prospects: HomeProspects | None = None,
) -> tuple[str, ...]:
    """Return where else than at `home` a job could run, best first; parameters as above.

    Only offerings on which on-demand alone can meet the deadline count. `job.topology` says how
    far apart instances may be that are held at a time: a job holds one offering at a time, so that
    it is kept wherever the job goes; `job.offerings` is what bounds where that is.
    """
    ranks = _ranks(job, offerings, opened, past, taken, full=full, prospects=prospects)
    fit = [offering_id for late, _, offering_id in ranks if not late and offering_id != home]
    return tuple(fit[:MOST_ALTERNATIVES])


def _ranks(
    job: Job,
    offerings: Mapping[str, Offering],
    opened: SlotOpened,
    past: Sequence[SlotOpened],
    taken: Mapping[str, Load],
    done_quanta: int = 0,
    *,
    full: Set[str] = frozenset(),
    prospects: HomeProspects | None = None,
) -> list[tuple[bool, float, str]]:
    """(Too slow for the deadline, cost per unit of work, id) of every offering, best first.

    Reservations that are too small or end too early are left out.
    """
    recent = _recent_of(tuple(Same(slot) for slot in (*past[-RECENT_SLOTS:], opened)))
    filled = recent.filled(
        load
        for name, load in taken.items()
        # Jobs on a reservation need no spot.
        if name in offerings and offerings[name].reservation is None
    )
    # Offerings of one type and notice run a job alike.
    programs: dict[tuple[Same[Throughput], int | None], JobProgram] = {}
    ranks: list[tuple[bool, float, str]] = []
    for slot_quote in opened.quotes:
        quote = slot_quote.quote
        offering = offerings.get(quote.offering_id)
        if offering is None:
            continue
        throughput = job.throughput_on(offering.offering_id, offering.instance_type)
        if throughput is None:
            continue
        alike = Same(throughput), offering.notice_lead_s
        if alike not in programs:
            programs[alike] = compile_program(
                job,
                throughput,
                slot_s=opened.slot_s,
                first_slot_start_ns=opened.ts_event_ns,
                notice_lead_s=offering.notice_lead_s,
            )
        program = programs[alike]
        wanted, load = job.max_instances, taken.get(quote.offering_id)
        carried = recent.share_beside(quote.offering_id, load, wanted, filled)
        price = (
            carried * quote.spot_price_micro_usd + (1.0 - carried) * quote.on_demand_price_micro_usd
        )
        if prospects is not None:
            price = prospects.price(quote, program, done_quanta, beside(load, filled), price)
        per_work = price * wanted / throughput.rate_per_hour(wanted)
        left = program.work_quanta - done_quanta
        needed = program.slots_on_demand(left, program.launch_s)
        if offering.reservation is not None:
            stay = stay_on(offering.reservation, program, opened.ts_event_ns, work_quanta=left)
            if stay is None:
                continue
            needed = stay.slots
        late = needed > program.deadline_slots or quote.offering_id in full
        ranks.append((late, per_work, quote.offering_id))
    return sorted(ranks)


class RecentSpot:
    """How much of what jobs want spot would have carried in slots of the past, oldest first."""

    def __init__(self, slots: Iterable[SlotOpened]) -> None:
        self._counts: dict[str, list[Count]] = {}
        self._shares: dict[tuple[str, int, int], float] = {}
        for slot in slots:
            for slot_quote in slot.quotes:
                seen = self._counts.setdefault(slot_quote.quote.offering_id, [])
                seen.append(slot_quote.quote.spot_available)
        self._slots = max(map(len, self._counts.values()), default=0)
        self._there = sum(
            count.instances for seen in self._counts.values() for count in seen if count.known
        )

    def filled(self, loads: Iterable[Load]) -> float:
        """Share of all spot that jobs need in the mean; at most 1."""
        needed = self._slots * sum(load.mean for load in loads)
        return min(1.0, needed / self._there) if self._there else 1.0

    def share_beside(
        self, offering_id: str, load: Load | None, wanted: int, filled: float
    ) -> float:
        """Share of `wanted` instances beside what others take.

        Others take turns as far as they must: where all spot is needed, what counts is the mean;
        where hardly any is, each takes the most that it may.
        """
        if load is None:
            return self.share(offering_id, 0, wanted)
        if load.mean == load.most:
            return self.share(offering_id, load.most, wanted)
        turns = self.share(offering_id, load.mean, wanted)
        return turns - (1.0 - filled) * (turns - self.share(offering_id, load.most, wanted))

    def share(self, offering_id: str, taken: int, wanted: int) -> float:
        """Share of `wanted` instances beside those `taken` by others; 1/2 where unknown."""
        key = offering_id, taken, wanted
        found = self._shares.get(key)
        if found is None:
            shares = [
                min(1.0, max(0, count.instances - taken) / wanted) if count.known else 0.5
                for count in self._counts.get(offering_id, ())
            ]
            found = self._shares[key] = sum(shares) / len(shares) if shares else 0.5
        return found


def beside(load: Load | None, filled: float) -> int:
    """What others take of an offering, as in `RecentSpot.share_beside`; rounded."""
    if load is None:
        return 0
    return round(load.mean + (1.0 - filled) * (load.most - load.mean))


# Jobs that arrive in one slot look at the same past.
@lru_cache(maxsize=4)
def _recent_of(slots: tuple[Same[SlotOpened], ...]) -> RecentSpot:
    return RecentSpot(slot.value for slot in slots)
