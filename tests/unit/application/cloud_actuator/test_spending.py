"""Limits on spending in the actuator: no launch passes them, by what the ledger has charged."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spotline.domain.events.capacity import LaunchRefused, RefusalClass, SlotDecided
from spotline.domain.events.limits import LimitKind, LimitSet
from spotline.domain.ledger.caps import Caps
from spotline.domain.limits.freezes import FreezeScope
from spotline.domain.limits.spending import Spending, SpendLimit
from tests.depth import examples
from tests.fakes.actuator import Rig, command, lot, opened, quote, reported

USD = 1_000_000


def day(usd: float) -> SpendLimit:
    return SpendLimit(micro_usd_per_day=round(usd * USD))


def held(answers) -> dict[str, int]:
    return {
        holding.job_id: sum(each.spot + each.on_demand for each in holding.lots)
        for holding in reported(answers).holdings
    }


async def rig_of(tmp_path, spending: Spending) -> Rig:
    rig = Rig(tmp_path, caps=Caps(spending=spending))
    await rig.actuation.start()
    return rig


async def test_launches_are_cut_to_what_may_still_be_spent_today(tmp_path):
    # An hour of spot costs 1 USD, of on-demand 3.
    rig = await rig_of(tmp_path, Spending(total=day(5)))
    await rig.feed(opened(0, quote(price=USD)))
    first = await rig.decide(0, 0, 0, [("j", lot(spot=3))])
    assert held(first) == {"j": 3}

    await rig.feed(opened(1, quote(price=USD)))
    second = await rig.decide(1, 0, 0, [("j", lot()), ("k", lot(spot=3))])
    rig.close()

    assert held(second) == {"k": 2}
    (refused,) = [event for event in second if isinstance(event, LaunchRefused)]
    assert refused.refusal_class is RefusalClass.LIMIT
    assert refused.detail == "limit total USD per day"


@pytest.mark.parametrize(
    ("spending", "kept"),
    [
        (Spending(spot=day(1)), {"j": 1, "k": 2}),
        (Spending(on_demand=day(3)), {"j": 3, "k": 1}),
        (Spending(tenants={"acme": day(2)}), {"j": 2, "k": 2}),
        (Spending(every_tenant=day(4), tenants={"acme": day(100)}), {"j": 3, "k": 1}),
        (Spending(least_spot_discount_ppm=700_000), {"k": 2}),
        (Spending(launches_per_minute=4), {"j": 3, "k": 1}),
        (Spending(micro_usd_per_job=3 * USD), {"j": 3, "k": 1}),
        (Spending(quotas={"pool": 4}), {"j": 3, "k": 1}),
        (Spending(quotas={"pool": 0}), {}),
        (Spending(quotas={"another": 0}), {"j": 3, "k": 2}),
    ],
)
async def test_each_limit_binds_whom_it_is_about(tmp_path, spending, kept):
    rig = await rig_of(tmp_path, spending)
    await rig.feed(opened(0, quote(price=USD)))
    await rig.feed(command("j", lot(spot=3), 0))
    await rig.feed(replace(command("k", lot(on_demand=2), 0), tenant="other"))

    answers = await rig.feed(SlotDecided(slot=0, revision=0, offset_s=0, commands=2))
    rig.close()

    assert held(answers) == kept


@pytest.mark.parametrize(
    ("caps", "scope"),
    [
        (Caps(spending=Spending(total=day(1))), FreezeScope.SYSTEM),
        (Caps(spending=Spending(spot=day(1))), FreezeScope.SYSTEM),
        (Caps(spending=Spending(every_tenant=day(1))), FreezeScope.TENANT),
        (Caps(spending=Spending(tenants={"acme": day(1)})), FreezeScope.TENANT),
        (Caps(spending=Spending(least_spot_discount_ppm=999_999)), FreezeScope.OFFERING),
        (Caps(launches_per_minute=1), FreezeScope.SYSTEM),
        (Caps(micro_usd_per_hour=USD), FreezeScope.SYSTEM),
        (Caps(micro_usd_per_job=USD), FreezeScope.JOB),
        (Caps(spending=Spending(micro_usd_per_job=USD)), FreezeScope.JOB),
    ],
)
@pytest.mark.parametrize("dies_at", [None, 1])
async def test_a_refusal_says_for_whom_its_limit_holds(tmp_path, caps, scope, dies_at):
    rig = Rig(tmp_path, caps=caps)
    await rig.actuation.start()
    await rig.feed(opened(0, quote(price=USD)))
    # Killed right after the intents were written, it answers from what the ledger has kept.
    rig.kill.passed, rig.kill.at = 0, set() if dies_at is None else {dies_at}

    answers = await rig.decide(0, 0, 0, [("j", lot(spot=3))])
    rig.close()

    (refused,) = [event for event in answers if isinstance(event, LaunchRefused)]
    assert (refused.refusal_class, refused.limit_scope) == (RefusalClass.LIMIT, scope)


@settings(
    max_examples=examples(20),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    limit=st.integers(0, 40),
    wishes=st.lists(
        st.tuples(st.integers(0, 4), st.integers(0, 3), st.integers(1, 50)), min_size=1, max_size=5
    ),
)
async def test_no_slot_is_begun_with_a_launch_beyond_the_limit(tmp_path_factory, limit, wishes):
    """The job holds nothing over: every slot launches anew, so what is charged is what was permitted."""
    rig = await rig_of(tmp_path_factory.mktemp("spend"), Spending(total=day(limit)))
    for slot, (spot, on_demand, tenths) in enumerate(wishes):
        price = tenths * USD // 10
        await rig.run_slot(
            opened(slot, quote(price=price)), [(f"j-{slot}", lot(spot=spot, on_demand=on_demand))]
        )
        await rig.decide(slot, 9, 3599, [(f"j-{slot}", lot())])
    await rig.feed(opened(len(wishes), quote()))

    spent = rig.ledger.total_micro_usd()
    rig.close()

    assert spent <= limit * USD


async def test_launches_are_held_to_a_limit_that_was_raised_since(tmp_path):
    rig = await rig_of(tmp_path, Spending(total=day(2)))
    await rig.feed(opened(0, quote(price=USD)))
    first = held(await rig.decide(0, 0, 0, [("j", lot(spot=4))]))
    await rig.feed(
        LimitSet(
            kind=LimitKind.TOTAL,
            span_s=86_400,
            stated=2 * USD,
            most=6 * USD,
            before=2 * USD,
            by="ada",
            reason="why",
        )
    )
    await rig.feed(opened(1, quote(price=USD)))
    second = held(await rig.decide(1, 0, 0, [("j", lot(spot=4))]))
    rig.close()

    assert (first, second) == ({"j": 2}, {"j": 4})
