"""What `status --system` prints: first whether all is well and what to do, then a line for each."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spotline.application.health.conditions import ConditionKind
from spotline.application.market_view import ClockReading
from spotline.application.operations.messages import Condition, ServiceStatus, SystemStatus
from spotline.cli.system_view import headline, print_system

OWN = (
    "log",
    "bus",
    "publishing",
    "storage",
    "slots",
    "quotes",
    "feeds",
    "disk",
    "snapshot",
    "loop",
    "tasks",
)
OF_ALL = ("heard", "agreement", "parked", "freezes", "orphans")


def well(name: str) -> Condition:
    return Condition(name=name, healthy=True, detail=f"{name} is as it should be")


def service(name: str, *conditions: Condition, ready: bool = True) -> ServiceStatus:
    found = {condition.name: condition for condition in (*map(well, OWN), *conditions)}
    return ServiceStatus(service=name, ready=ready, heard_s_ago=1, conditions=tuple(found.values()))


WELL = SystemStatus(
    healthy=True,
    services=(service("allocator"), service("selector")),
    conditions=tuple(map(well, OF_ALL)),
    clock=ClockReading(market_ns=1_772_323_200_000_000_000, slot=34, slot_s=600),
)
CUT = Condition(
    name="log",
    healthy=False,
    detail="the log lost its end: it ends at 161",
    continue_with="spotline store check",
)


def unwell() -> SystemStatus:
    return replace(
        WELL,
        healthy=False,
        services=tuple(service(name, CUT, ready=False) for name in ("allocator", "selector")),
        parked=2,
    )


def printed(capsys: pytest.CaptureFixture[str], status: SystemStatus) -> list[str]:
    print_system(status)
    return capsys.readouterr().out.splitlines()


def test_what_is_well_says_so_first(capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed(capsys, WELL)
    assert lines[0] == "all is well: 2 services are ready"
    assert any(line.startswith("market") and line.endswith("slot 34") for line in lines)


def test_what_is_not_well_says_what_is_first_and_what_continues() -> None:
    assert headline(unwell()) == (
        "not well: the log lost its end: it ends at 161; next: spotline store check"
    )


def test_the_same_of_several_services_is_said_once(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    lines = [line for line in printed(capsys, unwell()) if line.startswith("log ")]
    assert len(lines) == 1
    assert lines[0].split()[:4] == ["log", "NO", "allocator,", "selector"]
    assert lines[0].endswith("next: spotline store check")


def test_a_service_that_is_not_ready_for_no_stated_reason_is_named() -> None:
    starting = replace(
        WELL, healthy=False, services=(service("allocator"), service("selector", ready=False))
    )
    assert headline(starting).startswith("not well: selector not ready")


@pytest.mark.parametrize("kind", list(ConditionKind))
def test_every_condition_has_a_line(
    capsys: pytest.CaptureFixture[str], kind: ConditionKind
) -> None:
    assert sum(line.split()[:1] == [kind.value] for line in printed(capsys, WELL)) >= 1


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_it_fits_on_a_screen(
    columns: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    nine = replace(WELL, services=tuple(service(f"service_{number}") for number in range(9)))
    lines = printed(capsys, nine)
    assert max(map(len, lines)) <= columns
    assert len(lines) <= 40


def test_what_others_wrote_cannot_command_the_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    hostile = Condition(name="parked", healthy=False, detail="\x1b]0;gotcha\x07", continue_with="")
    status = replace(WELL, healthy=False, conditions=(hostile,))
    assert "\x1b]" not in "\n".join(printed(capsys, status))
