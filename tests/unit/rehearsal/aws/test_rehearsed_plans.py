"""Savings plans on the rehearsal's bill: by the hour, up to the commitment, the rest at list prices."""

import yaml
from hypothesis import given
from hypothesis import strategies as st

from spotline.adapters.clouds.aws.section import read_section
from spotline.domain.ledger.plan_cover import PlanMoney, PlanUsage, at_list_s
from spotline.domain.market.offering import Reservation
from spotline.domain.units import NS_PER_S
from spotline.rehearsal.aws.bill import bill_of, total_micro_usd
from spotline.rehearsal.aws.config_out import write_config
from spotline.rehearsal.aws.plans import PlanUse, SoldPlan, at_list_price
from tests.fakes.rehearsed_ec2 import FAR, NEAR, P4D, START_NS, made_market, rehearsed_ec2

LIST = 30_000_000
# Two instances of 10 USD an hour fit, and half of a third.
PLAN = Reservation(
    instances=2,
    sunk_price_micro_usd=10_000_000,
    plan="sp-1",
    plan_micro_usd_per_hour=25_000_000,
    ends_ns=START_NS + 2 * 3600 * NS_PER_S,
)


def billed(tmp_path, count, seconds, **said):
    with rehearsed_ec2(tmp_path, made_market(reservation=PLAN)) as rig:
        rig.launched(count, **said)
        rig.pass_s(seconds)
        rig.call("TerminateInstances", InstanceIds=list(rig.world.state.instances))
        return bill_of(rig.state)


def test_what_fits_into_a_plan_costs_nothing_more_in_any_zone_of_its_region(tmp_path):
    for folder, zone in ((tmp_path / "near", NEAR), (tmp_path / "far", FAR)):
        folder.mkdir()
        assert [line.micro_usd for line in billed(folder, 2, 3600, zone=zone, spot=False)] == [0, 0]


def test_what_goes_beyond_a_plan_costs_the_list_price_for_the_rest_of_the_hour(tmp_path):
    bill = billed(tmp_path, 3, 3600, spot=False)

    assert total_micro_usd(bill) == LIST // 2


def test_a_plan_pays_for_no_spot(tmp_path):
    assert [line.micro_usd for line in billed(tmp_path, 1, 3600)] == [9_000_000]


def test_after_its_end_a_plan_pays_for_nothing(tmp_path):
    assert [line.micro_usd for line in billed(tmp_path, 1, 3 * 3600, spot=False)] == [LIST]


def test_the_configuration_has_the_plan_beside_the_offerings_that_it_covers(tmp_path):
    with rehearsed_ec2(tmp_path, made_market(reservation=PLAN)) as rig:
        path = tmp_path / "spotline.yaml"
        write_config(rig.world, path, tmp_path, "http://127.0.0.1:1", {})
        section = yaml.safe_load(path.read_text())["clouds"]["aws"]
        section["accounts"] = section["accounts"][:1]
        mine = [one for one in section["offerings"] if one["account"] == "default"]
        settings = read_section({**section, "offerings": mine})

    planned = [one for one in settings.offerings if one.savings_plan]
    assert [one.offering_id for one in planned] == [
        f"aws:default:{zone}:{P4D}/reserved/sp-1" for zone in (NEAR, FAR)
    ]
    assert {one.reservation for one in planned} == {PLAN}
    assert {one.launch_template_id for one in planned} == {rig.template(P4D)}


PLACE = ("1", "r", "t")
SPANS = st.lists(
    st.tuples(st.integers(0, 9000), st.integers(0, 9000)).map(lambda two: (min(two), max(two))),
    max_size=5,
)


@given(SPANS, st.integers(1, 40), st.integers(1, 100), st.integers(0, 3))
def test_no_hour_pays_for_more_than_its_commitment_and_no_second_is_lost(spans, price, money, ends):
    plan = SoldPlan(
        plan_id="p",
        micro_usd_per_hour=money,
        ends_ns=ends * 3600 * NS_PER_S,
        prices={PLACE: price},
    )
    used = [
        PlanUse(instance_id=str(number), place=PLACE, span=span, list_micro_usd=price)
        for number, span in enumerate(spans)
    ]

    left = at_list_price([plan], used)

    for hour in range(3):
        listed = paid = 0
        for usage in used:
            seconds = set(range(*usage.span)) & set(range(hour * 3600, hour * 3600 + 3600))
            at_list = {second for span in left[usage.instance_id] for second in range(*span)}
            assert at_list <= set(range(*usage.span))
            listed += len(seconds & at_list)
            paid += len(seconds - at_list)
        assert paid * price <= money * 3600
        if ends and hour >= ends:
            assert paid == 0
        elif listed:
            # Not one second more would have fitted.
            assert money * 3600 - paid * price < price


@given(
    spans=st.lists(
        st.tuples(
            st.integers(0, 3 * 3600), st.integers(1, 2 * 3600), st.integers(0, 1), st.integers(0, 9)
        ),
        max_size=6,
    ),
    money=st.lists(st.integers(1, 12), min_size=1, max_size=2),
    ends_s=st.integers(0, 4 * 3600),
)
def test_what_the_ledger_counts_is_what_the_rehearsal_bills(spans, money, ends_s):
    """Two that share no code, of the same words of AWS's."""
    prices = [{("1", "r", f"t{kind}"): 2 + kind + plan for kind in (0, 1)} for plan in (0, 1)]
    listed = (6, 7)
    sold = [
        SoldPlan(plan_id=f"p{n}", micro_usd_per_hour=each, ends_ns=ends_s * 10**9, prices=prices[n])
        for n, each in enumerate(money)
    ]
    used, counted = [], []
    for number, (begin_s, long_s, kind, _) in enumerate(spans):
        place, name, span = ("1", "r", f"t{kind}"), str(number), (begin_s, begin_s + long_s)
        used.append(PlanUse(instance_id=name, place=place, span=span, list_micro_usd=listed[kind]))
        counted.append(
            PlanUsage(
                instance_id=name,
                since_s=begin_s,
                begin_s=begin_s,
                end_s=begin_s + long_s,
                list_micro_usd=listed[kind],
                rates=tuple((f"p{n}", prices[n][place]) for n in range(len(money))),
            )
        )
    plans = [
        PlanMoney(plan_id=one.plan_id, micro_usd_per_hour=one.micro_usd_per_hour, until_s=ends_s)
        for one in sold
    ]

    billed = {
        name: sum(until - begin for begin, until in left)
        for name, left in at_list_price(sold, used).items()
    }

    assert at_list_s(plans, counted) == billed
