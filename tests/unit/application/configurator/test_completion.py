"""Drafts become whole jobs: what is stated is kept, the rest is the cheapest that meets the deadline."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spotline.application.admission import Refused, check_job
from spotline.application.configurator.candidates import menu_of
from spotline.application.configurator.completion import complete
from spotline.application.configurator.futures import _sampled, futures_of
from spotline.application.configurator.messages import Completion, CompletionRequest
from spotline.application.configurator.places import MOST_CHOSEN_INSTANCES, places_of
from spotline.application.configurator.ranking import POLICY_IDS, program_with
from spotline.application.configurator.throughput import throughput_of
from spotline.application.market_view import MarketView
from spotline.domain.configuration.configuration import (
    Configuration,
    Method,
    MethodOption,
    NoPrediction,
    Prediction,
)
from spotline.domain.configuration.provenance import OriginKind
from spotline.domain.configuration.registry import make_source
from spotline.domain.configuration.rules import broken_rules
from spotline.domain.events.market import SlotOpened
from spotline.domain.jobs.draft import JobDraft
from spotline.domain.jobs.job import (
    Checkpoint,
    Deadline,
    DeadlineKind,
    Overheads,
    Throughput,
    Topology,
)
from spotline.domain.jobs.program import compile_program
from spotline.domain.market.offering import UNKNOWN_COUNT, Count, Offering, Provenance, Quote
from spotline.domain.market.slot_quote import SlotQuote
from spotline.domain.policies.registry import FALLBACK_POLICY_ID, policy_named
from spotline.domain.policies.replay import replay_policy
from spotline.domain.units import NS_PER_S, PPM
from tests.depth import examples

SLOT_S = 600
START_NS = 1_772_323_200 * NS_PER_S
HOUR_NS = 3600 * NS_PER_S
SLOTS_SEEN = 24

# Tokens per second on one GPU with a large batch, and its memory as the fake believes it.
GPUS = MappingProxyType({"a100-80gb": (10_000.0, 80.0), "l40s": (5_000.0, 46.0)})


class FakeSource:
    """Rates by a formula with an interval of `width`; success by the memory a GPU would need."""

    source_id = "fake"

    def __init__(self, *, width: float = 1.1, gb_per_sample: float = 1.0) -> None:
        self.width = width
        self.gb_per_sample = gb_per_sample
        self.asked: list[tuple[Configuration, ...]] = []
        self.stacks: list[str] = []

    def predict(self, configurations, *, stack=""):
        self.asked.append(tuple(configurations))
        self.stacks.append(stack)
        return tuple(self._predict(one) for one in configurations)

    def _predict(self, one: Configuration):
        if broken_rules(one):
            return NoPrediction(source_id="fake", reason="breaks a rule")
        per_gpu = one.batch_size / one.gpus
        per_s, memory_gb = GPUS[one.gpu_model]
        rate = one.gpus * per_s * per_gpu / (per_gpu + 1.0)
        needed_gb = 16.0 + self.gb_per_sample * per_gpu
        return Prediction(
            source_id="fake",
            tokens_per_s=rate,
            low_tokens_per_s=rate / self.width,
            high_tokens_per_s=rate * self.width,
            success_probability=0.95 if needed_gb <= memory_gb else 0.05,
            peak_memory_gb=needed_gb,
            basis="a formula",
        )


class FakeKnowledge:
    stack = "a-stack"

    def __init__(self, source=None) -> None:
        self.one = source or FakeSource()

    def source(self, source_id=""):
        if source_id not in ("", self.one.source_id):
            raise ValueError(f"source must be fake, was {source_id}")
        return self.one


def offering(zone: str, gpu: str, gpus: int = 1) -> Offering:
    return Offering(
        offering_id=f"cloud:{zone}:{gpu}-{gpus}x",
        provider="cloud",
        account="",
        region="east-1",
        zone=zone,
        instance_type=f"{gpu}-{gpus}x",
        gpu_model=gpu,
        gpus_per_instance=gpus,
        quota_pool="east-1",
    )


A100 = offering("a", "a100-80gb")
L40S = offering("b", "l40s")
BIG = offering("c", "a100-80gb", 8)
PRICES = MappingProxyType({"a100-80gb": (1_200_000, 3_600_000), "l40s": (800_000, 2_000_000)})


def quote(one: Offering, slot: int, *, spot: int, on_demand: Count) -> SlotQuote:
    spot_price, on_demand_price = PRICES[one.gpu_model]
    return SlotQuote(
        quote=Quote(
            offering_id=one.offering_id,
            ts_event_ns=START_NS + slot * SLOT_S * NS_PER_S,
            spot_price_micro_usd=spot_price * one.gpus_per_instance,
            on_demand_price_micro_usd=on_demand_price * one.gpus_per_instance,
            spot_available=Count(instances=spot, provenance=Provenance.OBSERVED),
            on_demand_available=on_demand,
        ),
        age_s=0,
    )


def market(*offerings: Offering, most: int = 8, on_demand: Count = UNKNOWN_COUNT) -> MarketView:
    """A market of spot that comes and goes, `SLOTS_SEEN` slots old."""
    offered = offerings or (A100, L40S)
    opened = tuple(
        SlotOpened(
            slot=slot,
            ts_event_ns=START_NS + slot * SLOT_S * NS_PER_S,
            slot_s=SLOT_S,
            quotes=tuple(
                quote(one, slot, spot=most if (slot // 5) % 3 else 0, on_demand=on_demand)
                for one in offered
            ),
            last=False,
        )
        for slot in range(SLOTS_SEEN)
    )
    return MarketView(
        offerings=offered,
        slot_s=SLOT_S,
        next_slot=SLOTS_SEEN,
        next_slot_start_ns=START_NS + SLOTS_SEEN * SLOT_S * NS_PER_S,
        quotes=opened[-1].quotes,
        forecast=None,
        history=opened,
    )


def deadline(hours: float, *, soft_hours: float = 0.0) -> Deadline:
    at_ns = START_NS + SLOTS_SEEN * SLOT_S * NS_PER_S + int(hours * 3600) * NS_PER_S
    return Deadline(
        kind=DeadlineKind.SOFT if soft_hours else DeadlineKind.HARD,
        at_ns=at_ns,
        expires_ns=at_ns + int(soft_hours * 3600) * NS_PER_S,
    )


def draft(*, hours: float = 12.0, soft_hours: float = 0.0, **changes) -> JobDraft:
    given = {
        "tenant": "research",
        "client_request_id": "r1",
        "model_name": "granite-3.1-8b",
        "tokens": 2.0e8,
        "deadline": deadline(hours, soft_hours=soft_hours),
        "value_micro_usd": 500_000_000,
    }
    return JobDraft(**{**given, **changes})


def answer(one: JobDraft, view: MarketView | None = None, source=None, most_options: int = 0):
    request = CompletionRequest(draft=one, most_options=most_options)
    return complete(request, view or market(), FakeKnowledge(source))


def completed(*arguments, **named) -> Completion:
    found = answer(*arguments, **named)
    assert isinstance(found, Completion), found
    return found


def refused(*arguments, **named) -> Refused:
    found = answer(*arguments, **named)
    assert isinstance(found, Refused), found
    return found


# --- what is stated ---------------------------------------------------------------------------

STATABLE = {
    "method": st.sampled_from([Method.FULL, Method.QLORA]),
    "gpu_model": st.sampled_from(["L40S", "NVIDIA-A100-SXM4-80GB"]),
    "gpus": st.sampled_from([1, 4, 8, 12]),
    "tokens_per_sample": st.sampled_from([512, 4096]),
    "batch_size": st.sampled_from([1, 12, 24, 64]),
    "precision": st.sampled_from(["float16", "float32"]),
    "expert_parallel": st.sampled_from([1, 2]),
    "options": st.just((MethodOption(name="fast_kernels", value="true"),)),
    "allowed_counts": st.sampled_from([(1, 2), (4,), (2, 4, 8), (1, 3)]),
    "topology": st.just(Topology.ANY),
    "checkpoint": st.just(Checkpoint(interval_s=60, save_s=5, size_gb=3.0)),
    "overheads": st.just(Overheads(launch_s=1, grow_s=2, shrink_s=1, migrate_s=3, interrupted_s=1)),
    "throughputs": st.just((Throughput(offering=A100.instance_type, alpha=3.3e7, beta=1e5),)),
    "offerings": st.sampled_from([(A100.offering_id,), ("l40s-1x",)]),
    "budget_micro_usd": st.just(900_000_000),
}
MARKET = market()


@settings(max_examples=examples(60), deadline=None)
@given(stated=st.fixed_dictionaries({}, optional=STATABLE))
def test_whatever_is_stated_is_kept_or_refused_by_name(stated) -> None:
    one = draft(**stated)

    found = answer(one, MARKET)

    if isinstance(found, Refused):
        assert found.field.partition(".")[0] == "draft"
        assert found.message
        return
    job, configuration = found.job, found.job.configuration
    assert configuration is not None
    run = configuration.configuration
    for name in ("method", "tokens_per_sample", "batch_size", "precision", "options", "gpus"):
        if name in stated:
            assert getattr(run, name) == stated[name]
    for name in (
        "allowed_counts",
        "topology",
        "checkpoint",
        "overheads",
        "offerings",
        "budget_micro_usd",
    ):
        if name in stated:
            assert getattr(job, name) == stated[name]
    assert set(stated.get("throughputs", ())) <= set(job.throughputs)
    for name in (
        "method",
        "gpu_model",
        "gpus",
        "tokens_per_sample",
        "batch_size",
        "precision",
        "options",
        "topology",
        "checkpoint",
        "overheads",
    ):
        origin = configuration.origin_of(name)
        assert origin is not None
        assert (origin.kind is OriginKind.USER) == (name in stated), origin
    assert not broken_rules(run)
    assert check_job(MARKET, job) is None


def test_a_draft_of_least_gets_every_value_with_its_origin() -> None:
    found = completed(draft(), source=FakeSource(gb_per_sample=0.1))

    assert found.job.configuration is not None
    origins = {one.parameter: one for one in found.job.configuration.origins}
    kinds = {name: one.kind for name, one in origins.items()}
    assert kinds == {
        "model_name": OriginKind.USER,
        "method": OriginKind.DEFAULT,
        "gpu_model": OriginKind.PREDICTED,
        "gpus": OriginKind.PREDICTED,
        "nodes": OriginKind.PREDICTED,
        "tokens_per_sample": OriginKind.DEFAULT,
        "batch_size": OriginKind.PREDICTED,
        "precision": OriginKind.DEFAULT,
        "options": OriginKind.DEFAULT,
        "allowed_counts": OriginKind.PREDICTED,
        f"throughput.{A100.instance_type}": OriginKind.PREDICTED,
        f"throughput.{L40S.instance_type}": OriginKind.PREDICTED,
        "topology": OriginKind.DEFAULT,
        "checkpoint": OriginKind.PREDICTED,
        "overheads": OriginKind.DEFAULT,
    }
    assert found.job.configuration.stack == "a-stack"
    throughput = origins[f"throughput.{A100.instance_type}"]
    rate = found.job.throughputs[0].rate_per_hour(found.job.max_instances)
    assert 0 < throughput.low < rate < throughput.high
    assert throughput.said_by == "predicted by fake"


def test_stated_throughput_is_used_as_it_is_and_others_are_predicted() -> None:
    stated = Throughput(offering=A100.instance_type, alpha=5.0e7)

    found = completed(draft(throughputs=(stated,)))

    assert found.job.throughputs[0] == stated
    assert [one.offering for one in found.job.throughputs[1:]] == [L40S.instance_type]
    assert found.job.configuration is not None
    origin = found.job.configuration.origin_of(f"throughput.{A100.instance_type}")
    assert origin is not None
    assert origin.kind is OriginKind.USER


def test_where_every_throughput_is_stated_no_source_is_asked() -> None:
    source = FakeSource()

    found = completed(draft(throughputs=(Throughput(offering="*", alpha=5.0e7),)), source=source)

    assert source.asked == []
    rates = [one.tokens_per_s / one.allowed_counts[-1] for one in found.options]
    assert rates == pytest.approx([5.0e7 / 3600] * len(rates))


# --- what is chosen ---------------------------------------------------------------------------


def brute_force_cost(one: JobDraft, view: MarketView) -> float:
    """Least expected cost of all candidates, one by one with the uncompiled policies."""
    source = FakeSource()
    places = places_of(one, view)
    assert not isinstance(places, Refused)
    menu = menu_of(one, places, source, "")
    assert not isinstance(menu, Refused)
    template = completed(one, view).job
    first_slot, first_ns = view.first_slot(template)
    best = float("inf")
    for curve in menu.curves:
        for size in range(1, len(curve.points) + 1):
            points = curve.points[:size]
            rates = {point.count: point.planned_tokens_per_hour for point in points}
            throughput = throughput_of(curve.place.key, rates)
            job = replace(template, allowed_counts=tuple(rates), throughputs=(throughput,))
            program = compile_program(
                job, throughput, slot_s=view.slot_s, first_slot_start_ns=first_ns
            )
            for there in curve.place.offerings:
                futures = futures_of(
                    view,
                    there.offering_id,
                    slots=program.end_slots,
                    most_spot=curve.place.most_spot,
                )
                assert futures is not None
                for policy_id in POLICY_IDS:
                    lives = [
                        replay_policy(
                            program,
                            futures.series.records(int(start), program.end_slots),
                            policy_named(policy_id),
                            policy_named(FALLBACK_POLICY_ID),
                        )
                        for start in futures.first_slots(first_slot - view.next_slot)
                    ]
                    if sum(life.on_time for life in lives) == len(lives):
                        cost = sum(life.cost_micro_usd for life in lives) / len(lives)
                        best = min(best, cost / 0.95)
    return best


@pytest.mark.parametrize("hours", [1.5, 3.0, 6.0])
def test_the_chosen_option_is_the_cheapest_of_all_that_meet_the_deadline(hours) -> None:
    view = market()
    one = draft(hours=hours, tokens=1.2e8, batch_size=32)

    found = completed(one, view)

    assert found.options[0].chosen
    assert found.options[0].on_time_probability_ppm == PPM
    best = brute_force_cost(one, view)
    cheapest = min(option.expected_cost_micro_usd for option in found.options)
    assert cheapest == pytest.approx(best, rel=0.01)
    assert found.options[0].expected_cost_micro_usd <= 1.03 * cheapest


def test_options_come_best_first_one_is_chosen_and_all_say_why() -> None:
    found = completed(draft(), most_options=4)

    assert len(found.options) == 4 < found.considered
    assert [option.chosen for option in found.options] == [True, False, False, False]
    costs = [option.expected_cost_micro_usd for option in found.options]
    assert costs[1:] == sorted(costs[1:])
    assert costs[0] <= 1.03 * costs[1]
    assert all(option.why for option in found.options)
    chosen = found.options[0]
    assert chosen.allowed_counts == found.job.allowed_counts
    assert chosen.throughput in found.job.throughputs
    assert found.job.configuration is not None
    assert chosen.configuration == found.job.configuration.configuration


def test_more_counts_are_taken_along_where_they_cost_hardly_more() -> None:
    found = completed(draft(tokens=2.0e7, hours=1.0, batch_size=64, gpu_model="a100-80gb"))

    chosen = found.options[0]
    same = [one for one in found.options if one.configuration.batch_size == 64]
    shorter = [one for one in same if len(one.allowed_counts) < len(chosen.allowed_counts)]
    longer = [one for one in same if len(one.allowed_counts) > len(chosen.allowed_counts)]
    assert all(
        one.expected_cost_micro_usd > 0.97 * chosen.expected_cost_micro_usd for one in shorter
    )
    least = min(one.expected_cost_micro_usd for one in same)
    assert shorter
    assert all(one.expected_cost_micro_usd > 1.03 * least for one in longer)


class Saturating(FakeSource):
    """More than eight GPUs add little: of sixteen, each does half of what it could."""

    def _predict(self, one: Configuration):
        said = super()._predict(one)
        if isinstance(said, NoPrediction) or one.gpus <= 8:
            return said
        slower = (one.gpus / 8.0) ** -0.9
        return replace(
            said,
            tokens_per_s=said.tokens_per_s * slower,
            low_tokens_per_s=said.low_tokens_per_s * slower,
            high_tokens_per_s=said.high_tokens_per_s * slower,
        )


def test_counts_on_which_an_instance_does_less_than_half_are_no_room_to_grow() -> None:
    found = completed(
        draft(tokens=3.0e8, hours=4.0, batch_size=128, gpu_model="a100-80gb"), source=Saturating()
    )

    chosen = found.options[0]
    longer = [one for one in found.options if len(one.allowed_counts) > len(chosen.allowed_counts)]
    assert chosen.allowed_counts == (2, 4, 8)
    assert any(
        one.expected_cost_micro_usd <= 1.03 * chosen.expected_cost_micro_usd for one in longer
    )


def test_a_tight_hard_deadline_gets_more_instances_than_a_loose_one() -> None:
    tight = completed(draft(hours=1.0)).job
    loose = completed(draft(hours=24.0)).job

    def rate(job) -> float:
        return max(one.rate_per_hour(job.max_instances) for one in job.throughputs)

    assert tight.max_instances > loose.max_instances
    assert rate(tight) > rate(loose)


def test_without_a_value_being_late_is_no_better_than_with_one() -> None:
    # Nothing is gained by being on time but what the draft is taken to be worth.
    stated = completed(draft(hours=1.0, soft_hours=200.0)).options[0]
    unstated = completed(
        draft(hours=1.0, soft_hours=200.0, value_micro_usd=0, value_from_quote=True)
    )
    worthless = completed(draft(hours=1.0, soft_hours=200.0, value_micro_usd=0)).options[0]

    assert unstated.options[0].on_time_probability_ppm == stated.on_time_probability_ppm
    assert worthless.on_time_probability_ppm < stated.on_time_probability_ppm
    assert unstated.options[0].expected_utility_micro_usd > 0
    # The allocator values the job, when it is submitted.
    assert unstated.job.value_from_quote
    assert unstated.job.value_micro_usd == 0


def test_a_soft_deadline_that_is_too_early_is_met_late_rather_than_refused() -> None:
    found = completed(draft(hours=0.2, soft_hours=12.0))

    assert found.options[0].on_time_probability_ppm == 0
    assert found.options[0].expected_utility_micro_usd > 0


def test_a_wide_interval_makes_a_hard_deadline_plan_on_less_and_a_soft_one_not() -> None:
    sure = completed(draft(batch_size=32, allowed_counts=(4,)), source=FakeSource(width=1.0))
    vague = completed(draft(batch_size=32, allowed_counts=(4,)), source=FakeSource(width=2.0))
    soft = completed(
        draft(batch_size=32, allowed_counts=(4,), soft_hours=2.0), source=FakeSource(width=2.0)
    )

    def planned(found: Completion) -> float:
        return found.options[0].throughput.rate_per_hour(4) / 3600

    assert planned(sure) == pytest.approx(sure.options[0].tokens_per_s, rel=1e-3)
    # Half of the interval's logarithmic width below the mean: the 20 % quantile of a normal.
    assert planned(vague) == pytest.approx(vague.options[0].tokens_per_s * 0.7014, rel=1e-3)
    assert planned(soft) == pytest.approx(soft.options[0].tokens_per_s, rel=1e-3)


def test_no_more_instances_are_chosen_than_the_market_ever_had() -> None:
    two = Count(instances=2, provenance=Provenance.OBSERVED)

    few = completed(draft(hours=6.0), market(most=4, on_demand=two)).job
    late = refused(draft(hours=0.75), market(most=4, on_demand=two))

    assert few.max_instances <= 4
    assert late.field == "draft.deadline"


def test_an_on_demand_stock_that_nobody_tells_is_taken_as_plenty() -> None:
    job = completed(draft(hours=0.75), market(most=0)).job

    assert 8 <= job.max_instances <= MOST_CHOSEN_INSTANCES


def test_counts_that_would_run_out_of_memory_are_left_out() -> None:
    one = draft(batch_size=64, gpu_model="a100-80gb", hours=2.0)

    found = completed(one, source=FakeSource(gb_per_sample=1.5))

    assert found.job.allowed_counts[0] >= 2
    assert found.options[0].success_ppm == 950_000


def test_every_count_divides_the_batch_and_the_batch_leaves_enough_steps() -> None:
    found = completed(draft(tokens=3.0e6, tokens_per_sample=1024, hours=6.0))

    assert found.job.configuration is not None
    run = found.job.configuration.configuration
    assert run.batch_size <= 16
    assert all(run.batch_size % count == 0 for count in found.job.allowed_counts)


def test_instances_of_several_gpus_are_counted_in_gpus() -> None:
    found = completed(draft(gpus=16, tokens=2e9), market(A100, BIG, most=16))

    assert found.job.configuration is not None
    run = found.job.configuration.configuration
    assert run.gpus == 16
    assert found.job.allowed_counts in ((2,), (16,))
    assert run.nodes == found.job.max_instances


def test_one_prediction_call_answers_a_draft() -> None:
    source = FakeSource()

    completed(draft(), source=source)

    assert len(source.asked) == 1
    assert source.stacks == ["a-stack"]


def test_equal_requests_get_equal_answers_whatever_was_asked_before() -> None:
    first = completed(draft())
    completed(draft(hours=3.0, tokens=5.0e7))
    _sampled.cache_clear()

    assert completed(draft()) == first


def test_with_no_history_at_all_the_analytic_model_answers_widely() -> None:
    found = completed(draft(hours=24.0), source=make_source("analytic"))

    option = found.options[0]
    assert option.high_tokens_per_s / option.low_tokens_per_s > 1.5
    assert option.throughput.rate_per_hour(option.allowed_counts[-1]) < option.tokens_per_s * 3600


def test_counts_stay_within_every_stated_table() -> None:
    short = Throughput(offering=L40S.instance_type, table=(9.0e6, 1.7e7))

    found = completed(draft(hours=24.0, throughputs=(short,)))

    assert found.job.max_instances <= 2
    assert short in found.job.throughputs


def test_a_program_laid_out_anew_for_other_counts_is_the_compiled_one() -> None:
    view = market()
    one = completed(draft(hours=5.0, soft_hours=3.0), view).job
    table = Throughput(offering="*", table=(1.5e7, 0.0, 4.1e7))
    other = replace(one, allowed_counts=(1, 3), throughputs=(table,))
    grid = {"slot_s": SLOT_S, "first_slot_start_ns": view.next_slot_start_ns}

    outline = compile_program(one, one.throughputs[0], **grid)

    expected = compile_program(other, table, **grid)
    assert program_with(outline, one.work.amount, table, (1, 3)) == expected


class FasterWithKernels(FakeSource):
    """Options `fast_kernels` make everything 20 % faster."""

    def _predict(self, one: Configuration):
        found = super()._predict(one)
        if isinstance(found, NoPrediction) or not one.option("fast_kernels"):
            return found
        return replace(
            found,
            tokens_per_s=found.tokens_per_s * 1.2,
            high_tokens_per_s=found.high_tokens_per_s * 1.2,
        )


def test_options_that_only_change_the_speed_are_chosen_where_none_are_stated() -> None:
    kernels = MethodOption(name="fast_kernels", value="true")
    own = MethodOption(name="packing", value="false")

    def chosen(**stated) -> tuple[MethodOption, ...]:
        found = complete(
            CompletionRequest(draft=draft(**stated)),
            market(),
            FakeKnowledge(FasterWithKernels()),
            speed_options=(kernels,),
        )
        assert isinstance(found, Completion)
        return found.options[0].configuration.options

    assert chosen() == (kernels,)
    assert chosen(options=(own,)) == (own,)


# --- throughput -------------------------------------------------------------------------------


def test_rates_on_a_line_become_alpha_and_beta_and_others_a_table() -> None:
    line = throughput_of("x", {1: 1_000.0, 2: 1_900.0, 4: 3_700.0})
    curve = throughput_of("x", {1: 1_000.0, 2: 1_700.0, 4: 2_000.0})

    assert (line.alpha, line.beta, line.table) == (900.0, 100.0, ())
    assert curve.table == (1_000.0, 1_700.0, 0.0, 2_000.0)


# --- refusals ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "field", "said"),
    [
        ({"batch_size": 12, "gpus": 8}, "draft.batch_size", "8 or 16 would fit"),
        ({"batch_size": 6, "allowed_counts": (1, 4)}, "draft.batch_size", "4 or 8 would fit"),
        ({"gpus": 4, "expert_parallel": 3}, "draft.expert_parallel", "must divide gpus (4)"),
        ({"gpu_model": "warp-9"}, "draft.gpu_model", "warp-9"),
        ({"gpu_model": "t4"}, "draft.gpu_model", "must be on the market"),
        ({"model_name": "nobody-knows-it"}, "draft.model_name", "nobody-knows-it"),
        ({"offerings": ("mars",)}, "draft.offerings[0]", "was 'mars'"),
        ({"gpus": 4, "allowed_counts": (1, 2)}, "draft.gpus", "largest of allowed_counts (2"),
        (
            {"throughputs": (Throughput(offering="*", table=(1e7,)),), "allowed_counts": (1, 2)},
            "draft.throughputs",
            "must reach 2 instances",
        ),
        (
            {"throughputs": (Throughput(offering="*", alpha=-1.0, beta=2.0),), "gpus": 4},
            "draft.throughputs",
            "must be > 0 for 4 instances",
        ),
        ({"allowed_counts": (1, 10**9)}, "draft.allowed_counts", "must be <= 256"),
        ({"gpus": 10**9}, "draft.gpus", "must be <= 256"),
        ({"deadline": deadline(1e5)}, "draft.deadline", "within 50000 slots"),
        (
            {"throughputs": (Throughput(offering="*", alpha=1e7),) * 2},
            "draft.throughputs[1].offering",
            "stated once",
        ),
    ],
)
def test_what_cannot_be_is_refused_with_the_field_and_the_rule(changes, field, said) -> None:
    found = refused(draft(**changes))

    assert found.field == field
    assert said in found.message


def test_a_batch_that_fits_no_memory_is_refused_with_what_would_fit() -> None:
    found = refused(
        draft(batch_size=64, gpus=1, gpu_model="a100-80gb"), source=FakeSource(gb_per_sample=1.5)
    )

    assert found.field == "draft.batch_size"
    assert "needs about 112 GB on each GPU of 86 GB" in found.message
    assert "batch_size 32 would fit" in found.message


def test_a_deadline_nothing_meets_is_refused_with_the_earliest_that_can_be_met() -> None:
    found = refused(draft(hours=0.3))

    assert found.field == "draft.deadline"
    earliest_ns = found.earliest_feasible_deadline_ns
    assert earliest_ns > draft(hours=0.3).deadline.at_ns
    at_earliest = Deadline(kind=DeadlineKind.HARD, at_ns=earliest_ns, expires_ns=earliest_ns)
    completed(replace(draft(), deadline=at_earliest))


def test_before_the_first_slot_and_after_the_last_nothing_is_completed() -> None:
    view = market()

    unopened = refused(draft(), replace(view, quotes=(), history=()))
    ended = refused(draft(), replace(view, ended=True))

    assert unopened.field == "draft.offerings"
    assert ended.permanent


def test_an_unknown_source_is_an_error() -> None:
    request = CompletionRequest(draft=draft(), source_id="tarot")

    with pytest.raises(ValueError, match="tarot"):
        complete(request, market(), FakeKnowledge())
