"""The system as `status --system` prints it: what is not well and what continues come first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from spotline.application.health.conditions import ConditionKind
from spotline.cli.modes_view import mode_of
from spotline.cli.tables import Column, Kind, print_facts, print_line, print_table
from spotline.cli.wording import NOTHING, lasting, moment

if TYPE_CHECKING:
    from spotline.application.operations.messages import Condition, SystemStatus

_SERVICES = (Column("service"), Column("ready"), Column("heard", Kind.NUMBER, 1))
_CONDITIONS = (
    Column("condition"),
    Column("well"),
    Column("of", Kind.SENTENCE, 2),
    Column("what", Kind.SENTENCE),
)
_BAD = "red"


@dataclass(frozen=True, slots=True)
class _Line:
    """A condition as one line: of whom it is told, the same of several together."""

    condition: Condition
    services: tuple[str, ...]

    @property
    def said_of(self) -> str:
        if not self.services:
            return "the system"
        many = self.condition.healthy and len(self.services) > 1
        return f"{len(self.services)} services" if many else ", ".join(self.services)


def print_system(status: SystemStatus) -> None:
    """Print whether all is well and, if not, what is first and what continues; then all of it."""
    lines = list(_lines(status))
    print_line(headline(status), style="" if status.healthy else f"bold {_BAD}")
    print_line()
    print_table(
        _SERVICES,
        [
            (service.service, "yes" if service.ready else "NO", _heard(service.heard_s_ago))
            for service in status.services
        ],
        styles=["" if service.ready else _BAD for service in status.services],
    )
    print_line()
    print_table(
        _CONDITIONS,
        [
            (
                line.condition.name,
                "yes" if line.condition.healthy else "NO",
                line.said_of,
                _what(line),
            )
            for line in lines
        ],
        styles=["" if line.condition.healthy else _BAD for line in lines],
        whole=True,
    )
    print_line()
    print_facts(_facts(status))


def headline(status: SystemStatus) -> str:
    """Whether all is well; if not, what is first, and what to do next."""
    unready = [service.service for service in status.services if not service.ready]
    bad = [line for line in _lines(status) if not line.condition.healthy]
    if status.healthy:
        return f"all is well: {len(status.services)} services are ready"
    if not bad:
        return f"not well: {', '.join(unready)} not ready; next: wait, or see the logs of these"
    first = bad[0]
    more = f" (and {len(bad) - 1} more)" if len(bad) > 1 else ""
    following = first.condition.continue_with or "see below"
    return f"not well: {first.condition.detail}{more}; next: {following}"


def _lines(status: SystemStatus) -> Iterator[_Line]:
    """One line for each condition, and for each way in which it is not well; in a fixed order."""
    for kind in ConditionKind:
        told = [
            (service.service, condition)
            for service in status.services
            for condition in service.conditions
            if condition.name == kind.value and kind is not ConditionKind.HEARD
        ]
        well = [(name, condition) for name, condition in told if condition.healthy]
        ways: dict[tuple[str, str], list[tuple[str, Condition]]] = {}
        for name, condition in told:
            if not condition.healthy:
                way = (condition.detail, condition.continue_with)
                ways.setdefault(way, []).append((name, condition))
        for group in (*ways.values(), *([well] if well else [])):
            yield _Line(group[0][1], tuple(name for name, _ in group))
        for condition in status.conditions:
            if condition.name == kind.value:
                yield _Line(condition, ())


def _what(line: _Line) -> str:
    condition = line.condition
    if condition.healthy:
        # What each of several says of itself says nothing of the others.
        return condition.detail if len(line.services) < 2 else ""
    following = f"; next: {condition.continue_with}" if condition.continue_with else ""
    return f"{condition.detail}{following}"


def _heard(seconds: int) -> str:
    if seconds < 0:
        return "never"
    return "now" if seconds < 5 else f"{lasting(seconds)} ago"


def _facts(status: SystemStatus) -> Sequence[tuple[str, str]]:
    clock, checked = status.clock, status.agreement
    compared = NOTHING
    if checked is not None:
        differ = len(checked.disagreements)
        compared = f"slot {checked.slot}: " + (f"{differ} differences" if differ else "agreed")
    return (
        *(() if clock is None else (("mode", mode_of(clock).value),)),
        ("market", NOTHING if clock is None else f"{moment(clock.market_ns)}, slot {clock.slot}"),
        ("compared", compared),
        ("parked", str(status.parked)),
        ("frozen", str(len(status.freezes))),
        ("orphans", str(status.orphans)),
    )
