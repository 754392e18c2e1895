"""What nobody who does not know the future could have had on the market that a job met."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from spotline.application.board.otherwise import OtherLives
from spotline.application.page.holdings import SPOT, JobPast
from spotline.domain.certificates.certificate import foresight_of
from spotline.domain.certificates.met import MetBound, bound_on_met
from spotline.domain.jobs.program import Holding, JobProgram
from spotline.domain.market.named_law import NamedLaw
from spotline.domain.solvers.table_terms import TableTerms
from spotline.domain.units import NS_PER_S, PPM

MOST_SLOTS = 400
"""The bound of a longer life takes too long to be worked out for a page."""

# Of what foresight is charged by, 4 bytes each: with fewer the ceiling is less tight, and as valid.
_MOST_ENTRIES = 3_000_000
_MOST_KEPT = 400


@lru_cache(maxsize=_MOST_KEPT)
def certified_bound(
    lives: OtherLives, named: NamedLaw, holdings: tuple[Holding, ...]
) -> MetBound | None:
    """Bound a life that is over; about a second, a minute where kernels are compiled for it.

    `holdings` is what the job held in each of its slots. None where it cannot be: it is too long, or what it was offered is not known to its deadline.
    """
    program, records = lives.program, lives.records
    if not 0 < program.deadline_slots <= min(len(records), MOST_SLOTS):
        return None
    terms = TableTerms(
        program=program,
        law=named.law,
        on_demand_price=records[0].on_demand_price,
        on_demand_available=records[0].on_demand_available,
    )
    return bound_on_met(foresight_of(terms, most_entries=_MOST_ENTRIES), records, holdings)


def held_in_slots(
    past: JobPast, begin_ns: int, program: JobProgram, slots: int
) -> tuple[Holding, ...]:
    """What a job held at the end of each of so many slots from its first.

    More than its program knows, such as while one instance replaces another, is cut to that.
    """
    slot_ns = program.slot_s * NS_PER_S
    spans = past.all_spans()
    found = []
    for slot in range(slots):
        last_ns = begin_ns + (slot + 1) * slot_ns - 1
        counts = {True: 0, False: 0}
        for span in spans:
            ends_ns = span.until_ns or past.closed_ns or last_ns + 1
            if span.from_ns <= last_ns < ends_ns:
                counts[span.paid == SPOT] += span.instances
        spot = min(counts[True], program.max_instances)
        found.append(Holding(spot=spot, on_demand=min(counts[False], program.max_instances - spot)))
    return tuple(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class CertifiedJob:
    """A job's value less cost beside the bounds on it, micro-USD."""

    job_id: str
    utility_micro_usd: int
    bound: MetBound

    @property
    def missing_micro_usd(self) -> int:
        """How far it was from what nobody exceeds, its luck left out."""
        return self.bound.missing_micro_usd(self.utility_micro_usd)


@dataclass(frozen=True, slots=True, kw_only=True)
class CertifiedSum:
    """Value less cost of all jobs that can be bounded, beside what nobody exceeds; micro-USD."""

    jobs: tuple[CertifiedJob, ...]
    untold: int = 0
    older: int = 0

    @property
    def utility_micro_usd(self) -> int:
        """What was earned."""
        return sum(job.utility_micro_usd for job in self.jobs)

    @property
    def luck_micro_usd(self) -> int:
        """What of it was luck: nothing in the mean."""
        return round(sum(job.bound.luck_micro_usd for job in self.jobs))

    @property
    def ceiling_micro_usd(self) -> int:
        """What whoever does not know the future cannot exceed, luck left out."""
        return round(sum(job.bound.ceiling_micro_usd for job in self.jobs))

    @property
    def clairvoyant_micro_usd(self) -> int:
        """What whoever knew all of the future could have had at most."""
        return round(sum(job.bound.clairvoyant_micro_usd for job in self.jobs))

    @property
    def missing_micro_usd(self) -> int:
        """How far they were from what nobody exceeds, luck left out."""
        return sum(job.missing_micro_usd for job in self.jobs)

    @property
    def reached_ppm(self) -> int | None:
        """What was earned without luck of the ceiling; None where that is not above 0."""
        ceiling = self.ceiling_micro_usd
        return None if ceiling <= 0 else PPM * (ceiling - self.missing_micro_usd) // ceiling
