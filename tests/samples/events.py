"""One sample of every event, and the golden files that pin their bytes.

`python -m tests.samples.events` writes the files anew; do that only for events that are new.
"""

import base64
import hashlib
import json
from pathlib import Path

from spotline.contracts.codec import encode, json_of
from spotline.contracts.publishers import PUBLISHERS
from spotline.contracts.subjects import KINDS, subject_of
from spotline.domain.configuration.configuration import (
    Configuration,
    MeasuredRun,
    Method,
    MethodOption,
    RunOutcome,
)
from spotline.domain.events.agreement import (
    AgreementChecked,
    Disagreement,
    DisagreementKind,
    IncarnationBegun,
    OrphanFound,
    OrphanReapRequested,
    OrphanSettled,
)
from spotline.domain.events.allocation import (
    AllocationAnswered,
    AllocationDecided,
    CallOutcome,
    ShadowPricesUpdated,
)
from spotline.domain.events.capacity import (
    CapacityLost,
    CapacityReported,
    CapacitySignalled,
    CostAccrued,
    InstancesEnded,
    InterruptionKind,
    InterruptionNoticed,
    InterruptionWithdrawn,
    LaunchRefused,
    OfferingProbed,
    ProbeCommanded,
    ProvisioningCommanded,
    RefusalClass,
    SlotDecided,
)
from spotline.domain.events.forecast import ForecastIssued, ForecastOverdue
from spotline.domain.events.freeze import BuyingExcepted, BuyingFrozen, BuyingUnfrozen
from spotline.domain.events.knowledge import RunMeasured, ThroughputReestimated
from spotline.domain.events.law import MarketLawLearned, ValueTableReady, ValueTableRequested
from spotline.domain.events.lifecycle import (
    AdmissionRecorded,
    JobAdmitted,
    JobAdvanced,
    JobCancelled,
    JobClosed,
    JobExited,
    JobOutcome,
    JobProgressReported,
    JobQuoted,
    JobRetryScheduled,
    JobSubmitted,
    JobUpdated,
)
from spotline.domain.events.limits import (
    LimitAction,
    LimitKind,
    LimitReached,
    LimitSet,
    QuoteQuarantined,
)
from spotline.domain.events.market import MarketOpened, QuoteObserved, SlotOpened
from spotline.domain.events.modes import AccountModeSet
from spotline.domain.events.parking import (
    EntryParked,
    ParkedEntryDropped,
    ParkedEntryRetried,
)
from spotline.domain.events.placement import (
    LinkObserved,
    PipelineProvisioningCommanded,
    PipelineReleased,
    PipelineSubmitted,
    PlacementDecided,
    PlacementEnd,
    PlacementEnded,
    PlacementOutcome,
    RegionObserved,
)
from spotline.domain.events.selection import PolicyWeight, PolicyWeightsUpdated
from spotline.domain.events.statistics import MarketStatisticsIssued, PlatformStatisticsIssued
from spotline.domain.events.training import (
    AgentJoined,
    CheckpointCommitted,
    CheckpointFailed,
    CheckpointFault,
    CheckpointKind,
    GenerationFormed,
    JobHeard,
    JobSilent,
    JobStalled,
    JobStallEnded,
    NoticeAcknowledged,
    NoticeAction,
    TrainingRestarted,
)
from spotline.domain.jobs.job import (
    Checkpoint,
    Deadline,
    DeadlineKind,
    Job,
    Overheads,
    Throughput,
    Topology,
    Work,
)
from spotline.domain.jobs.lot import JobHolding, Lot
from spotline.domain.jobs.outlook import (
    JobOutlook,
    OutlookOffering,
    OutlookPolicy,
    OutlookStep,
)
from spotline.domain.jobs.run import OnStall
from spotline.domain.limits.freezes import Freeze, FreezeReason, FreezeScope
from spotline.domain.market.forecast import (
    CountProbability,
    ForecastScore,
    ForecastStep,
    OfferingForecast,
)
from spotline.domain.market.law import MarketLaw, StateSpace
from spotline.domain.market.named_law import NamedLaw
from spotline.domain.market.offering import (
    UNKNOWN_COUNT,
    CapacityType,
    Count,
    Offering,
    Provenance,
    Quote,
)
from spotline.domain.market.slot_quote import SlotQuote
from spotline.domain.modes import Mode
from spotline.domain.placement.graph import Link, Region
from spotline.domain.placement.pipeline import Placement, RegionShare
from spotline.domain.placement.submission import Pipeline
from spotline.domain.policies.answer import DecisionReason, JobAnswer, SpotWorth
from spotline.domain.selection.regret import SelectionRegret
from spotline.domain.solvers.table_spec import TableSpec
from spotline.domain.statistics.figures import (
    CountTime,
    DeadlineFigures,
    LatencyFigures,
    MarketFigures,
    PlatformFigures,
    PolicyFigures,
    PriceFigures,
    RegretFigures,
    SpendFigures,
)

GOLDEN = Path(__file__).parent.parent / "data" / "golden"

START_NS = 1_767_225_600_000_000_000  # 2026-01-01T00:00:00Z
OFFERING = Offering(
    offering_id="aws/us-east-1/use1-az4/p4d.24xlarge",
    provider="aws",
    account="research",
    region="us-east-1",
    zone="use1-az4",
    instance_type="p4d.24xlarge",
    gpu_model="A100",
    gpus_per_instance=8,
    quota_pool="aws/research/p",
)
QUOTE = Quote(
    offering_id=OFFERING.offering_id,
    ts_event_ns=START_NS - 30_000_000_000,
    spot_price_micro_usd=9_830_000,
    on_demand_price_micro_usd=32_772_600,
    spot_available=Count(instances=12, provenance=Provenance.OBSERVED),
    on_demand_available=UNKNOWN_COUNT,
)
LOT = Lot(offering_id=OFFERING.offering_id, spot=6, on_demand=2)
JOB = Job(
    job_id="job-7",
    tenant="Team.Vision",
    client_request_id="nightly-2026-01-01",
    name="llama fine-tune",
    work=Work(amount=1_250.5, unit="gpu_hours"),
    deadline=Deadline(
        kind=DeadlineKind.SOFT, at_ns=START_NS + 86_400 * 10**9, expires_ns=START_NS + 10**14
    ),
    value_micro_usd=9_000_000_000,
    start_ns=START_NS,
    allowed_counts=(1, 2, 4, 8),
    throughputs=(
        Throughput(offering="p4d.24xlarge", alpha=7.5, beta=-0.25),
        Throughput(offering="*", table=(6.0, 11.5, 16.0, 20.0, 23.0, 25.0, 26.0, 27.0)),
    ),
    topology=Topology.ONE_ZONE,
    checkpoint=Checkpoint(interval_s=1800, save_s=90, size_gb=140.0, location="bucket/job-7"),
    overheads=Overheads(launch_s=240, grow_s=120, shrink_s=30, migrate_s=300, interrupted_s=180),
    offerings=("p4d.24xlarge",),
    budget_micro_usd=12_000_000_000,
)
WHOSE = {"job_id": JOB.job_id, "tenant": JOB.tenant}

CONFIGURATION = Configuration(
    model_name="granite-3.1-8b",
    method=Method.LORA,
    gpu_model="a100-80gb",
    gpus=8,
    nodes=1,
    tokens_per_sample=4096,
    batch_size=32,
    precision="bfloat16",
    expert_parallel=1,
    model_parameters=8_170_000_000,
    options=(MethodOption(name="fast_kernels", value="true"),),
)

LAW = NamedLaw(
    law_id="5f" * 32,
    law=MarketLaw(
        space=StateSpace(
            level_starts=(0, 8), age_starts=(1,), price_centres_ppm=(250_000, 400_000)
        ),
        level_counts=(0, 16),
        run_ppb=(900_000_000, 100_000_000, 50_000_000, 950_000_000),
        price_ppb=(800_000_000, 200_000_000, 300_000_000, 700_000_000),
    ),
)
TABLE = TableSpec(
    table_id="a7" * 32,
    law_id=LAW.law_id,
    offering_id=OFFERING.offering_id,
    instance_type=OFFERING.instance_type,
    first_slot_start_ns=1_767_571_200_000_000_000,
    slot_s=1_800,
    on_demand_price_micro_usd=3_060_000,
    on_demand_available=64,
    taken=4,
    on_demand_reserve_slots=3,
    even_cells=True,
)
PIPELINE = Pipeline(
    job_id=JOB.job_id,
    tenant=JOB.tenant,
    client_request_id=JOB.client_request_id,
    model_name="gpt-13b",
    iterations=1_000,
    microbatches=64,
    compute_s=5.5,
    activation_bytes=83_886_080.0,
    stage_overhead_s=0.01,
    min_gpus=8,
    max_gpus=40,
    deadline_s=86_400.0,
    checkpoint_gb=156.0,
    checkpoint_interval_iterations=50,
    restart_s=90.0,
)

PRICE_FIGURES = PriceFigures(
    mean_micro_usd=9_840_000,
    low_micro_usd=9_830_000,
    high_micro_usd=9_850_000,
    spread_micro_usd=20_000,
    changes=1,
    change_ppm=2_034,
)
PLATFORM_FIGURES = PlatformFigures(
    spend=SpendFigures(
        spend_micro_usd=95_000_000,
        on_demand_equivalent_micro_usd=262_180_800,
        saving_micro_usd=167_180_800,
        spot_instance_s=21_600,
        on_demand_instance_s=7_200,
    ),
    deadlines=DeadlineFigures(hard_hits=0, hard_misses=0, soft_hits=1, soft_misses=0, cancelled=0),
    regret=RegretFigures(
        jobs=1,
        best_policy_id="ahanp(0.5)",
        best_utility_micro_usd=5_000_000,
        regret_micro_usd=9_000_000,
    ),
    decision_after_slot=LatencyFigures(
        samples=2, p50_ns=4_100_000, p99_ns=5_200_000, max_ns=5_200_000
    ),
    decision_after_forecast=LatencyFigures(
        samples=2, p50_ns=1_900_000, p99_ns=2_000_000, max_ns=2_000_000
    ),
)

SAMPLES = (
    MarketOpened(
        offerings=(OFFERING,), slot_s=1800, first_slot_start_ns=START_NS, source="trace.parquet"
    ),
    QuoteObserved(quote=QUOTE),
    SlotOpened(
        slot=17,
        ts_event_ns=START_NS,
        slot_s=1800,
        quotes=(SlotQuote(quote=QUOTE, age_s=30),),
        last=True,
        missed=3,
    ),
    ForecastOverdue(slot=17, waited_ms=2500),
    JobSubmitted(job=JOB, ts_event_ns=START_NS),
    JobCancelled(**WHOSE),
    JobUpdated(**WHOSE, job=JOB, ts_event_ns=START_NS + 7),
    JobExited(**WHOSE, generation=3, exit_code=137, detail="out of memory", ts_event_ns=START_NS),
    JobRetryScheduled(
        **WHOSE, slot=5, retry=2, not_before_ns=START_NS + 10**12, detail="out of memory"
    ),
    AdmissionRecorded(**WHOSE),
    JobQuoted(
        **WHOSE,
        slot=17,
        outlook=JobOutlook(
            slot=18,
            futures=64,
            on_time_probability_ppm=984_375,
            expected_cost_micro_usd=81_000_000,
            cost_p10_micro_usd=61_000_000,
            cost_p50_micro_usd=79_000_000,
            cost_p90_micro_usd=104_000_000,
            finish_p10_ns=START_NS + 10**13,
            finish_p50_ns=START_NS + 2 * 10**13,
            finish_p90_ns=0,
            expected_utility_micro_usd=-3_000_000,
            offerings=(
                OutlookOffering(
                    offering_id=OFFERING.offering_id,
                    share_ppm=1_000_000,
                    expected_cost_micro_usd=81_000_000,
                    on_time_probability_ppm=984_375,
                    moves_ppm=250_000,
                ),
            ),
            policies=(
                OutlookPolicy(
                    policy_id="sdp",
                    weight_ppm=1_000_000,
                    expected_cost_micro_usd=81_000_000,
                    on_time_probability_ppm=984_375,
                    expected_utility_micro_usd=-3_000_000,
                ),
            ),
            progress=(
                OutlookStep(
                    at_ns=START_NS + 10**13,
                    low_ppm=0,
                    middle_ppm=400_000,
                    high_ppm=1_000_000,
                ),
            ),
        ),
    ),
    CapacitySignalled(slot=5, offset_s=61),
    JobProgressReported(**WHOSE, done=312.625),
    AllocationAnswered(
        slot=17,
        revision=1,
        request_digest="ab" * 32,
        outcome=CallOutcome.ANSWERED,
        answers=(
            JobAnswer(
                job_id=JOB.job_id,
                policy_id="ahap(3,1,0.5)",
                lots=(LOT,),
                memory=(3, -1, 0),
                reason=DecisionReason.LAUNCH_REFUSED,
            ),
        ),
    ),
    ShadowPricesUpdated(
        slot=17,
        prices=(
            SpotWorth(offering_id=OFFERING.offering_id, micro_usd_per_instance_hour=1_100_000),
        ),
    ),
    LaunchRefused(
        **WHOSE,
        command_id="c0ffee",
        offering_id=OFFERING.offering_id,
        capacity_type=CapacityType.SPOT,
        slot=17,
        requested=6,
        granted=4,
        detail="limit tenant USD per day",
        refusal_class=RefusalClass.LIMIT,
        retry_after_s=60,
        limit_scope=FreezeScope.TENANT,
    ),
    ProbeCommanded(
        **WHOSE,
        command_id="c0ffee",
        quota_pool="p-spot",
        slot=17,
        revision=1,
        offset_s=0,
        offering_id=OFFERING.offering_id,
        instances=4,
        gain_micro_usd=3_100_000,
        price_micro_usd=240_000,
    ),
    OfferingProbed(
        **WHOSE,
        command_id="c0ffee",
        offering_id=OFFERING.offering_id,
        slot=17,
        requested=4,
        granted=3,
        cost_micro_usd=180_000,
        refusal_class=RefusalClass.NO_CAPACITY,
        detail="no more there",
        retry_after_s=180,
    ),
    InterruptionNoticed(
        **WHOSE,
        offering_id=OFFERING.offering_id,
        instance_ids=("i-01", "i-02"),
        slot=17,
        offset_s=600,
        lead_s=120,
        kind=InterruptionKind.CAPACITY_RECLAIMED,
    ),
    InterruptionWithdrawn(
        **WHOSE,
        offering_id=OFFERING.offering_id,
        instance_ids=("i-01", "i-02"),
        slot=17,
        offset_s=660,
    ),
    InstancesEnded(
        **WHOSE,
        offering_id=OFFERING.offering_id,
        instance_ids=("i-02",),
        slot=17,
        offset_s=690,
    ),
    AgentJoined(
        **WHOSE,
        instance_id="i-01",
        token_sha256="0" * 64,
        nonce_sha256="1" * 64,
        host="10.0.0.5",
        ts_event_ns=START_NS + 10**9,
    ),
    GenerationFormed(
        **WHOSE,
        generation=2,
        instance_ids=("i-01", "i-02"),
        detail="2 instances in the place of 1",
        ts_event_ns=START_NS + 2 * 10**9,
    ),
    TrainingRestarted(
        **WHOSE,
        generation=2,
        restart_s=95,
        load_s=12,
        resumed_done=1_250_000.0,
        resumed_sha256="2" * 64,
        ts_event_ns=START_NS + 97 * 10**9,
    ),
    CheckpointCommitted(
        **WHOSE,
        generation=2,
        step=400,
        done=1_600_000.0,
        uri="s3://models/job-0001/checkpoints/00000002-00000400",
        sha256="3" * 64,
        size_bytes=504_000_000,
        kind=CheckpointKind.PREEMPTION,
        save_s=31,
        ts_event_ns=START_NS + 900 * 10**9,
    ),
    CheckpointFailed(
        **WHOSE,
        generation=2,
        step=440,
        fault=CheckpointFault.SKIPPED,
        detail="31 s to write it, 12 s left",
        ts_event_ns=START_NS + 990 * 10**9,
    ),
    NoticeAcknowledged(
        **WHOSE,
        instance_id="i-02",
        notice_id="notice-1",
        action=NoticeAction.SAVED,
        after_s=44,
        ts_event_ns=START_NS + 944 * 10**9,
    ),
    JobSilent(
        **WHOSE, instance_id="i-02", since_ns=START_NS + 10**12, ts_event_ns=START_NS + 2 * 10**12
    ),
    JobHeard(**WHOSE, instance_id="i-02", ts_event_ns=START_NS + 3 * 10**12),
    JobStalled(
        **WHOSE,
        generation=2,
        since_ns=START_NS + 10**12,
        on_stall=OnStall.RESTART,
        ts_event_ns=START_NS + 3 * 10**12,
    ),
    JobStallEnded(
        **WHOSE,
        generation=2,
        since_ns=START_NS + 10**12,
        ts_event_ns=START_NS + 4 * 10**12,
    ),
    CapacityLost(
        **WHOSE,
        offering_id=OFFERING.offering_id,
        instance_ids=("i-01", "i-02"),
        slot=17,
        offset_s=720,
    ),
    CapacityReported(
        slot=17,
        revision=1,
        offset_s=720,
        settled=True,
        holdings=(JobHolding(job_id=JOB.job_id, lots=(LOT,)),),
    ),
    CostAccrued(
        **WHOSE,
        offering_id=OFFERING.offering_id,
        quota_pool=OFFERING.quota_pool,
        capacity_type=CapacityType.ON_DEMAND,
        slot=17,
        instances=2,
        held_s=1800,
        price_micro_usd=32_772_600,
        cost_micro_usd=32_772_600,
    ),
    ForecastIssued(
        slot=17,
        model_id="river-ewma-1",
        forecasts=(
            OfferingForecast(
                offering_id=OFFERING.offering_id,
                steps=(
                    ForecastStep(
                        spot_price_micro_usd=9_900_000,
                        counts=(
                            CountProbability(instances=0, probability_ppm=250_000),
                            CountProbability(instances=12, probability_ppm=750_000),
                        ),
                    ),
                ),
            ),
        ),
        scores=(
            ForecastScore(
                offering_id=OFFERING.offering_id,
                step=1,
                count_crps_milli=910,
                persistence_crps_milli=1200,
                price_error_ppm=13_000,
                persistence_price_error_ppm=15_000,
            ),
        ),
    ),
    JobAdmitted(
        **WHOSE,
        slot=1,
        policy_id="ahap(3,1,0.5)",
        offering_id=OFFERING.offering_id,
        deadline_slot=48,
        weight_ppb=8_928_571,
    ),
    AllocationDecided(
        **WHOSE,
        slot=17,
        revision=1,
        offset_s=720,
        policy_id="ahap(3,1,0.5)",
        lots=(LOT,),
        reason=DecisionReason.INTERRUPTED,
        forecast_used=True,
        explanation="2 spot instances were reclaimed",
    ),
    ProvisioningCommanded(
        **WHOSE,
        command_id="c0ffee",
        quota_pool=OFFERING.quota_pool,
        slot=17,
        revision=1,
        offset_s=720,
        target=LOT,
    ),
    SlotDecided(slot=17, revision=1, offset_s=720, commands=1),
    JobAdvanced(
        **WHOSE,
        slot=17,
        lots=(LOT,),
        progress_ppm=412_500,
        slot_cost_micro_usd=95_000_000,
        cost_micro_usd=1_300_000_000,
    ),
    JobClosed(
        **WHOSE,
        slot=40,
        outcome=JobOutcome.COMPLETED,
        policy_id="ahap(3,1,0.5)",
        cost_micro_usd=3_100_000_000,
        value_micro_usd=9_000_000_000,
        progress_ppm=1_000_000,
    ),
    PolicyWeightsUpdated(
        round=3,
        job_id=JOB.job_id,
        rule="exponentiated_gradient",
        weights=(
            PolicyWeight(policy_id="msu", weight_ppb=999_999_999, utility_micro_usd=-4_000_000),
            PolicyWeight(policy_id="ahanp(0.5)", weight_ppb=1, utility_micro_usd=5_000_000),
        ),
        rehearsed_slot=-1,
        utility_floor_micro_usd=-6_000_000_000,
        utility_ceiling_micro_usd=9_000_000_000,
        regret=SelectionRegret(
            jobs=3,
            best_policy_id="ahanp(0.5)",
            best_utility_micro_usd=40_000_000,
            regret_micro_usd=9_000_000,
            expected_regret_micro_usd=-1_000_000,
            regret_ppm=225_000,
            bound_micro_usd=70_000_000,
        ),
    ),
    MarketLawLearned(slot=24, offering_id=OFFERING.offering_id, named=LAW),
    ValueTableRequested(job_id=JOB.job_id, tenant=JOB.tenant, slot=25, table=TABLE, named=LAW),
    ValueTableReady(
        job_id=JOB.job_id,
        tenant=JOB.tenant,
        slot=25,
        table_id=TABLE.table_id,
        size_bytes=11_520_000,
    ),
    RunMeasured(
        run=MeasuredRun(
            configuration=CONFIGURATION,
            stack="sfttrainer",
            outcome=RunOutcome.SUCCEEDED,
            tokens_per_s=20_966.5,
            peak_memory_gb=61.25,
            runtime_s=805.5,
        ),
        job_id=JOB.job_id,
    ),
    ThroughputReestimated(
        **WHOSE,
        throughputs=(Throughput(offering="p4d.24xlarge", alpha=3.75, beta=-0.125),),
        reports=20,
        factor_ppm=500_000,
        half_width_ppm=40_000,
        explanation="20 reports, half as fast as predicted",
    ),
    RegionObserved(
        ts_event_ns=START_NS,
        region=Region(
            region_id="aws:eu-west-1",
            gpus=64,
            energy_usd_per_kwh=0.156,
            rent_usd_per_gpu_hour=1.25,
            gpu_kw=0.4,
            interruptions_per_hour=0.02,
            gpu_model="a100-80gb",
            offering_id="aws:eu-west-1a:p4d.24xlarge",
            spot=True,
        ),
        energy_ahead_usd_per_kwh=(0.21, -0.01),
        more_follow=True,
    ),
    LinkObserved(
        ts_event_ns=START_NS,
        link=Link(
            source="aws:eu-west-1",
            destination="aws:us-east-1",
            bytes_per_s=3.125e9,
            egress_usd_per_gb=0.02,
        ),
    ),
    PipelineSubmitted(pipeline=PIPELINE, ts_event_ns=START_NS + 10**9),
    PipelineReleased(**WHOSE, ts_event_ns=START_NS + 10**12),
    PlacementDecided(
        **WHOSE,
        ts_event_ns=START_NS + 10**9,
        outcome=PlacementOutcome.MOVED,
        method_id="spotline",
        placement=Placement(
            job_id=JOB.job_id,
            path=(
                RegionShare(region_id="aws:eu-west-1", gpus=24),
                RegionShare(region_id="aws:us-east-1", gpus=8),
            ),
            reserved_bytes_per_s=1_250_000_000.0,
            iteration_s=12.5,
            usd_per_iteration=0.075,
            reason="32 stages, none waits for the network",
        ),
        iterations_done=400,
        starts_ns=START_NS + 91 * 10**9,
        finish_ns=START_NS + 7_591 * 10**9,
        expected_cost_micro_usd=45_000_000,
        reason="aws:us-west-2 is lost",
    ),
    PlacementEnded(
        **WHOSE,
        ts_event_ns=START_NS + 7_591 * 10**9,
        end=PlacementEnd.COMPLETED,
        iterations_done=1_000,
        cost_micro_usd=76_543_210,
    ),
    PipelineProvisioningCommanded(
        **WHOSE,
        command_id="0123456789abcdef0123456789abcdef",
        quota_pool="aws:eu-west-1:p4d",
        target=Lot(offering_id="aws:eu-west-1a:p4d.24xlarge", on_demand=3),
        transfer_cost_micro_usd=1_400_000,
    ),
    MarketStatisticsIssued(
        offering_id=OFFERING.offering_id,
        ts_event_ns=START_NS + 3_600 * 10**9,
        window_s=3_600,
        hop_s=900,
        revision=1,
        late=1,
        figures=MarketFigures(
            slots=2,
            covered_s=3_600,
            spot_price=PRICE_FIGURES,
            on_demand_price=PRICE_FIGURES,
            known_s=3_600,
            available_s=1_800,
            available_ppm=500_000,
            counts=(CountTime(instances=0, held_s=1_800), CountTime(instances=12, held_s=1_800)),
            ups=1,
            downs=0,
            available_runs=1,
            unavailable_runs=1,
            mean_available_run_s=1_800,
            mean_unavailable_run_s=1_800,
        ),
    ),
    PlatformStatisticsIssued(
        tenant=JOB.tenant,
        ts_event_ns=START_NS + 3_600 * 10**9,
        window_s=3_600,
        hop_s=900,
        revision=0,
        late=0,
        total=PLATFORM_FIGURES,
        policies=(PolicyFigures(policy_id="ahap(3,1,0.5)", figures=PLATFORM_FIGURES),),
    ),
    EntryParked(
        service="cloud_actuator",
        seq=4711,
        place=2,
        event_id="1f0c5f2a",
        kind="provisioning.command",
        error="slot must be <= 7, which is open, was 10000007",
        error_type="Unfit",
        job_id=JOB.job_id,
        tenant=JOB.tenant,
        slot=7,
    ),
    ParkedEntryRetried(
        service="cloud_actuator", event_id="1f0c5f2a", retried_as="77aa01", by="operator"
    ),
    ParkedEntryDropped(
        service="cloud_actuator", event_id="1f0c5f2a", by="operator", detail="sent by mistake"
    ),
    BuyingFrozen(
        freeze=Freeze(
            freeze_id="stale/" + OFFERING.offering_id,
            scope=FreezeScope.OFFERING,
            key=OFFERING.offering_id,
            reason=FreezeReason.STALE_QUOTES,
            detail="its latest quote is 4 h old",
            capacity_type=CapacityType.SPOT,
            continue_with="spotline market status",
            slot=7,
            ts_event_ns=START_NS,
        )
    ),
    BuyingUnfrozen(
        freeze_id="stale/" + OFFERING.offering_id,
        detail="it is quoted again",
        slot=8,
        ts_event_ns=START_NS + 3_600 * 10**9,
    ),
    BuyingExcepted(
        job_id=JOB.job_id,
        tenant=JOB.tenant,
        offering_id=OFFERING.offering_id,
        slot=7,
        instances=2,
        against="breaker",
        quote_left_micro_usd=12_500_000,
    ),
    QuoteQuarantined(
        quote=QUOTE,
        field="spot_price_micro_usd",
        lowest_micro_usd=200_000,
        highest_micro_usd=3_300_000,
        detail="1000 times the median of the last day: is its unit micro-USD per instance-hour?",
    ),
    LimitReached(
        job_id=JOB.job_id,
        tenant=JOB.tenant,
        slot=7,
        limit="job budget",
        action=LimitAction.WIND_DOWN,
        spent_micro_usd=48_000_000,
        cost_to_come_micro_usd=9_000_000,
        value_to_gain_micro_usd=4_000_000,
        until_ns=START_NS + 600 * 10**9,
        detail="9.00 USD to come against 4.00 USD to gain",
    ),
    AgreementChecked(
        slot=7,
        ts_event_ns=START_NS,
        last_seq=499,
        disagreements=(
            Disagreement(
                kind=DisagreementKind.JOB_NOT_IN_LOG,
                scope=FreezeScope.JOB,
                key=JOB.job_id,
                detail="the ledger admitted it in slot 2, the log does not know it",
                continue_with="spotline store repair",
            ),
        ),
    ),
    IncarnationBegun(
        installation_id="6b1e8a52d0c34f0f",
        incarnation=2,
        last_seq_before=499,
        detail="the log was cut from 499 to 161 entries",
        last_slot_before=33,
    ),
    OrphanFound(
        instance_id="i-0123",
        offering_id=OFFERING.offering_id,
        slot=7,
        ts_event_ns=START_NS,
        reap_after_ns=START_NS + 600 * 10**9,
        detail="its job is unknown",
        job_id=JOB.job_id,
        tenant=JOB.tenant,
    ),
    AccountModeSet(
        account="aws/123456789012",
        mode=Mode.LIVE,
        by="ada",
        reason="a week on paper was within 3 % of the bill",
        slot=7,
        ts_event_ns=START_NS,
    ),
    LimitSet(
        kind=LimitKind.TENANT,
        key="research",
        span_s=86_400,
        stated=400_000_000,
        most=600_000_000,
        before=500_000_000,
        by="ada",
        reason="the last run of the month",
        slot=7,
        ts_event_ns=START_NS,
    ),
    OrphanSettled(
        instance_id="i-0123",
        reaped=True,
        detail="ended after its grace",
        slot=8,
        ts_event_ns=START_NS + 900 * 10**9,
        by="operator",
    ),
    OrphanReapRequested(instance_ids=("i-0123",), by="operator"),
)


def source_of(event: object) -> str:
    """A service that may say this."""
    return min(PUBLISHERS[KINDS[type(event)]])


def main() -> None:
    """Write the golden files and the hashes of what was written."""
    GOLDEN.mkdir(parents=True, exist_ok=True)
    hashes = {}
    for event in SAMPLES:
        kind, payload = KINDS[type(event)], encode(event)
        text = json.dumps(
            {
                "kind": kind,
                "subject": subject_of(event, source_of(event)),
                "payload_b64": base64.b64encode(payload).decode(),
                "event": json_of(kind, payload),
            },
            indent=2,
        )
        path = GOLDEN / f"{kind}.json"
        path.write_text(text + "\n")
        hashes[path.name] = hashlib.sha256(path.read_bytes()).hexdigest()
    metadata = {"generator": "python -m tests.samples.events", "seed": None, "sha256": hashes}
    (GOLDEN / "metadata.json").write_text(json.dumps(metadata, indent=2) + "\n")


if __name__ == "__main__":
    main()
