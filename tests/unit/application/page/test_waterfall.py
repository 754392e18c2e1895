"""The waterfall adds up exactly, whatever was charged and however far jobs came."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from spotline.application.page.money import BilledCharge, SlotProgress
from spotline.application.page.waterfall import Waterfall, bars, levels_of, scale_of, waterfall

_JOBS = st.sampled_from(("a", "b", "c"))
_SLOTS = st.integers(0, 4)


@st.composite
def charges(draw: st.DrawFn) -> BilledCharge:
    kind = draw(st.sampled_from(("spot", "on_demand", "reserved", "egress")))
    return BilledCharge(
        seq=draw(st.integers(1, 99)),
        job_id=draw(_JOBS),
        tenant="research",
        offering_id="east",
        kind=kind,
        slot=draw(_SLOTS),
        instances=0 if kind == "egress" else draw(st.integers(1, 8)),
        held_s=draw(st.integers(0, 3600)),
        price_micro_usd=1,
        cost_micro_usd=draw(st.integers(0, 10**8)),
        on_demand_micro_usd=draw(st.integers(0, 10**8)),
        estimated=False,
        command_slot=-1,
        command_revision=-1,
        command_seq=-1,
        decided=False,
        of_pipeline=False,
    )


@st.composite
def steps(draw: st.DrawFn) -> SlotProgress:
    return SlotProgress(
        job_id=draw(_JOBS),
        slot=draw(_SLOTS),
        progress_ppm=draw(st.integers(-(10**5), 10**5)),
        worth_micro_usd=draw(st.integers(-(10**7), 10**7)),
        needed_instance_s=draw(st.integers(-1, 40_000)),
        late=draw(st.booleans()),
    )


def charge(cost: int, *, kind: str = "spot", on_demand: int = 0, slot: int = 0) -> BilledCharge:
    return BilledCharge(
        seq=1,
        job_id="a",
        tenant="research",
        offering_id="east",
        kind=kind,
        slot=slot,
        instances=0 if kind == "egress" else 2,
        held_s=600,
        price_micro_usd=1,
        cost_micro_usd=cost,
        on_demand_micro_usd=on_demand or cost,
        estimated=False,
        command_slot=0,
        command_revision=0,
        command_seq=1,
        decided=True,
        of_pipeline=False,
    )


def step(worth: int, *, slot: int = 0, needed: int = -1, late: bool = False) -> SlotProgress:
    return SlotProgress("a", slot, 1 if worth > 0 else 0, worth, needed, late)


def parts(told: Waterfall) -> dict[str, int]:
    return {part.name: part.micro_usd for part in told.parts if part.micro_usd}


@given(
    st.lists(charges(), max_size=12),
    st.lists(steps(), max_size=12),
    st.dictionaries(_JOBS, st.integers(0, 10**8)),
    st.dictionaries(_JOBS, _SLOTS),
)
def test_parts_lead_from_on_demand_to_the_bill_exactly(
    charged: list[BilledCharge],
    came: list[SlotProgress],
    quoted: dict[str, int],
    closed: dict[str, int],
) -> None:
    told = waterfall(charged, came, quoted, closed)

    assert told.actual_micro_usd == sum(each.cost_micro_usd for each in charged)
    changes = sum(part.micro_usd for part in told.parts)
    assert told.on_demand_micro_usd + changes == told.actual_micro_usd


@given(st.lists(charges(), max_size=12), st.lists(steps(), max_size=12))
def test_bars_stay_inside_the_picture(
    charged: list[BilledCharge], came: list[SlotProgress]
) -> None:
    told = waterfall(charged, came, {"a": 5, "b": 7})

    low, high = scale_of(levels_of(told))
    assert low <= high
    assert all(0 <= bar.low <= bar.high <= 1 for bar in bars(told))


def test_spot_at_half_the_price_is_a_discount() -> None:
    told = waterfall([charge(50, on_demand=100)], [step(100)], {"a": 100})

    assert parts(told) == {"spot discount": -50}


def test_time_that_the_progress_did_not_take_is_overhead() -> None:
    # Of 1,200 instance-seconds the progress takes 900: a quarter of 100 is overhead.
    told = waterfall([charge(100, kind="on_demand")], [step(75, needed=900)], {"a": 100})

    assert parts(told) == {"restarts": 25}


def test_what_is_held_without_progress_is_its_own_part() -> None:
    told = waterfall([charge(40)], [step(0)], {"a": 100})

    assert parts(told) == {"no progress": 40}


def test_what_is_bought_after_the_deadline_is_late() -> None:
    told = waterfall([charge(40, kind="on_demand")], [step(30, late=True)], {"a": 100})

    assert parts(told) == {"late": 10}


def test_what_is_held_after_the_end_of_a_job_made_no_progress() -> None:
    told = waterfall([charge(40, slot=5)], [step(0, slot=4)], {"a": 100}, {"a": 4})

    assert parts(told) == {"no progress": 40}


def test_copies_of_checkpoints_are_moves() -> None:
    told = waterfall(
        [charge(7, kind="egress"), charge(100, kind="on_demand")], [step(100)], {"a": 100}
    )

    assert parts(told) == {"moves": 7}


def test_work_whose_bill_is_not_in_yet_is_left_out() -> None:
    told = waterfall([charge(100, kind="on_demand")], [step(100), step(50, slot=1)], {"a": 150})

    assert told.on_demand_micro_usd == told.actual_micro_usd == 100


def test_a_job_without_a_quote_is_not_compared() -> None:
    told = waterfall([charge(40)], [step(0)], {})

    assert parts(told) == {"not compared": 40}
    assert (told.jobs, told.left_out_jobs) == (0, 1)
