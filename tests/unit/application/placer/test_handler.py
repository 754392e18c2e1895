"""The placer's handler: who runs where, and what follows when regions, links and prices change."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spotline.application.placer.handler import SPEC, PlaceHandler
from spotline.application.placer.messages import PlacementPhase, explain
from spotline.application.placer.options import PlacerOptions
from spotline.contracts.build import event_of
from spotline.contracts.errors import ContractError
from spotline.contracts.publishers import PUBLISHERS
from spotline.contracts.subjects import KINDS
from spotline.domain.events.market import SlotOpened
from spotline.domain.events.placement import (
    PipelineReleased,
    PlacementDecided,
    PlacementEnded,
    PlacementOutcome,
)
from spotline.domain.placement.interface import CostBasis
from spotline.domain.placement.methods.registry import METHODS
from spotline.replay.handlers import handlers_of
from spotline.replay.host import LocalHost
from spotline.replay.verify import verify
from tests.depth import examples
from tests.fakes.placer import (
    TENANT,
    Played,
    at,
    both_ways,
    decisions,
    id_of,
    link,
    of_type,
    pipeline,
    region,
    submitted,
)
from tests.fakes.recorded_run import environment, manifest_of

TWO = (region("a", 8, 0.1), region("b", 8, 0.2), *both_ways("a", "b"))


def slot(at_s: float, number: int = 1) -> SlotOpened:
    return SlotOpened(slot=number, ts_event_ns=at(at_s), slot_s=600, quotes=())


def released(name: str = "one", *, at_s: float = 0) -> PipelineReleased:
    return PipelineReleased(job_id=id_of(name), tenant=TENANT, ts_event_ns=at(at_s))


# --- arrivals and ends ------------------------------------------------------------------------


def test_a_pipeline_starts_in_the_cheapest_region_that_has_room() -> None:
    played = Played(*TWO)

    (decided,) = played.play(submitted(at_s=60))

    assert decided.outcome is PlacementOutcome.PLACED
    assert played.path() == {"a": 8}
    assert (decided.starts_ns, decided.finish_ns) == (at(60), at(860))
    assert decided.placement.iteration_s == pytest.approx(8.0)


def test_one_that_no_region_holds_alone_spans_regions_and_reserves_its_link() -> None:
    played = Played(region("a", 4), region("b", 4), *both_ways("a", "b"), submitted())

    assert played.path() == {"a": 4, "b": 4}
    assert played.run().placement.reserved_bytes_per_s >= 2e6


def test_what_finds_no_room_waits_and_starts_when_time_ends_another() -> None:
    played = Played(region("a", 8), submitted("one"))

    waiting = played.play(submitted("two", at_s=10))
    nothing = played.play(slot(799))
    ended = played.play(slot(900, 2))

    assert decisions(waiting) == [(id_of("two"), "waiting")]
    assert nothing == []
    assert decisions(ended) == [(id_of("one"), "completed"), (id_of("two"), "placed")]
    assert ended[0].ts_event_ns == at(800)
    assert ended[0].iterations_done == 100


def test_released_in_mid_run_it_frees_its_place_at_once() -> None:
    played = Played(region("a", 8), submitted("one"), submitted("two"))

    ended = played.play(released("one", at_s=84))

    assert decisions(ended) == [(id_of("one"), "released"), (id_of("two"), "placed")]
    assert ended[0].iterations_done == 10
    assert played.run("one").phase is PlacementPhase.RELEASED


def test_the_cost_of_an_end_follows_the_prices_there_were() -> None:
    played = Played(region("a", 8, 0.2, gpu_kw=0.5), submitted(), moves=False)

    played.play(region("a", 8, 0.4, gpu_kw=0.5, at_s=400))
    (ended,) = of_type(played.play(slot(900)), PlacementEnded)

    # 8 GPUs of 0.5 kW: 400 s at 0.2 and 400 s at 0.4 USD per kWh.
    assert ended.cost_micro_usd == round(8 * 0.5 * (400 * 0.2 + 400 * 0.4) / 3600 * 1e6)


def test_a_move_costs_its_restart_and_the_egress_of_its_checkpoint() -> None:
    joined = both_ways("a", "b", egress_usd_per_gb=0.05)
    played = Played(region("a", 8, 0.1, gpu_kw=0.5), region("b", 8, 0.2, gpu_kw=0.5), *joined)
    played.play(submitted(restart_s=30.0, checkpoint_gb=10.0))

    played.play(region("a", 8, 0.1, gpu_kw=0.5, at_s=400, down=True))
    (ended,) = of_type(played.play(slot(2000)), PlacementEnded)

    # 400 s on a, then 30 s of restart and the other 400 s on b.
    gpus_usd = 8 * 0.5 * (400 * 0.1 + 430 * 0.2) / 3600
    assert ended.ts_event_ns == at(830)
    assert ended.cost_micro_usd == round((gpus_usd + 10 * 0.05) * 1e6)


def test_the_same_pipeline_again_changes_nothing() -> None:
    played = Played(*TWO, submitted())

    assert played.play(submitted(at_s=50)) == []


def test_before_any_region_a_pipeline_waits() -> None:
    played = Played(submitted())

    assert played.run().phase is PlacementPhase.WAITING
    assert decisions(played.play(region("a", 8))) == [(id_of("one"), "placed")]


# --- deadlines --------------------------------------------------------------------------------


def test_a_deadline_that_can_be_met_is() -> None:
    played = Played(*TWO)

    (decided,) = played.play(submitted(deadline_s=810))

    assert decided.outcome is PlacementOutcome.PLACED
    assert decided.finish_ns <= at(810)


def test_a_deadline_too_soon_is_refused_with_the_earliest_finish() -> None:
    played = Played(*TWO)

    (refused,) = played.play(submitted(deadline_s=700))

    assert refused.outcome is PlacementOutcome.REFUSED
    assert refused.earliest_finish_ns == at(800)
    assert "could be done in 800 s" in refused.reason
    assert played.run().phase is PlacementPhase.REFUSED


def test_what_is_running_counts_in_the_earliest_finish() -> None:
    played = Played(region("a", 8), submitted("one"))

    (refused,) = played.play(submitted("two", deadline_s=1500))
    (waiting,) = played.play(submitted("three", deadline_s=1700))

    assert (refused.outcome, refused.earliest_finish_ns) == (PlacementOutcome.REFUSED, at(1600))
    assert waiting.outcome is PlacementOutcome.WAITING


def test_a_wait_that_has_come_to_miss_the_deadline_is_refused() -> None:
    played = Played(region("a", 8), submitted("one"), submitted("two", deadline_s=1700))

    decided = decisions(played.play(region("a", 8, down=True, at_s=100)))

    assert sorted(decided) == sorted([(id_of("one"), "waiting"), (id_of("two"), "refused")])


# --- losses -----------------------------------------------------------------------------------


def test_a_lost_region_moves_its_pipelines_from_their_checkpoint_and_no_others() -> None:
    played = Played(*TWO, region("c", 8, 0.3), submitted("one"), submitted("two"))

    moved = played.play(region("a", 8, 0.1, down=True, at_s=124))

    (decided,) = moved
    assert (decided.job_id, decided.outcome) == (id_of("one"), PlacementOutcome.MOVED)
    assert decided.iterations_done == 10  # of 15
    assert (decided.starts_ns, decided.finish_ns) == (at(154), at(154 + 90 * 8))
    assert "a is lost" in decided.reason
    assert played.path("one") == {"c": 8}
    assert played.path("two") == {"b": 8}


def test_a_lost_region_with_nowhere_to_go_leaves_the_pipeline_waiting_with_its_checkpoint() -> None:
    played = Played(region("a", 8), submitted())

    lost = played.play(region("a", 8, down=True, at_s=124))
    back = played.play(region("a", 8, at_s=300))

    assert decisions(lost) == [(id_of("one"), "waiting")]
    assert decisions(back) == [(id_of("one"), "moved")]
    assert back[0].iterations_done == 10
    assert back[0].finish_ns == at(300 + 30 + 90 * 8)


def test_a_narrowed_link_moves_what_it_cannot_carry_any_more() -> None:
    wide = (region("a", 4), region("b", 4), region("c", 4), *both_ways("a", "b"))
    played = Played(*wide, submitted(min_gpus=8))
    before = played.path()

    narrowed = played.play(link("a", "b", 1e3, at_s=50))
    joined = [event for one in both_ways("b", "c", at_s=60) for event in played.play(one)]

    assert before == {"a": 4, "b": 4}
    assert decisions(narrowed) == [(id_of("one"), "waiting")]
    assert decisions(joined) == [(id_of("one"), "moved")]
    assert played.path() == {"b": 4, "c": 4}


def test_what_has_begun_is_finished_late_rather_than_refused() -> None:
    played = Played(*TWO, submitted(deadline_s=810))

    (moved,) = played.play(region("a", 8, 0.1, down=True, at_s=400))

    assert moved.outcome is PlacementOutcome.MOVED
    assert moved.finish_ns > at(810)


def test_nothing_is_decided_before_the_last_observation_of_a_moment() -> None:
    played = Played(*TWO, submitted())

    first = played.play(region("a", 8, down=True, at_s=80, more_follow=True))
    last = played.play(region("b", 8, at_s=80))

    assert first == []
    assert decisions(last) == [(id_of("one"), "moved")]


# --- prices -----------------------------------------------------------------------------------


def test_a_running_pipeline_moves_where_that_pays_after_migration() -> None:
    long = {"iterations": 10_000}
    played = Played(*TWO, submitted(**long))

    (moved,) = played.play(region("a", 8, 2.0, at_s=805))

    assert moved.outcome is PlacementOutcome.MOVED
    assert moved.iterations_done == 100
    assert played.path() == {"b": 8}
    assert "saves" in moved.reason
    assert played.run().moves == 1


@pytest.mark.parametrize(
    ("price", "at_s", "options", "changes"),
    [
        (0.201, 805, {}, {}),
        (2.0, 805, {"moves": False}, {}),
        (2.0, 805, {"cost": "rent"}, {}),
        (2.0, 805, {}, {"deadline_s": 80_010}),
        (0.3, 48_000, {}, {"checkpoint_interval_iterations": 10_000}),
    ],
    ids=["too_little_saved", "switched_off", "rent_is_paid", "too_late", "too_much_to_do_again"],
)
def test_a_running_pipeline_stays(price, at_s, options, changes) -> None:
    played = Played(*TWO, submitted(iterations=10_000, **changes), **options)
    before = played.path()

    assert played.play(region("a", 8, price, at_s=at_s)) == []
    assert played.path() == before


def test_a_price_that_is_known_to_fall_again_moves_nobody() -> None:
    played = Played(*TWO, submitted(iterations=10_000))

    assert played.play(region("a", 8, 0.6, at_s=805, ahead=(0.1,) * 23)) == []


# --- options ----------------------------------------------------------------------------------


@pytest.mark.parametrize("method", sorted(METHODS))
def test_every_method_of_the_registry_can_be_chosen(method: str) -> None:
    played = Played(*TWO, submitted("one"), submitted("two"), method=method)

    assert {event.method_id for event in of_type(played.decided, PlacementDecided)} == {method}
    assert played.path("one")


@pytest.mark.parametrize(
    ("options", "said"),
    [({"method": "best"}, "unknown placement method 'best'"), ({"cost": "co2"}, "energy, rent")],
)
def test_options_that_do_not_exist_are_refused_with_those_that_do(options, said) -> None:
    with pytest.raises(ValueError, match=said):
        PlacerOptions(**options)


def test_the_cost_basis_decides_which_region_is_cheapest() -> None:
    dear = (region("a", 8, 0.1, rent_usd_per_gpu_hour=9.0), region("b", 8, 0.2))

    assert Played(*dear, submitted()).path() == {"a": 8}
    assert Played(*dear, submitted(), cost="rent").path() == {"b": 8}


def test_an_explanation_marks_what_placing_takes() -> None:
    played = Played(*TWO)
    moment = played.state.moment()

    said = explain(pipeline().job(0.0), moment, METHODS["spotline"], CostBasis.ENERGY)
    played.play(submitted())

    (chosen,) = [path for path in said.paths if path.chosen]
    assert {share.region_id: share.gpus for share in chosen.placement.path} == played.path()
    assert len(said.paths) > 1


def test_an_explanation_of_a_hopeless_deadline_says_when_it_could_be_done() -> None:
    moment = Played(*TWO).state.moment()

    said = explain(
        pipeline(deadline_s=700.0).job(0.0), moment, METHODS["spotline"], CostBasis.ENERGY
    )

    assert not any(path.chosen for path in said.paths)
    assert said.earliest_finish_s == pytest.approx(800)


# --- laws -------------------------------------------------------------------------------------

NAMES = st.sampled_from("abc")
HAPPENINGS = st.one_of(
    st.builds(
        lambda name, **given: ("submit", name, given),
        st.sampled_from("pqrs"),
        activation_bytes=st.sampled_from([0.0, 1e6, 1e9]),
        deadline_s=st.sampled_from([0.0, 900.0, 5000.0]),
        iterations=st.integers(1, 200),
    ),
    st.builds(lambda name: ("release", name, {}), st.sampled_from("pqrs")),
    st.builds(
        lambda name, **given: ("region", name, given),
        NAMES,
        gpus=st.integers(0, 9),
        price=st.sampled_from([-0.1, 0.1, 0.5]),
        down=st.booleans(),
    ),
    st.builds(
        lambda ends, width: ("link", ends, {"bytes_per_s": width}),
        st.sampled_from(["ab", "bc", "ca", "ba", "cb", "ac"]),
        st.sampled_from([0.0, 2e6, 1e9, 5e9]),
    ),
    st.just(("slot", "", {})),
)


@settings(max_examples=examples(60), deadline=None)
@given(
    happenings=st.lists(st.tuples(st.integers(0, 500), HAPPENINGS), max_size=14),
    method=st.sampled_from(["spotline", "bace_pipe", "lcf"]),
)
def test_nothing_is_ever_over_committed_whatever_fails(happenings, method) -> None:
    start = (region("a", 6), region("b", 6), region("c", 6))
    joined = [one for ends in ("ab", "bc", "ca") for one in both_ways(*ends, 5e9)]
    played = Played(*start, *joined, method=method)  # checks after every event
    now_s = 0

    for later_s, (what, name, given_) in happenings:
        now_s += later_s
        if what == "submit":
            played.play(submitted(name, at_s=now_s, min_gpus=2, **given_))
        elif what == "release":
            played.play(released(name, at_s=now_s))
        elif what == "region":
            played.play(region(name, at_s=now_s, **given_))
        elif what == "link":
            played.play(link(*name, at_s=now_s, **given_))
        else:
            played.play(slot(now_s))

    for event in of_type(played.decided, PlacementEnded):
        assert 0 <= event.iterations_done <= 200
    for run in played.state.runs.values():
        assert run.phase.over == (run.pipeline.job_id not in played.state.open_runs)


# --- verification -----------------------------------------------------------------------------


def story():
    return [
        *TWO,
        region("c", 8, 0.3),
        submitted("one", iterations=10_000),
        submitted("two", at_s=5),
        submitted("three", at_s=6, deadline_s=100),
        region("b", 8, down=True, at_s=300),
        region("a", 8, 2.0, at_s=805),
        slot(4000),
        released("one", at_s=5000),
    ]


def recorded():
    log = []
    host = LocalHost(handlers_of({}), record=log.append)
    for event in story():
        host.publish(event, source=min(PUBLISHERS[KINDS[type(event)]]))
    return log


def test_a_recorded_story_is_recomputed_to_the_last_field() -> None:
    log = recorded()

    report = verify(log, handlers_of({}), manifest_of(log), here=environment())

    assert report.exit_code == 0, report.divergences
    assert sum(type(event_of(entry)) in SPEC.decides for entry in log) == 6
    assert report.decisions["placer"] == 6


@pytest.mark.parametrize(
    ("stated", "said"),
    [
        ({"method": "best"}, "settings.placer: method: unknown placement method 'best'"),
        ({"moves": 1}, "settings.placer.moves: expected bool, found 1"),
    ],
)
def test_a_manifest_with_settings_that_cannot_be_is_refused(stated, said) -> None:
    with pytest.raises(ContractError, match=said):
        handlers_of({"placer": stated})


def test_a_recorded_method_places_again_when_replayed() -> None:
    *_, placer = handlers_of({"placer": {"method": "lcf", "cost": "rent", "moves": False}})

    assert isinstance(placer, PlaceHandler)
    assert placer.options == PlacerOptions(method="lcf", cost="rent", moves=False)


def test_another_method_than_recorded_diverges_in_its_name() -> None:
    log = recorded()
    others = [PlaceHandler(PlacerOptions(method="lcf"))]

    report = verify(log, others, manifest_of(log), here=environment())

    assert report.exit_code == 1
    assert any("method_id" in line for one in report.divergences for line in one.differences)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"compute_s": 1e-310}, "compute_s"),
        ({"stage_overhead_s": 5e-324}, "stage_overhead_s"),
        ({"activation_bytes": 1e-300}, "activation_bytes"),
    ],
)
def test_times_too_small_to_divide_by_are_refused_before_they_are_recorded(changes, field) -> None:
    with pytest.raises(ValueError, match=f"^{field} must be"):
        pipeline("small", **changes)
