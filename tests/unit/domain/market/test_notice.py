from dataclasses import replace

import pytest

from spotline.domain.market.generate import generate
from spotline.domain.market.notice import DOCUMENTED, guaranteed_notice_s, sold_by
from spotline.domain.units import NS_PER_S


def test_a_notice_on_a_best_effort_basis_is_no_guarantee():
    assert DOCUMENTED["aws"].announced_s == 120
    assert guaranteed_notice_s("aws") == 0
    assert guaranteed_notice_s("a-cloud-that-nobody-knows") is None


@pytest.mark.parametrize(("cloud_s", "expected_s"), [(30, 30), (120, 120), (600, 120)])
def test_no_offering_gives_more_notice_than_its_cloud(cloud_s, expected_s):
    market = generate("mixed", seed=1, slots=4, slot_s=1800, start_ns=1_767_571_200 * NS_PER_S)

    sold = sold_by(market, cloud_s)

    assert {offering.notice_lead_s for offering in sold.offerings} == {expected_s}


@pytest.mark.parametrize("cloud_s", [0, 120])
def test_who_takes_back_gives_the_notice_where_only_documentation_speaks(cloud_s):
    market = generate("mixed", seed=1, slots=4, slot_s=1800, start_ns=1_767_571_200 * NS_PER_S)
    unsaid = (
        replace(offering, provider="aws", notice_lead_s=0 if number else None)
        for number, offering in enumerate(market.offerings)
    )

    sold = sold_by(replace(market, offerings=tuple(unsaid)), cloud_s)

    assert {offering.notice_lead_s for offering in sold.offerings} == {cloud_s}
