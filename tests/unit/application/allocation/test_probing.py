"""A job asks first where going without knowing could cost more than the answer."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spotline.application.allocation.allocate import allocate
from spotline.application.allocation.messages import AllocateRequest
from spotline.domain.beliefs.probes import MARGIN, ProbeOdds, probe_price
from spotline.domain.market.offering import Count, Provenance
from spotline.domain.units import PPM
from tests.fakes.allocator import WEST, job
from tests.unit.application.selector.test_moves import OUT, UP, asked

AWAY_PRICE = 3_000_000


def odds(granted: int, granted_risk: int = 50_000, refused_risk: int = 950_000) -> ProbeOdds:
    return ProbeOdds(
        granted_ppm=granted,
        risk_if_granted_ppm=granted_risk,
        risk_if_refused_ppm=refused_risk,
        run_state=UP,
    )


def believed(
    found: ProbeOdds | None, *, home: int = OUT, shown: int = 4, cost_micro_usd: int = 5_000_000
) -> AllocateRequest:
    """A job at home that may go where `shown` instances are worth asking for, as far as is believed."""
    request = asked(job(), home=home, away=UP, away_price=AWAY_PRICE, cost_micro_usd=cost_micro_usd)
    quotes = tuple(
        replace(
            quoted,
            quote=replace(
                quoted.quote,
                spot_available=Count(instances=shown, provenance=Provenance.INFERRED),
            ),
        )
        if quoted.quote.offering_id == WEST
        else quoted
        for quoted in request.quotes
    )
    (task,) = request.tasks
    (place,) = task.alternatives
    risk = 0 if found is None else PPM - found.granted_ppm
    place = replace(place, spot_risk_ppm=risk, probe=found)
    return replace(request, quotes=quotes, tasks=(replace(task, alternatives=(place,)),))


def moved(request: AllocateRequest) -> bool:
    (answer,) = allocate(request).answers
    return answer.move is not None


def without(request: AllocateRequest) -> AllocateRequest:
    """The same, where nobody may ask."""
    (task,) = request.tasks
    (place,) = task.alternatives
    return replace(request, tasks=(replace(task, alternatives=(replace(place, probe=None),)),))


def test_a_job_that_would_go_not_knowing_asks_first_and_stays_until_it_knows() -> None:
    request = believed(odds(600_000))

    (worth,) = allocate(request).probe_worths

    assert (worth.offering_id, worth.job_id) == (WEST, request.tasks[0].job.job_id)
    assert worth.instances == request.tasks[0].job.max_instances
    assert worth.gain_micro_usd > MARGIN * probe_price(AWAY_PRICE, worth.instances)
    assert moved(without(request))
    assert not moved(request)


def test_a_job_that_dares_not_go_asks_where_spot_is_not_even_shown() -> None:
    request = believed(odds(200_000), shown=0)

    (worth,) = allocate(request).probe_worths

    assert worth.gain_micro_usd > 0
    assert not moved(without(request))
    assert not moved(request)


@pytest.mark.parametrize(
    "found",
    [
        odds(990_000, 10_000, 20_000),  # it goes whatever it is told
        odds(0),  # there is none
        odds(500_000, 500_000, 500_000),  # by the next slot all is forgotten
    ],
)
def test_nobody_asks_for_what_changes_nothing(found) -> None:
    request = believed(found)

    assert allocate(request).probe_worths == ()
    assert allocate(request).answers == allocate(without(request)).answers


def test_a_job_with_spot_at_home_asks_nowhere_for_the_same() -> None:
    assert allocate(believed(odds(600_000), home=UP)).probe_worths == ()


def test_without_leave_to_ask_all_is_as_before() -> None:
    answer = allocate(believed(None, cost_micro_usd=50_000))

    assert answer.probe_worths == ()
    assert answer.answers[0].move is not None


def test_later_in_a_slot_nobody_asks() -> None:
    assert allocate(replace(believed(odds(600_000)), offset_s=60)).probe_worths == ()
