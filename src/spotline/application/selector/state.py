"""What the selector knows, and what can be read from it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum

from spotline.application.allocation.measuring import Measuring
from spotline.application.allocation.tasks import program_of
from spotline.application.allocation.value_tables import evened, surcharged, table_spec
from spotline.application.selector.job_run import JobRun, RunPhase
from spotline.application.selector.options import SelectorOptions
from spotline.domain.beliefs.probes import ProbeBook
from spotline.domain.beliefs.spot_beliefs import SpotBeliefs
from spotline.domain.beliefs.stock_beliefs import StockBeliefs
from spotline.domain.crowd.arrivals import Arrivals
from spotline.domain.crowd.shadow_prices import ShadowPrices
from spotline.domain.events.capacity import CapacityReported
from spotline.domain.events.event import Event
from spotline.domain.events.forecast import ForecastIssued
from spotline.domain.events.limits import LimitSet
from spotline.domain.events.market import SlotOpened
from spotline.domain.forecasting.trust import ForecastTrust
from spotline.domain.jobs.job import Job
from spotline.domain.jobs.program import JobProgram
from spotline.domain.jobs.rescue import is_at_stake
from spotline.domain.limits.breaker import Breaker
from spotline.domain.limits.freezes import Freezes
from spotline.domain.limits.raised import LimitAt
from spotline.domain.limits.spend_book import SpendBook
from spotline.domain.limits.spending import SpentIn
from spotline.domain.market.law import StateSpace, last_run_state
from spotline.domain.market.named_law import NamedLaw
from spotline.domain.market.offering import CapacityType, Offering
from spotline.domain.market.stock import stock_terms
from spotline.domain.modes import Mode
from spotline.domain.policies.answer import DecisionReason
from spotline.domain.policies.contention import ResidualCapacity
from spotline.domain.selection.learner import Draw, Learner
from spotline.domain.solvers.table_spec import TableSpec
from spotline.domain.units import NS_PER_S


class SlotPhase(Enum):
    """What the current slot waits for."""

    WAITING_FORECAST = "waiting_forecast"
    ALLOCATING = "allocating"
    AWAITING_CAPACITY = "awaiting_capacity"
    SETTLED = "settled"


@dataclass(slots=True, kw_only=True)
class SelectorState:
    """Everything the selector knows: a fold over the log.

    `draws` holds how each admitted job got its policy, until its feedback has come. `laws` and
    `counts` are by offering: the law learned last, and the recent spot counts, this slot's last;
    `stock` likewise that of on-demand, where an unknown one is plenty and a refusal shows none.
    `measuring` is what programs have shown of themselves, `freezes` where nothing is bought,
    `breaker` which instances are unwell.
    `refused` is where the cloud, or a limit of all, has refused a launch of this revision, `caps` what
    that leaves all jobs together in this slot; `limited` and `own_caps` the same of one job, where a
    limit of its own or of its tenant did, or a hard deadline needs the on-demand that it holds.
    `spend` is what was spent by slot, tenant and capacity type, `launched` when how many instances
    were asked for; both only as far back, and only where, limits need them.
    `limits_set` are limits that people have set in the place of stated ones.
    `mode` is how far decisions of the log reach. `announced` are the ids of shared tables that were
    built once.
    `fairness_cost_micro_usd` is what fairness between tenants cost in this revision.
    `reclaimed` are offerings of which the market took spot back as the slot opened, with `clearing`.
    `beliefs` are those of spot counts that nobody publishes, None where plenty is assumed,
    `stock_beliefs` those of on-demand stock, None where only the past of it counts.
    `probes` are those that were sent of late. `shadow` are the shadow prices, None where tables count on none, and go by
    what spot there is with `prices_by_count`. `arrivals` are jobs that came of late, None where prices
    count on none to come.
    `settling` is the first report with which the latest settled slot had settled.
    `heard` is the slot as it was opened, `opened` the same with the quotes that it lacked.
    """

    learner: Learner
    trust: ForecastTrust
    competing: bool = True
    shared_tables: bool = False
    even_cells: bool = False
    prices_by_count: bool = False
    announced: set[str] = field(default_factory=set)
    clearing: bool = False
    rescue_room: bool = False
    stays_elsewhere: bool = False
    beliefs: SpotBeliefs | None = None
    probes: ProbeBook = field(default_factory=ProbeBook)
    stock_beliefs: StockBeliefs | None = None
    shadow: ShadowPrices | None = None
    arrivals: Arrivals | None = None
    settling: CapacityReported | None = None
    reclaimed: frozenset[str] = frozenset()
    mode: Mode = Mode.LIVE
    offerings: dict[str, Offering] = field(default_factory=dict)
    slot: int = -1
    heard: SlotOpened | None = None
    opened: SlotOpened | None = None
    forecast: ForecastIssued | None = None
    forecast_reason: DecisionReason = DecisionReason.POLICY
    phase: SlotPhase = SlotPhase.SETTLED
    revision: int = 0
    job_revisions: int = 0
    offset_s: int = 0
    trigger: Event | None = None
    order: tuple[str, ...] = ()
    affected: tuple[str, ...] = ()
    refused: dict[tuple[str, CapacityType], bool] = field(default_factory=dict)
    caps: dict[tuple[str, CapacityType], int] = field(default_factory=dict)
    limited: dict[tuple[str, str, CapacityType], bool] = field(default_factory=dict)
    own_caps: dict[tuple[str, str, CapacityType], int] = field(default_factory=dict)
    runs: dict[str, JobRun] = field(default_factory=dict)
    draws: dict[str, Draw] = field(default_factory=dict)
    history: list[tuple[SlotOpened, ForecastIssued | None]] = field(default_factory=list)
    laws: dict[str, NamedLaw] = field(default_factory=dict)
    counts: dict[str, list[int]] = field(default_factory=dict)
    stock: dict[str, list[int]] = field(default_factory=dict)
    measuring: Measuring = field(default_factory=Measuring)
    freezes: Freezes = field(default_factory=Freezes)
    breaker: Breaker = field(default_factory=Breaker)
    spend: SpendBook = field(default_factory=SpendBook)
    launched: list[tuple[int, int]] = field(default_factory=list)
    limits_set: dict[LimitAt, LimitSet] = field(default_factory=dict)
    fairness_cost_micro_usd: int = 0

    def tenant_of(self, job_id: str) -> str | None:
        """Whose a job is, None where it is not known."""
        run = self.runs.get(job_id)
        return None if run is None else run.job.tenant

    def running(self) -> list[JobRun]:
        """Admitted jobs that are not closed, by job id."""
        return [
            self.runs[job_id]
            for job_id in sorted(self.runs)
            if self.runs[job_id].phase is RunPhase.RUNNING
        ]

    @property
    def current(self) -> SlotOpened:
        """The slot that is open.

        Raises
        ------
        ValueError
            None has opened yet.
        """
        if self.opened is None:
            raise ValueError("no slot has opened yet")
        return self.opened

    @property
    def forecast_used(self) -> bool:
        """Whether this slot is decided with its forecast."""
        return self.forecast_reason is DecisionReason.POLICY

    def in_order(self) -> list[str]:
        """Running jobs in the order they are served: least slack first, then job id.

        With `rescue_room` hard deadlines that are at stake come before all others.
        Those that end, wait for a retry, are finishing or have reached a limit are not served.
        """
        served = [
            run
            for run in self.running()
            if run.ending is None
            and not run.waits_at(self.current.ts_event_ns)
            and not run.is_finishing
            and not run.is_at_limit
        ]
        keyed = []
        for run in served:
            slack, job_id = run.slack_slots(self.slot), run.job.job_id
            at_stake = self.rescue_room and is_at_stake(run.compiled, slack)
            keyed.append((not at_stake, slack, job_id))
        return [job_id for _, _, job_id in sorted(keyed)]

    def served_again(self) -> list[str]:
        """Jobs that do not hold what they should, and are served, in their order."""
        served = set(self.in_order())
        return [job_id for job_id in self.affected if job_id in served]

    def own_cap(self, job_id: str, offering_id: str, kind: CapacityType) -> int | None:
        """The most that a limit of its own or of its tenant leaves a job; None: no such limit."""
        return self.own_caps.get((job_id, offering_id, kind))

    def residual(self) -> ResidualCapacity:
        """What the slot's quotes offer, less what refusals have shown not to be there."""
        residual = ResidualCapacity(self.current.quotes)
        for (offering_id, capacity_type), held in sorted(
            self.caps.items(), key=lambda item: (item[0][0], item[0][1].value)
        ):
            spot = capacity_type is CapacityType.SPOT
            residual.cap(offering_id, spot=held if spot else None, on_demand=None if spot else held)
        return residual

    def offered(self, job_id: str) -> tuple[int, int]:
        """Spot and on-demand left for a job after those before it, when the slot opened."""
        return self.offers()(job_id)

    def offers(self) -> Callable[[str], tuple[int, int]]:
        """What `offered` says of each job, found for all of them in one pass; valid for now."""
        residual = self.residual()
        if self.clearing and self.competing:
            return self._offers_beside_others(residual)
        before: dict[str, tuple[int, int]] = {}

        def left(run: JobRun) -> tuple[int, int]:
            return residual.spot(run.offering_id), residual.on_demand(run.offering_id)

        for job_id in self.order if self.competing else ():
            run = self.runs[job_id]
            before.setdefault(job_id, left(run))
            if run.phase is RunPhase.RUNNING:
                residual.take_what_is_left(run.lots(run.target))
        return lambda job_id: before.get(job_id) or left(self.runs[job_id])

    def _offers_beside_others(self, residual: ResidualCapacity) -> Callable[[str], tuple[int, int]]:
        """What each job could have had beside all others, as bids were cleared: no order counts."""
        taken: dict[str, tuple[int, int]] = {}
        for run in self.running():
            taken[run.job.job_id] = residual.take_at(run.offering_id, run.target)

        def beside(job_id: str) -> tuple[int, int]:
            offering_id = self.runs[job_id].offering_id
            own = taken.get(job_id, (0, 0))
            return residual.spot(offering_id) + own[0], residual.on_demand(offering_id) + own[1]

        return beside

    def lost_spot(self, run: JobRun, spot: int) -> bool:
        """Whether a job whose spot falls to this as the slot opens was interrupted.

        Where bids are cleared, spot is only taken back where jobs held more than there is left.
        """
        if self.clearing:
            return run.offering_id in self.reclaimed and run.state.holding.spot > spot
        return run.state.holding.spot > self.offered(run.job.job_id)[0]

    def over_held(self) -> frozenset[str]:
        """Offerings of which jobs held more spot, as the slot opened, than there is."""
        held: dict[str, int] = {}
        for run in self.running():
            held[run.offering_id] = held.get(run.offering_id, 0) + run.state.holding.spot
        residual = self.residual()
        return frozenset(
            offering_id for offering_id, spot in held.items() if spot > residual.spot(offering_id)
        )

    def run_state(self, offering_id: str, space: StateSpace, wanted: int = 0) -> int:
        """Where an offering's spot is in the open slot, on the states of a law.

        Where counts are believed, that is the likeliest state with what is left, or with as many as
        are `wanted` of it.
        """
        if self.beliefs is not None:
            left = self.residual().spot(offering_id)
            least = min(left, wanted) if wanted else left
            believed = self.beliefs.run_state(offering_id, least, left, space)
            if believed is not None:
                return believed
        counts = self.counts.get(offering_id, [])
        # An unknown count is taken for plenty, as planners do.
        return last_run_state(space, counts) if counts else space.run_states - 1

    def on_demand_stock(self, job: Job, offering_id: str) -> tuple[int, int]:
        """A job's `reserve_slots` and `rescue_instances` on an offering, by its stock, for now."""
        return self._stock_of(job.allowed_counts, offering_id, ahead=False)

    def stock_ahead(self, allowed_counts: tuple[int, ...], offering_id: str) -> tuple[int, int]:
        """The same for a plan, which goes on once a launch has shown what there is."""
        return self._stock_of(allowed_counts, offering_id, ahead=True)

    def _stock_of(
        self, allowed_counts: tuple[int, ...], offering_id: str, *, ahead: bool
    ) -> tuple[int, int]:
        if self.is_over(offering_id):
            return 0, 0
        reserve, rescue = stock_terms(self.stock.get(offering_id, []), allowed_counts)
        if self.stock_beliefs is not None:
            reserve = max(reserve, self.stock_beliefs.reserve_slots(offering_id, ahead=ahead))
        return reserve, rescue

    def is_over(self, offering_id: str) -> bool:
        """Whether an offering is a reservation that does not cover the open slot whole."""
        reservation = self.offerings[offering_id].reservation
        if reservation is None:
            return False
        until_ns = self.current.ts_event_ns + self.current.slot_s * NS_PER_S
        return reservation.instances_until(until_ns) == 0

    def table_spec(self, named: NamedLaw, offering_id: str, program: JobProgram) -> TableSpec:
        """The value table of a job that arrives now, for what running jobs leave of an offering."""
        quotes = {sq.quote.offering_id: sq.quote for sq in self.current.quotes}
        spec = table_spec(
            program,
            named,
            self.offerings[offering_id],
            first_slot_start_ns=self.current.ts_event_ns,
            on_demand_price_micro_usd=quotes[offering_id].on_demand_price_micro_usd,
            on_demand_available=self.residual().on_demand(offering_id),
            taken=None if self.shared_tables else self._taken_of(offering_id),
            on_demand_reserve_slots=self.stock_ahead(program.allowed_counts, offering_id)[0],
        )
        if self.even_cells:
            spec = evened(spec, program, named.law)
        if self.spot_surcharge(offering_id):
            spec = self.priced(spec, offering_id, program, named)
        return spec

    def priced(
        self, spec: TableSpec, offering_id: str, program: JobProgram, named: NamedLaw
    ) -> TableSpec:
        """The value table that counts on the shadow price that is published."""
        surcharge, by_count = self.spot_surcharge(offering_id), self.prices_by_count
        return surcharged(spec, surcharge, program, named.law, by_count=by_count)

    def spot_surcharge(self, offering_id: str) -> int:
        """The shadow price of spot, as tables that are asked for now count on it."""
        return 0 if self.shadow is None else self.shadow.published.get(offering_id, 0)

    def _taken_of(self, offering_id: str) -> int:
        """Spot that running jobs are to hold of an offering."""
        if self.shadow is not None:
            # Their bids are in the shadow price: what they hold may be this job's if it is worth more.
            return 0
        running = self.running() if self.competing else ()
        return sum(run.target.spot for run in running if run.offering_id == offering_id)

    def program_of(self, job: Job, offering_id: str) -> JobProgram:
        """A job compiled for an offering, on its own slot grid or, if it is arriving, from now."""
        run = self.runs.get(job.job_id)
        start_ns = self.current.ts_event_ns
        if run is not None and run.phase is not RunPhase.PENDING:
            start_ns = run.first_slot_start_ns
            job = run.planned(job)
        offering = self.offerings[offering_id]
        return program_of(
            job,
            offering_id,
            offering.instance_type,
            self.current.slot_s,
            start_ns,
            self.lead_s(job, offering_id),
        )

    def lead_s(self, job: Job, offering_id: str) -> int | None:
        """The notice that a job is planned with on an offering."""
        return self.measuring.lead_s(job, self.offerings[offering_id].notice_lead_s)

    def spent_in(self, spans_s: Iterable[int]) -> SpentIn:
        """What was spent in times that end with the open slot, its own costs left out.

        A time that begins inside a slot is taken to begin with it. The actuator counts the same:
        the ledger's charges, which it bills by.
        """
        slot_s = self.current.slot_s
        return {
            span_s: self.spend.spent_since(self.slot - max(0, -(-span_s // slot_s) - 1))
            for span_s in spans_s
        }


def state_at_start(options: SelectorOptions, learner: Learner) -> SelectorState:
    """What a selector with these options knows before the first event: no market, no jobs."""
    return SelectorState(
        learner=learner,
        trust=ForecastTrust(),
        competing=options.competing,
        shared_tables=options.shared_tables,
        even_cells=options.even_cells,
        prices_by_count=options.prices_by_count,
        clearing=options.clearing,
        rescue_room=options.rescue_room,
        stays_elsewhere=options.stays_elsewhere,
        beliefs=(
            SpotBeliefs(scores={} if options.score_beliefs else None) if options.beliefs else None
        ),
        stock_beliefs=StockBeliefs() if options.stock_beliefs else None,
        shadow=ShadowPrices() if options.shadow_prices else None,
        arrivals=Arrivals() if options.shadow_prices and options.prices_ahead else None,
    )
