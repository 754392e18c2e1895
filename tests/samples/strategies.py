"""Hypothesis strategies for every mapped value, read off the dataclasses.

Types whose constructors refuse something have a line in `_constrained`; the rest needs none.
"""

import types
from dataclasses import MISSING, fields, is_dataclass, replace
from enum import Enum
from functools import cache
from typing import Union, get_args, get_origin, get_type_hints

from hypothesis import strategies as st

from spotline.application.allocation.messages import AllocateRequest, Alternative
from spotline.application.allocator.messages import (
    ComparisonRequest,
    ExitReport,
    JobQuery,
    PlanRequest,
    ProgressReport,
    Submission,
)
from spotline.application.configurator.messages import CompletionRequest
from spotline.domain.beliefs.probes import ProbeOdds, ProbeWorth
from spotline.domain.configuration.configuration import (
    PRECISIONS,
    Configuration,
    MeasuredRun,
    MethodOption,
    Prediction,
    RunOutcome,
)
from spotline.domain.configuration.provenance import JobConfiguration, ParameterOrigin
from spotline.domain.crowd.tenants import SlotFairness, TenantGain
from spotline.domain.jobs.draft import JobDraft
from spotline.domain.jobs.job import (
    WORK_UNITS,
    Checkpoint,
    Deadline,
    DeadlineKind,
    Job,
    OnLimit,
    Overheads,
    Throughput,
    Work,
)
from spotline.domain.jobs.lot import Lot
from spotline.domain.jobs.run import (
    DataReads,
    DataSet,
    EnvironmentVariable,
    Launcher,
    ProgressReading,
    ProgressSource,
    Run,
    RunPackage,
)
from spotline.domain.market.forecast import CountProbability, ForecastStep
from spotline.domain.market.law import PPB, MarketLaw, StateSpace
from spotline.domain.market.offering import (
    MOST_PRICE_MICRO_USD,
    BillingRules,
    Count,
    Disks,
    Offering,
    Quote,
    Reservation,
)
from spotline.domain.market.slot_quote import SlotQuote
from spotline.domain.placement.graph import Link, Region
from spotline.domain.placement.pipeline import RegionShare
from spotline.domain.placement.submission import Pipeline
from spotline.domain.policies.answer import Move, SpotWorth, Yielded
from spotline.domain.units import PPM

INT64 = st.integers(-(2**63), 2**63 - 1)
NATURAL = st.integers(0, 2**63 - 1)
SHARE = st.integers(0, PPM)
POSITIVE = st.integers(1, 2**63 - 1)
PRICE = st.integers(1, MOST_PRICE_MICRO_USD)
NO_PRICE = st.integers(0, MOST_PRICE_MICRO_USD)
TEXT = st.text(max_size=8)
NAME = st.text(min_size=1, max_size=8)
FINITE = st.floats(allow_nan=False, allow_infinity=False)
NOT_NEGATIVE = st.floats(min_value=0, allow_infinity=False)
SECONDS = st.integers(0, 10**6)

_SCALARS = {int: INT64, float: FINITE, str: TEXT, bool: st.booleans(), bytes: st.binary(max_size=8)}
_NAMED = {"job_id", "tenant", "offering_id", "command_id", "request_digest", "law_id", "table_id"}


_LAWS = tuple(
    MarketLaw(
        space=StateSpace(level_starts=levels, age_starts=(1,), price_centres_ppm=(-5, 400_000)),
        level_counts=tuple(range(0, 7 * len(levels), 7)),
        run_ppb=run,
        price_ppb=(PPB, 0, 1, PPB - 1),
    )
    for levels, run in (((0,), (PPB,)), ((0, 3), (0, PPB, 400_000_000, 600_000_000)))
)


@cache
def values(value_type):
    """A strategy for a mapped dataclass."""
    constrained = _constrained()
    if value_type in constrained:
        return constrained[value_type]
    return st.builds(value_type, **_members(value_type))


def _members(value_type, **given):
    hints = get_type_hints(value_type)
    members = {}
    for member in fields(value_type):
        if member.name in given:
            members[member.name] = given[member.name]
        elif member.name in _NAMED and member.default is MISSING:
            members[member.name] = NAME
        else:
            members[member.name] = _of(hints[member.name])
    return members


def _of(hint):
    if get_origin(hint) is tuple:
        return st.lists(_of(get_args(hint)[0]), max_size=3).map(tuple)
    if get_origin(hint) in (Union, types.UnionType):
        inner = next(a for a in get_args(hint) if a is not types.NoneType)
        return st.none() | _of(inner)
    if is_dataclass(hint):
        return values(hint)
    if issubclass(hint, Enum):
        return st.sampled_from(list(hint))
    return _SCALARS[hint]


@cache
def _constrained():
    """Strategies of types that refuse some values."""

    def build(value_type, **given):
        return st.builds(value_type, **_members(value_type, **given))

    count_probability = build(
        CountProbability, instances=NATURAL, probability_ppm=st.integers(0, PPM)
    )
    steps = st.lists(st.integers(0, PPM), min_size=0, max_size=3).map(sorted)
    step = st.builds(
        ForecastStep,
        spot_price_micro_usd=POSITIVE,
        counts=steps.map(
            lambda cuts: tuple(
                CountProbability(instances=index, probability_ppm=high - low)
                for index, (low, high) in enumerate(zip([0, *cuts], [*cuts, PPM], strict=True))
            )
        ),
    )
    count = st.deferred(lambda: build(Count, instances=NATURAL))
    return {
        CountProbability: count_probability,
        ForecastStep: step,
        Lot: build(Lot, spot=NATURAL, on_demand=NATURAL),
        Move: build(Move, overhead_s=NATURAL, cost_micro_usd=NATURAL),
        Yielded: build(Yielded, spot=POSITIVE),
        SpotWorth: build(SpotWorth, micro_usd_per_instance_hour=NATURAL),
        ProbeOdds: build(
            ProbeOdds,
            run_state=NATURAL,
            **dict.fromkeys(("granted_ppm", "risk_if_granted_ppm", "risk_if_refused_ppm"), SHARE),
        ),
        ProbeWorth: build(ProbeWorth, instances=POSITIVE, gain_micro_usd=NATURAL),
        TenantGain: build(TenantGain, got_micro_usd=NATURAL, wished_micro_usd=NATURAL),
        SlotFairness: st.deferred(lambda: build(SlotFairness, cost_micro_usd=NATURAL)),
        Alternative: st.deferred(
            lambda: build(Alternative, migrate_s=NATURAL, move_cost_micro_usd=NATURAL)
        ),
        Count: count,
        Quote: st.deferred(
            lambda: (
                build(
                    Quote,
                    spot_price_micro_usd=PRICE,
                    on_demand_price_micro_usd=PRICE,
                    placement_score=st.just(0),
                    scored_ns=st.just(0),
                )
                | build(
                    Quote,
                    spot_price_micro_usd=PRICE,
                    on_demand_price_micro_usd=PRICE,
                    placement_score=st.integers(1, 10),
                    scored_ns=NATURAL,
                )
            )
        ),
        SlotQuote: st.deferred(
            lambda: build(
                SlotQuote,
                age_s=NATURAL,
                quarantined_spot_price_micro_usd=NO_PRICE,
                quarantined_on_demand_price_micro_usd=NO_PRICE,
                listed_spot_price_micro_usd=NO_PRICE,
                listed_on_demand_price_micro_usd=NO_PRICE,
            )
        ),
        Offering: st.deferred(
            lambda: build(
                Offering,
                gpus_per_instance=POSITIVE,
                notice_lead_s=st.none() | NATURAL,
                **dict.fromkeys(("provider", "region", "zone", "instance_type"), NAME),
            )
        ),
        Disks: st.builds(Disks, gb=st.integers(1, 9), micro_usd_per_gb_month=st.integers(1, 10**9)),
        BillingRules: st.builds(BillingRules, least_s=NATURAL, free_if_taken_within_s=NATURAL),
        Reservation: st.builds(
            Reservation,
            instances=POSITIVE,
            ends_ns=NATURAL,
            sunk_price_micro_usd=NATURAL,
        )
        | st.builds(
            Reservation,
            instances=st.integers(1, 10**6),
            ends_ns=NATURAL,
            sunk_price_micro_usd=st.integers(1, 10**6),
            plan=NAME,
            plan_micro_usd_per_hour=st.integers(10**12, 2**63 - 1),
        ),
        Job: st.deferred(_jobs),
        AllocateRequest: st.deferred(
            lambda: build(AllocateRequest, slot_s=st.just(600), offset_s=st.integers(0, 599))
        ),
        ComparisonRequest: st.deferred(lambda: build(ComparisonRequest, slot_s=POSITIVE)),
        JobQuery: st.builds(
            lambda query, place: replace(query, page_token=query.token_after(place)),
            build(JobQuery, page_size=NATURAL, page_token=st.just("")),
            TEXT,
        ),
        ExitReport: build(ExitReport, generation=NATURAL),
        PlanRequest: st.deferred(
            lambda: build(
                PlanRequest,
                slot_s=POSITIVE,
                offerings=st.lists(values(Offering), min_size=1, max_size=2).map(tuple),
            )
        ),
        MarketLaw: st.sampled_from(_LAWS),
        ProgressReport: build(
            ProgressReport,
            done=NOT_NEGATIVE,
            ts_event_ns=NATURAL,
            generation=NATURAL,
            checkpointed=st.none() | st.just(0.0),
            **_RATED,
        ),
        Submission: st.deferred(
            lambda: (
                build(Submission, draft=st.none(), job=values(Job))
                | build(Submission, job=st.none(), draft=values(JobDraft))
            )
        ),
        CompletionRequest: st.deferred(lambda: build(CompletionRequest, most_options=NATURAL)),
        MethodOption: build(MethodOption, name=NAME),
        Throughput: build(Throughput, table=st.lists(NOT_NEGATIVE, max_size=3).map(tuple)),
        Configuration: st.deferred(
            lambda: build(
                Configuration,
                precision=st.sampled_from(PRECISIONS),
                options=_OPTIONS,
                model_parameters=NATURAL,
                **dict.fromkeys(("model_name", "gpu_model"), NAME),
                **dict.fromkeys(
                    ("gpus", "nodes", "tokens_per_sample", "batch_size", "expert_parallel"),
                    POSITIVE,
                ),
            )
        ),
        MeasuredRun: st.deferred(
            lambda: (
                build(MeasuredRun, outcome=st.just(RunOutcome.SUCCEEDED), **_MEASURED)
                | build(MeasuredRun, **{**_MEASURED, "tokens_per_s": st.just(0.0)})
            )
        ),
        Prediction: build(
            Prediction,
            low_tokens_per_s=st.floats(1e-3, 1),
            tokens_per_s=st.floats(1, 1e3),
            high_tokens_per_s=st.floats(1e3, 1e6),
            success_probability=st.floats(0, 1),
        ),
        Region: build(
            Region,
            region_id=NAME,
            gpus=NATURAL,
            **dict.fromkeys(
                ("rent_usd_per_gpu_hour", "gpu_kw", "interruptions_per_hour"), NOT_NEGATIVE
            ),
        ),
        Link: build(
            Link,
            source=st.just("a"),
            destination=NAME.filter(lambda name: name != "a"),
            bytes_per_s=NOT_NEGATIVE,
            egress_usd_per_gb=NOT_NEGATIVE,
        ),
        RegionShare: build(RegionShare, gpus=POSITIVE),
        Pipeline: build(
            Pipeline,
            client_request_id=NAME,
            compute_s=st.floats(1e-6, 1e6),
            activation_bytes=st.just(0.0) | st.floats(1e-9, 1e6),
            stage_overhead_s=st.just(0.0) | st.floats(1e-9, 1e6),
            min_gpus=st.integers(1, 8),
            max_gpus=st.integers(8, 1024),
            **dict.fromkeys(
                ("iterations", "microbatches", "checkpoint_interval_iterations"),
                st.integers(1, 10**9),
            ),
            **dict.fromkeys(
                (
                    "deadline_s",
                    "checkpoint_gb",
                    "restart_s",
                ),
                st.floats(0, 1e6),
            ),
        ),
        ParameterOrigin: build(
            ParameterOrigin, parameter=NAME, low=st.floats(-1e9, 0), high=st.floats(0, 1e9)
        ),
        Run: _RUNS,
        JobDraft: st.deferred(
            lambda: build(
                JobDraft,
                tokens=st.floats(min_value=0, exclude_min=True, allow_infinity=False),
                deadline=values(Job).map(lambda job: job.deadline),
                precision=st.sampled_from(("", *PRECISIONS)),
                options=_OPTIONS,
                allowed_counts=st.sets(st.integers(1, 6)).map(sorted).map(tuple),
                throughputs=values(Job).map(lambda job: job.throughputs),
                checkpoint=st.none() | values(Job).map(lambda job: job.checkpoint),
                overheads=st.none() | values(Job).map(lambda job: job.overheads),
                run=st.none() | values(Run),
                **dict.fromkeys(("client_request_id", "model_name"), NAME),
                **dict.fromkeys(
                    (
                        "model_parameters",
                        "value_micro_usd",
                        "gpus",
                        "tokens_per_sample",
                        "batch_size",
                        "expert_parallel",
                        "budget_micro_usd",
                        "egress_budget_micro_usd",
                        "retries",
                    ),
                    NATURAL,
                ),
            )
        ),
    }


_RATED = {"rate_per_hour": st.floats(1e-3, 1e9), "instances": POSITIVE}
_MEASURED = {
    "stack": NAME,
    **dict.fromkeys(("tokens_per_s", "peak_memory_gb", "runtime_s"), NOT_NEGATIVE),
}
_OPTIONS = (
    st.dictionaries(NAME, TEXT, max_size=2)
    .map(lambda named: sorted(named.items()))
    .map(lambda pairs: tuple(MethodOption(name=name, value=value) for name, value in pairs))
)


_RUNS = st.builds(
    Run,
    command=st.lists(NAME, min_size=1, max_size=2).map(tuple),
    setup=TEXT,
    image=TEXT,
    package=st.none()
    | st.builds(
        RunPackage,
        sha256=st.sampled_from(("0" * 64, "a" * 64)),
        uri=NAME,
        size_bytes=NATURAL,
    ),
    environment=st.dictionaries(st.sampled_from(("A", "B")), TEXT).map(
        lambda named: tuple(
            EnvironmentVariable(name=name, value=value) for name, value in sorted(named.items())
        )
    ),
    secrets=st.sets(st.sampled_from(("S", "T"))).map(sorted).map(tuple),
    launcher=st.none() | st.sampled_from(Launcher),
    ranks_per_instance=NATURAL,
    progress=st.none()
    | st.just(ProgressReading())
    | st.just(ProgressReading(source=ProgressSource.OUTPUT, pattern="(?P<done>.)"))
    | st.builds(ProgressReading, source=st.just(ProgressSource.FILE), pattern=NAME, path=NAME),
    data=st.lists(
        st.builds(DataSet, uri=NAME, size_gb=NOT_NEGATIVE, reads=st.sampled_from(DataReads)),
        max_size=2,
    ).map(tuple),
    grace_s=NATURAL,
)


@st.composite
def _jobs(draw):
    start_ns = draw(st.integers(-(10**18), 10**18))
    at_ns = start_ns + draw(st.integers(10**9, 10**18))
    kind = draw(st.sampled_from(DeadlineKind))
    late_ns = 0 if kind is DeadlineKind.HARD else draw(st.integers(1, 10**18))
    counts = tuple(sorted(draw(st.sets(st.integers(1, 6), min_size=1))))
    shrink_s, grow_s, migrate_s = sorted(draw(st.tuples(SECONDS, SECONDS, SECONDS)))
    linear = st.builds(
        Throughput,
        offering=NAME,
        alpha=st.floats(1e-3, 1e6),
        beta=st.floats(0, 1e6),
    )
    table = st.builds(
        Throughput,
        offering=NAME,
        table=st.lists(st.floats(1e-3, 1e6), min_size=6, max_size=7).map(tuple),
    )
    return Job(
        **{name: draw(NAME) for name in ("job_id", "tenant", "client_request_id")},
        retries=draw(NATURAL),
        on_limit=draw(st.none() | st.sampled_from(OnLimit)),
        awaits_exit=draw(st.booleans()),
        name=draw(TEXT),
        work=Work(
            amount=draw(st.floats(min_value=0, exclude_min=True, allow_infinity=False)),
            unit=draw(st.sampled_from(WORK_UNITS)),
        ),
        deadline=Deadline(
            kind=kind,
            at_ns=at_ns,
            expires_ns=at_ns + late_ns,
            after_s=draw(SECONDS),
            expires_after_s=draw(SECONDS),
        ),
        run=draw(st.none() | _RUNS),
        value_from_quote=draw(st.booleans()),
        on_demand_quote_micro_usd=draw(NATURAL),
        egress_budget_micro_usd=draw(NATURAL),
        value_micro_usd=draw(NATURAL),
        start_ns=start_ns,
        allowed_counts=counts,
        throughputs=tuple(draw(st.lists(linear | table, min_size=1, max_size=2))),
        topology=draw(_of(get_type_hints(Job)["topology"])),
        checkpoint=Checkpoint(
            interval_s=draw(SECONDS),
            save_s=draw(SECONDS),
            size_gb=draw(NOT_NEGATIVE),
            location=draw(TEXT),
        ),
        overheads=Overheads(
            launch_s=draw(SECONDS),
            grow_s=grow_s,
            shrink_s=shrink_s,
            migrate_s=migrate_s,
            interrupted_s=draw(SECONDS),
        ),
        offerings=tuple(draw(st.lists(TEXT, max_size=2))),
        budget_micro_usd=draw(NATURAL),
        configuration=draw(st.none() | values(JobConfiguration)),
    )
