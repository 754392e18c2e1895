"""How the selector behaves: what a log's manifest says of it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from spotline.domain.beliefs.count_paths import FEEDBACK_PATHS, MOST_PATHS
from spotline.domain.beliefs.probes import ProbeRation
from spotline.domain.beliefs.stock_laws import named_stock
from spotline.domain.crowd.tenants import shares_of
from spotline.domain.limits.spending import Spending, spending_of
from spotline.domain.market.prior_laws import named_priors, shipped_priors
from spotline.domain.selection.rules import DEFAULT_RULE, RULES
from spotline.domain.units import micro_usd_from_usd

MOST_FAIRNESS = 1_000.0
# Jobs that bid together in a slot: with a thousand, clearing takes twice as long as serving them in turn.
MOST_BIDDERS = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectorOptions:
    """How the selector behaves; equal options give equal decisions.

    `rehearsals` jobs are replayed on the market seen so far before the first realised ones can
    teach anything (0: start from equal weights); `history_slots` bounds how far back they reach.
    `most_revisions` bounds how often one slot is decided again for jobs' sake. Jobs that are not `competing` are
    each offered the whole market: a simulation's choice, never a service's.

    `decay` is AdaHedge's, `horizon_jobs` the K of exponentiated gradient (0: unknown). Its
    utilities are scaled by `utility_floor_usd` and `utility_ceiling_usd`; where both are 0, by each
    job's own worst cost and value, and then it maximises shares of those, not dollars.
    `warm_start` is what `SavedWeights.to_json` wrote, empty to start from equal weights: the
    text, not a path, so that a log's manifest says all that a decision depends on.

    With `moves` a job may leave its offering where value tables say that it pays. Copying a
    checkpoint then costs `egress_usd_per_gb` (10^9 bytes) to another region,
    `zone_egress_usd_per_gb` to another zone of one, nothing within a zone. The defaults are common
    list prices between a large provider's own places; what leaves a provider may cost five times
    as much, and other continents differ.

    With `limits` jobs are judged forward and have a limit each (`domain/limits/judgement.py`); one
    that winds down keeps what it holds for `limit_grace_s` seconds. `spending` are limits on what is
    spent in a time, as `Spending.to_json` writes them (empty: none). Logs from before 0.3.0,
    simulations and benchmarks decide without.

    With `shared_tables` jobs of a class look into one value table, every job has one, and none is
    named before it was announced; what other jobs hold is not in its name, and without shadow prices
    crowds do worse with it (ADR 0062).

    With `clearing` the bids of all jobs are cleared together (ADR 0061); logs from before 0.3.0 serve
    jobs in order of slack. With `shadow_prices` value tables count spot of the slots to come at what
    it was worth to all of them of late (ADR 0066); it needs `clearing`. With `couples_limits` it clears
    under quotas and the limit on what all spend (ADR 0071); without, what was cleared is cut to them.

    With `rescue_room` a job with a hard deadline lives only where the stock of on-demand is enough to save
    it beside all others that count on it, if there is such a place (ADR 0075).

    With `rescues_soft_deadlines` so does a job with a soft one, where the stock is enough for it beside the rescues
    of all jobs; hard deadlines count on what hard ones leave, as before (ADR 0085). It needs `rescue_room`.

    With `strict_reclaims` a bid counts as interrupted wherever the market takes spot back and the job would
    hold less of it than before, as the selector will see it, also where the job gives it up by itself (ADR 0082).

    With `nets_soft_deadlines` the safety net also guards soft deadlines of jobs whose table counts on a
    shadow price, where others take of the spot there is: what it waits for may go to them, slot after
    slot (ADR 0082).

    With `prices_by_count` a shadow price is the mean over the counts of spot that a law knows: an instance
    costs the more the fewer there are (ADR 0091).

    With `prices_ahead` shadow prices also count on what spot is expected to be worth in the slots to come, the more
    the fewer bids there were of late (ADR 0092).

    With `spreads_homes` what running jobs take of a place, where another is to live, lies between what they need in
    the mean and all that they may take: the nearer to that, the more spot nobody needs (ADR 0085).

    With `homes_by_law` a home is where the job is expected to cost least by the laws of spot from where they
    stand now, at what spot was worth of late (ADR 0086). More tables are kept, and a job that has none at
    home gets one as soon as there is room.

    With `tables_on_the_way` a job that has moved to where it has no value table is given one before the next slot
    (ADR 0097); without, as older logs have it, one slot later. It needs `homes_by_law`.

    With `stays_elsewhere` a job that finds less spot at home than it may hold also bids for spot which nobody
    holds where it has no value table: it is worth what it spares as long as it lasts (ADR 0086).

    With `keeps_spot` a job yields spot that it holds only where others gain clearly more by it (ADR 0086).

    Where more than `most_bidders` jobs run they do not bid: they are served in turn, least slack first, keep the
    spot that they hold and go to where spot is idle (ADR 0089). 0, as in older logs: all bid.

    With `late_on_spot` a job whose soft deadline has passed runs on spot at home that no other job has use for,
    where that is worth more than on demand (ADR 0090).

    With `brief_search` CP-SAT has a tenth of the work to find a better clearing (ADR 0082).

    With `even_cells` value tables of a job of its own, not of a class, count work left in cells that slots
    are whole numbers of, where there is room for them (ADR 0088); logs from before 0.3.0 had none.

    `fairness` is the most that a tenant's bids count against another's where bids are cleared (1: all
    count the same): whose jobs saved a smaller share against on-demand counts for more (ADR 0069).
    `tenant_shares` says how much a tenant is due to save against others: `research=2`, others 1.

    `beliefs` is the SHA-256 of the prior laws that spot counts which nobody publishes are believed by
    (ADR 0068); empty, as in logs from before 0.3.0: plenty is assumed until a launch is refused. With
    `score_beliefs` placement scores move them, as far as launches have shown what scores tell (ADR 0098).
    `stock_beliefs` is that of the priors of on-demand stock that nobody publishes (ADR 0074); empty,
    the default: a launch waits no longer than one of the past did. With `belief_paths` feedback is the mean over so
    many paths of believed counts; 0: that of one path which all jobs share.

    With `probes` offerings whose counts are believed are asked for spot that is ended at once, where knowing
    is worth more than it costs (ADR 0084): at most `probes` in a slot, one of an offering in
    `probe_rest_slots`, for no more than `probe_usd_per_hour`. 0, the default and as in older logs: none.

    Raises
    ------
    ValueError
        An option is out of its range, or there is no such rule.
    """

    rule: str = DEFAULT_RULE
    decay: float = 1.0
    horizon_jobs: int = 0
    utility_floor_usd: float = 0.0
    utility_ceiling_usd: float = 0.0
    warm_start: str = ""
    forecast_timeout_s: float = 10.0
    rehearsals: int = 24
    rehearsals_per_job: int = 6
    history_slots: int = 192
    most_revisions: int = 8
    spot_firm: bool = True
    competing: bool = True
    moves: bool = True
    egress_usd_per_gb: float = 0.02
    zone_egress_usd_per_gb: float = 0.01
    limits: bool = False
    limit_grace_s: int = 600
    spending: str = ""
    shared_tables: bool = False
    clearing: bool = False
    fairness: float = 1.0
    tenant_shares: str = ""
    beliefs: str = ""
    score_beliefs: bool = False
    shadow_prices: bool = False
    couples_limits: bool = False
    stock_beliefs: str = ""
    belief_paths: int = 0
    rescue_room: bool = False
    strict_reclaims: bool = False
    nets_soft_deadlines: bool = False
    brief_search: bool = False
    even_cells: bool = False
    spreads_homes: bool = False
    rescues_soft_deadlines: bool = False
    homes_by_law: bool = False
    tables_on_the_way: bool = False
    stays_elsewhere: bool = False
    keeps_spot: bool = False
    late_on_spot: bool = False
    prices_by_count: bool = False
    prices_ahead: bool = False
    most_bidders: int = 0
    probes: int = 0
    probe_rest_slots: int = 2
    probe_usd_per_hour: float = 1.0

    def __post_init__(self) -> None:
        if self.rule not in RULES:
            raise ValueError(f"rule must be one of {', '.join(sorted(RULES))}, was {self.rule!r}")
        if not 0 < self.decay <= 1:
            raise ValueError(f"decay must lie in (0, 1], was {self.decay}")
        if not 0 < self.forecast_timeout_s < math.inf:
            raise ValueError(
                f"forecast_timeout_s must be finite and > 0, was {self.forecast_timeout_s}"
            )
        for name in ("utility_floor_usd", "utility_ceiling_usd"):
            if not math.isfinite(getattr(self, name)):
                raise ValueError(f"{name} must be finite, was {getattr(self, name)}")
        for name in (
            *("horizon_jobs", "rehearsals", "rehearsals_per_job", "history_slots"),
            *("most_revisions", "egress_usd_per_gb", "zone_egress_usd_per_gb", "limit_grace_s"),
            *("probes", "probe_usd_per_hour", "most_bidders"),
        ):
            if not 0 <= getattr(self, name) < math.inf:
                raise ValueError(f"{name} must be finite and >= 0, was {getattr(self, name)}")
        if self.probe_rest_slots < 1:
            raise ValueError(f"probe_rest_slots must be >= 1, was {self.probe_rest_slots}")
        if not 1 <= self.fairness <= MOST_FAIRNESS:
            raise ValueError(f"fairness must lie in 1..{MOST_FAIRNESS}, was {self.fairness}")
        try:
            shares_of(self.tenant_shares)
        except ValueError as error:
            raise ValueError(f"tenant_shares {error}") from error
        spending_of(self.spending)
        named_priors(self.beliefs)
        named_stock(self.stock_beliefs)
        if not 0 <= self.belief_paths <= MOST_PATHS:
            raise ValueError(f"belief_paths must lie in 0..{MOST_PATHS}, was {self.belief_paths}")

    @property
    def is_fair(self) -> bool:
        """Whether bids of tenants count by what they had."""
        return self.clearing and self.fairness > 1

    @property
    def probe_ration(self) -> ProbeRation:
        """How often offerings are asked."""
        return ProbeRation(
            most_per_slot=self.probes,
            rest_slots=self.probe_rest_slots,
            micro_usd_per_hour=micro_usd_from_usd(self.probe_usd_per_hour),
        )

    @property
    def limits_on_spending(self) -> Spending:
        """What `spending` says."""
        return _spending_of(self.spending)


_spending_of = lru_cache(maxsize=16)(spending_of)


CROWD_FIELDS = (
    "clearing",
    "shadow_prices",
    "couples_limits",
    "rescue_room",
    "strict_reclaims",
    "nets_soft_deadlines",
    "brief_search",
    "spreads_homes",
    "rescues_soft_deadlines",
    "homes_by_law",
    "tables_on_the_way",
    "stays_elsewhere",
    "keeps_spot",
    "late_on_spot",
    "prices_by_count",
    "prices_ahead",
)
"""What is on wherever counts are shown, and rests on them."""


def crowd_values(*, on: bool) -> dict[str, Any]:
    """All that serves jobs together, by the option's name, or none of it."""
    return {**dict.fromkeys(CROWD_FIELDS, on), "most_bidders": MOST_BIDDERS if on else 0}


def for_crowds(options: SelectorOptions, *, on: bool = True) -> SelectorOptions:
    """The options with all that serves jobs together, or without any of it."""
    return replace(options, **crowd_values(on=on))


def where_uncounted(options: SelectorOptions) -> SelectorOptions:
    """The options on a market that publishes no counts: these are believed, nothing relies on them."""
    return replace(
        for_crowds(options, on=False),
        spot_firm=False,
        beliefs=shipped_priors().sha256,
        score_beliefs=True,
        belief_paths=FEEDBACK_PATHS,
    )
