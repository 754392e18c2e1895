"""The JSON form of what people are shown: units in names, times as ISO 8601, null for unknown."""

from dataclasses import replace

import pytest

from spotline.adapters.web.encoding import answer, encoded, iso_of_ns, json_text
from spotline.application.allocator.happenings import JobHappening
from spotline.application.allocator.messages import (
    DeadlineOutlook,
    JobState,
    JobStatus,
    PlanRequest,
)
from spotline.application.board.messages import (
    FleetView,
    JobFlag,
    JobMoney,
    JobPhase,
    JobView,
    WaitingFor,
)
from spotline.application.explaining.messages import AlternativeCut
from spotline.application.market_view import ClockReading
from spotline.domain.events.event import Event
from spotline.domain.jobs.lot import Lot
from spotline.domain.modes import Mode
from spotline.domain.units import NS_PER_S, ns_from_rfc3339
from tests.samples.events import JOB, SAMPLES

# 2026-01-05T12:00:00Z
NOON_NS = 1_767_614_400 * NS_PER_S


def test_a_time_is_iso_8601_in_utc_with_the_decimals_it_has() -> None:
    assert iso_of_ns(NOON_NS) == "2026-01-05T12:00:00Z"
    assert iso_of_ns(NOON_NS + 250_000_000) == "2026-01-05T12:00:00.25Z"
    assert iso_of_ns(0) is None
    late = iso_of_ns(NOON_NS + 1)
    assert late is not None
    assert ns_from_rfc3339(late) == NOON_NS + 1


def test_a_time_loses_its_unit_and_everything_else_keeps_it() -> None:
    happening = JobHappening(seq=7, kind="decision", ts_event_ns=NOON_NS, text="waits")

    assert encoded(happening) == {
        "seq": 7,
        "kind": "decision",
        "ts_event": "2026-01-05T12:00:00Z",
        "text": "waits",
        "wall": None,
    }


def test_several_times_are_a_list() -> None:
    stated = encoded(PlanRequest(deadlines_ns=(NOON_NS, NOON_NS + NS_PER_S)))

    assert stated["deadlines"] == ["2026-01-05T12:00:00Z", "2026-01-05T12:00:01Z"]
    assert encoded(DeadlineOutlook(deadline_ns=NOON_NS, outlook=None)) == {
        "deadline": "2026-01-05T12:00:00Z",
        "outlook": None,
    }


def test_a_view_says_null_for_what_is_not_known_and_0_for_what_is_0() -> None:
    view = encoded(JobView(phase=JobPhase.WAITING, waiting_for=WaitingFor.SLOT))

    assert view["phase"] == "waiting"
    assert view["waiting_for"] == "slot"
    assert view["flags"] == []
    for unknown in ("since", "headline", "why", "latest_on_demand_start", "slack_s", "outlook"):
        assert view[unknown] is None, unknown
    assert view["money"]["spent_micro_usd"] == 0
    assert view["money"]["on_demand_micro_usd"] is None
    assert view["counts"]["interruptions"] == 0


def test_a_view_with_everything_says_everything() -> None:
    view = encoded(
        JobView(
            phase=JobPhase.RUNNING,
            since_ns=NOON_NS,
            flags=(JobFlag.AT_RISK, JobFlag.STALLED),
            held=(Lot(offering_id="aws/us-east-1/a/p5", spot=2),),
            latest_on_demand_start_ns=NOON_NS,
            slack_s=-60,
            money=JobMoney(spent_micro_usd=1_500_000, on_demand_micro_usd=4_000_000),
        )
    )

    assert view["flags"] == ["at_risk", "stalled"]
    assert view["held"] == [{"offering_id": "aws/us-east-1/a/p5", "spot": 2, "on_demand": 0}]
    assert view["slack_s"] == -60
    assert view["latest_on_demand_start"] == "2026-01-05T12:00:00Z"
    assert view["money"]["on_demand_micro_usd"] == 4_000_000


def test_worth_and_last_slot_of_a_job_are_not_known_before_it_has_them() -> None:
    pending = JobStatus(job=JOB, state=JobState.PENDING, submitted_ns=NOON_NS)

    before = encoded(pending)
    assert before["state"] == "pending"
    assert before["last_slot"] is None
    assert before["value_micro_usd"] is None
    assert before["policy_id"] is None
    assert before["job"]["deadline"]["kind"] in ("hard", "soft")

    worthless = replace(pending, state=JobState.MISSED_DEADLINE, deadline_slot=9, last_slot=0)
    after = encoded(worthless)
    assert after["value_micro_usd"] == 0
    assert after["last_slot"] == 0


def test_the_clock_comes_with_every_answer() -> None:
    clock = ClockReading(
        market_ns=NOON_NS, slot=3, slot_s=600, wall_ns=NOON_NS + 5 * 10**8, mode=Mode.LIVE
    )

    made = answer(clock, fleet=FleetView(spot=3))

    assert list(made) == ["clock", "fleet"]
    assert made["clock"] == {
        "market": "2026-01-05T12:00:00Z",
        "wall": "2026-01-05T12:00:00.5Z",
        "slot": 3,
        "slot_s": 600,
        "mode": "live",
    }
    assert answer(None)["clock"] is None
    before = encoded(replace(clock, slot=-1, wall_ns=0))
    assert (before["slot"], before["wall"]) == (None, None)


@pytest.mark.parametrize("event", SAMPLES, ids=lambda event: type(event).__name__)
def test_every_event_has_a_form_without_a_time_in_nanoseconds(event: Event) -> None:
    def keys(value: object) -> list[str]:
        if isinstance(value, dict):
            return [key for k, v in value.items() for key in (k, *keys(v))]
        return [key for v in value for key in keys(v)] if isinstance(value, list) else []

    made = encoded(event)

    assert made
    assert not [key for key in keys(made) if key.endswith("_ns")]
    assert json_text(made).startswith("{")


def test_enums_are_lower_case_words() -> None:
    assert encoded(AlternativeCut.SAFETY_NET) == "safety_net"


def test_what_has_no_form_is_refused() -> None:
    with pytest.raises(TypeError, match="bytes has no form in JSON"):
        encoded({"a": b"x"})
    with pytest.raises(ValueError, match="not JSON compliant"):
        json_text({"a": float("nan")})
