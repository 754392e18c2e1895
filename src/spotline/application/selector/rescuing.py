"""Which offerings have on-demand left for the rescue of one more job with a hard deadline."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from spotline.application.selector.job_run import JobRun
from spotline.application.selector.options import SelectorOptions
from spotline.application.selector.state import SelectorState
from spotline.domain.jobs.job import DeadlineKind
from spotline.domain.jobs.rescue import Rescue, RescueClaims, rescue_of


@dataclass(slots=True, kw_only=True)
class RescueRoom:
    """Stock of on-demand by offering, where it is counted, and what rescues may need of it.

    Every job counts on the stock of its home alone: without this, all that live there count on
    the same instances. Of a job that may move in a slot, a place is kept wherever it may go.
    """

    stock: Mapping[str, int]
    claims: dict[str, RescueClaims] = field(default_factory=dict)

    @classmethod
    def of(
        cls, state: SelectorState, running: Sequence[JobRun], options: SelectorOptions
    ) -> RescueRoom:
        """What running jobs leave as a slot opens; without `rescue_room` nothing is counted."""
        counted = {
            quoted.quote.offering_id: quoted.quote.on_demand_available.instances
            for quoted in state.current.quotes
            if quoted.quote.on_demand_available.known
        }
        room = cls(stock=counted if options.rescue_room and options.competing else {})
        for run in running:
            room.claim(state, run, run.offering_id)
        return room

    def claim(self, state: SelectorState, run: JobRun, offering_id: str) -> None:
        """Keep what a job may need at an offering."""
        if offering_id not in self.stock:
            return
        rescue = _rescue(state, run, offering_id)
        if rescue is not None:
            if offering_id not in self.claims:
                self.claims[offering_id] = RescueClaims(state.slot)
            self.claims[offering_id].add(run.job.job_id, rescue)

    def full_for(
        self, state: SelectorState, run: JobRun, among: Collection[str] | None = None
    ) -> frozenset[str]:
        """Where a job must not count on a rescue: others may need what there is in stock.

        It is looked for `among` these offerings, or all.
        """
        if run.job.deadline.kind is not DeadlineKind.HARD:
            return frozenset()
        full = []
        for offering_id in self.stock if among is None else among:
            offering, instances = state.offerings.get(offering_id), self.stock.get(offering_id)
            if offering is None or instances is None:
                continue
            if run.job.throughput_on(offering_id, offering.instance_type) is None:
                continue
            rescue = _rescue(state, run, offering_id)
            if rescue is None:
                continue
            claims = self.claims.get(offering_id)
            if claims is None:
                claims = RescueClaims(state.slot)
            if not claims.has_room(run.job.job_id, rescue, instances):
                full.append(offering_id)
        return frozenset(full)


def _rescue(state: SelectorState, run: JobRun, offering_id: str) -> Rescue | None:
    program = state.program_of(run.job, offering_id)
    away = run.launched and offering_id != run.offering_id
    return rescue_of(
        program,
        state.slot,
        program.deadline_slots - (run.elapsed_slots(state.slot) if run.first_slot >= 0 else 0),
        program.work_quanta - run.state.progress_quanta,
        run.job.overheads.migrate_s if away else 0,
    )
