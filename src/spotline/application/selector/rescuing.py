"""Which offerings have on-demand left for the rescue of one more job."""

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

    `claims` are those of hard deadlines; with `saves_soft`, `all_claims` are those of all jobs: a soft
    deadline counts on what hard ones and other soft ones leave, a hard one on what hard ones leave.
    Every job counts on the stock of its home alone: without this, all that live there count on
    the same instances. Of a job that may move in a slot, a place is kept wherever it may go.
    """

    stock: Mapping[str, int]
    saves_soft: bool = False
    all_claims: dict[str, RescueClaims] = field(default_factory=dict)
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
        room = cls(
            stock=counted if options.rescue_room and options.competing else {},
            saves_soft=options.rescues_soft_deadlines,
        )
        for run in running:
            room.claim(state, run, run.offering_id)
        return room

    def claim(self, state: SelectorState, run: JobRun, offering_id: str) -> None:
        """Keep what a job may need at an offering."""
        if offering_id not in self.stock:
            return
        rescue = self._rescue(state, run, offering_id)
        if rescue is None:
            return
        kept = [self.claims] if _is_hard(run) else []
        for claims in [*kept, self.all_claims] if self.saves_soft else kept:
            if offering_id not in claims:
                claims[offering_id] = RescueClaims(state.slot)
            claims[offering_id].add(run.job.job_id, rescue)

    def full_for(
        self, state: SelectorState, run: JobRun, among: Collection[str] | None = None
    ) -> frozenset[str]:
        """Where a job must not count on a rescue: others may need what there is in stock.

        It is looked for `among` these offerings, or all.
        """
        is_hard = _is_hard(run)
        if not is_hard and not self.saves_soft:
            return frozenset()
        full, counted = [], self.claims if is_hard else self.all_claims
        for offering_id in self.stock if among is None else among:
            offering, instances = state.offerings.get(offering_id), self.stock.get(offering_id)
            if offering is None or instances is None:
                continue
            if run.job.throughput_on(offering_id, offering.instance_type) is None:
                continue
            rescue = self._rescue(state, run, offering_id)
            if rescue is None:
                continue
            claims = counted.get(offering_id)
            if claims is None:
                claims = RescueClaims(state.slot)
            if not claims.has_room(run.job.job_id, rescue, instances):
                full.append(offering_id)
        return frozenset(full)

    def _rescue(self, state: SelectorState, run: JobRun, offering_id: str) -> Rescue | None:
        program = state.program_of(run.job, offering_id)
        if not program.hard and not self.saves_soft:
            return None
        away = run.launched and offering_id != run.offering_id
        return rescue_of(
            program,
            state.slot,
            program.deadline_slots - (run.elapsed_slots(state.slot) if run.first_slot >= 0 else 0),
            program.work_quanta - run.state.progress_quanta,
            run.job.overheads.migrate_s if away else 0,
        )


def _is_hard(run: JobRun) -> bool:
    return run.job.deadline.kind is DeadlineKind.HARD
