"""The text that ids are hashed from: the bytes of v0.1.0, whatever classes are called."""

from dataclasses import dataclass, replace
from enum import Enum

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spotline.application.cloud_actuator.messages import (
    ApplyRevisionRequest,
    Moment,
    OpenSlotRequest,
)
from spotline.domain.canonical import canonical_as, canonical_v1
from spotline.domain.configuration.configuration import Configuration, Method, MethodOption
from spotline.domain.events.capacity import ProvisioningCommanded
from spotline.domain.jobs.lot import Lot
from spotline.domain.jobs.program import JobProgram
from spotline.domain.ledger.billing import OfferingPrice, SlotPrices
from spotline.domain.market.law import PPB, MarketLaw, StateSpace, law_id_of
from spotline.domain.market.offering import MOST_PRICE_MICRO_USD, Count, Provenance, Quote
from spotline.domain.solvers.table_terms import TableTerms, table_id
from tests.depth import examples

COUNTS = st.integers(0, 2**40)
NAMES = st.text(max_size=12)
PLAIN = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(), st.binary()
)

# --- the values that ids are made of ------------------------------------------------------------


def tuples(of, most=3):
    return st.lists(of, max_size=most).map(tuple)


@st.composite
def laws(draw):
    levels, ages, prices = (draw(st.integers(1, 3)) for _ in range(3))
    space = StateSpace(
        level_starts=tuple(range(levels)),
        age_starts=tuple(range(1, ages + 1)),
        price_centres_ppm=tuple(range(prices)),
    )

    def matrix(size):
        rows = []
        for _ in range(size):
            stay = draw(st.integers(0, PPB)) if size > 1 else PPB
            rows += [stay, PPB - stay, *(0,) * (size - 2)] if size > 1 else [PPB]
        return tuple(rows)

    return MarketLaw(
        space=space,
        level_counts=tuple(draw(st.integers(0, 99)) for _ in range(levels)),
        run_ppb=matrix(space.run_states),
        price_ppb=matrix(space.price_states),
    )


PROGRAMS = st.builds(
    JobProgram,
    **{
        name: COUNTS
        for name in (
            *("slot_s", "work_quanta", "launch_s", "grow_s", "shrink_s", "interrupted_s"),
            *("deadline_slots", "end_slots", "budget_micro_usd"),
        )
    },
    rate_quanta_per_s=tuples(COUNTS, 9),
    allowed_counts=tuples(COUNTS, 9),
    hard=st.booleans(),
    value_micro_usd=tuples(COUNTS, 40),
)
TERMS = st.builds(
    TableTerms,
    program=PROGRAMS,
    law=laws(),
    on_demand_price=COUNTS,
    on_demand_available=COUNTS,
    taken=COUNTS,
    reserve_slots=COUNTS,
)
LOTS = st.builds(Lot, offering_id=NAMES, spot=COUNTS, on_demand=COUNTS)
COMMANDS = st.builds(
    ProvisioningCommanded,
    **dict.fromkeys(("command_id", "job_id", "tenant", "quota_pool"), NAMES),
    **dict.fromkeys(("slot", "revision", "offset_s", "transfer_cost_micro_usd"), COUNTS),
    target=LOTS,
)
MOMENTS = st.builds(Moment, slot=COUNTS, slot_s=COUNTS, offset_s=COUNTS, ts_ns=COUNTS)
PRICES = st.builds(
    SlotPrices,
    slot=COUNTS,
    slot_s=COUNTS,
    prices=tuples(
        st.builds(
            OfferingPrice, offering_id=NAMES, spot_micro_usd=COUNTS, on_demand_micro_usd=COUNTS
        )
    ),
)
QUOTES = st.builds(
    Quote,
    offering_id=NAMES,
    ts_event_ns=COUNTS,
    spot_price_micro_usd=st.integers(1, MOST_PRICE_MICRO_USD),
    on_demand_price_micro_usd=st.integers(1, MOST_PRICE_MICRO_USD),
    **dict.fromkeys(
        ("spot_available", "on_demand_available"),
        st.builds(Count, instances=COUNTS, provenance=st.sampled_from(Provenance)),
    ),
)
REVISIONS = st.builds(
    ApplyRevisionRequest,
    revision=COUNTS,
    at=MOMENTS,
    prices=PRICES,
    commands=tuples(COMMANDS),
    last=st.booleans(),
)
OPENINGS = st.builds(OpenSlotRequest, at=MOMENTS, quotes=tuples(QUOTES), unbilled=tuples(PRICES))
CONFIGURATIONS = st.builds(
    Configuration,
    **dict.fromkeys(("model_name", "gpu_model"), st.text(min_size=1, max_size=9)),
    **dict.fromkeys(("gpus", "nodes", "tokens_per_sample", "batch_size"), st.integers(1, 512)),
    method=st.sampled_from(Method),
    precision=st.just("fp8"),
    options=st.lists(st.text(min_size=1, max_size=5), unique=True, max_size=3).map(
        lambda names: tuple(MethodOption(name=name, value="true") for name in sorted(names))
    ),
)


@settings(max_examples=examples(100))
@given(value=st.one_of(laws(), TERMS, REVISIONS, OPENINGS, CONFIGURATIONS))
def test_the_text_of_what_ids_are_made_of_is_the_repr_of_v0_1_0(value):
    # A program that no interruption takes work from is the one that v0.1.0 knew.
    known = repr(value).replace(", lost_s=0", "")
    # Nor was on-demand ever bought against a limit.
    known = known.replace(", excepted_on_demand=0, quote_left_micro_usd=0", "")
    # Nor did a swap keep what it replaced until that was granted.
    known = known.replace(", keep_until_granted=False", "")
    # Nor was spot to come dearer than its price, or a table of more than one job.
    known = known.replace(", spot_surcharge=0, shared=False", "")
    # Nor was spot asked for that nobody keeps.
    known = known.replace(", probes=()", "")
    # Nor were quotes scored.
    known = known.replace(", placement_score=0, scored_ns=0", "")
    assert canonical_v1(value) == known


@given(value=st.recursive(PLAIN, lambda inner: tuples(inner, 4), max_leaves=12))
def test_plain_values_and_tuples_are_written_as_repr_writes_them(value):
    assert canonical_v1(value) == repr(value)


def test_ids_of_v0_1_0_stand():
    law = MarketLaw(
        space=StateSpace(level_starts=(0, 2), age_starts=(1,), price_centres_ppm=(300_000,)),
        level_counts=(0, 2),
        run_ppb=(700_000_000, 300_000_000, 100_000_000, 900_000_000),
        price_ppb=(PPB,),
    )
    terms = TableTerms(
        program=JobProgram(
            slot_s=60,
            work_quanta=60,
            rate_quanta_per_s=(0, 1),
            allowed_counts=(1,),
            launch_s=0,
            grow_s=0,
            shrink_s=0,
            interrupted_s=0,
            deadline_slots=1,
            end_slots=1,
            hard=True,
            value_micro_usd=(1, 1),
        ),
        law=law,
        on_demand_price=1_000_000,
        on_demand_available=4,
    )

    assert law_id_of(law) == "e81099c55c06e03e768399e215b707642a28808c4aa8cf87c55b69ff03b15023"
    assert table_id(terms) == "001d5a00f2fa025b7dae9f08f03657ebbde854785345c75f44a9c4913b93140b"


# --- renamed, and grown ---------------------------------------------------------------------------


@canonical_as("Kept", "first second")
@dataclass(frozen=True)
class Kept:
    first: int
    second: tuple[str, ...]


@canonical_as("Kept", "first second=other")
@dataclass(frozen=True)
class RenamedAndReordered:
    other: tuple[str, ...]
    first: int


@canonical_as("Kept", "first second", later="third")
@dataclass(frozen=True)
class Grown:
    first: int
    second: tuple[str, ...]
    third: int = 0


@canonical_as("Kind")
class RenamedKind(Enum):
    ONE = "one"


def test_renaming_a_class_or_a_field_does_not_change_the_text():
    text = canonical_v1(RenamedAndReordered(other=("x",), first=1))

    assert text == canonical_v1(Kept(1, ("x",))) == "Kept(first=1, second=('x',))"
    assert canonical_v1((RenamedKind.ONE,)) == "(<Kind.ONE: 'one'>,)"


def test_a_later_field_changes_the_text_only_where_it_says_something():
    grown = Grown(1, ("x",))

    assert canonical_v1(grown) == canonical_v1(Kept(1, ("x",)))
    assert canonical_v1(replace(grown, third=2)) == "Kept(first=1, second=('x',), third=2)"


def test_a_class_must_state_each_of_its_fields():
    @dataclass
    class Unstated:
        first: int
        forgotten: int

    with pytest.raises(TypeError, match="must state each field, differs in forgotten"):
        canonical_as("Unstated", "first")(Unstated)
    with pytest.raises(TypeError, match=r"later fields need a default: \['forgotten'\]"):
        canonical_as("Unstated", "first", later="forgotten")(Unstated)


# --- arrays, and what has no text -------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1, 999, 1000])
def test_an_array_that_repr_writes_whole_has_its_bytes(size):
    array = np.arange(size, dtype=np.int64) * 12_345

    assert canonical_v1(array) == repr(array)


def test_a_longer_array_is_written_whole_where_repr_left_out_its_middle():
    array = np.zeros(1001, dtype=np.int64)
    other = array.copy()
    other[500] = 1

    assert repr(array) == repr(other)
    assert canonical_v1(array) != canonical_v1(other)


@pytest.mark.parametrize(
    "value",
    [np.int64(1), {1}, {"a": 1}, [1], np.zeros(2), st, object()],
    ids=lambda value: type(value).__name__,
)
def test_what_has_no_text_of_its_own_is_refused(value):
    with pytest.raises(TypeError):
        canonical_v1((value,))
