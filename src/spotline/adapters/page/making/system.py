"""Makes the page of the system."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from spotline.adapters.page.app import Model
from spotline.adapters.page.asked import PageAsked
from spotline.application.page.about import About, Stated
from spotline.application.page.log_tally import KindTally
from spotline.application.page.state import PageState
from spotline.domain.events.parking import EntryParked

_LINES = 100


@dataclass(frozen=True, slots=True)
class ParkedShown:
    """A parked entry with its content as JSON, empty where that is not known."""

    parked: EntryParked
    content: str


@dataclass(frozen=True, slots=True)
class SettingsOf:
    """The settings of a service."""

    service: str
    settings: tuple[Stated, ...]


def system_page(state: PageState, asked: PageAsked, found: Model) -> Model:
    """How the system is: live as its services say, recorded as its log does."""
    about: About = found["about"]
    operations = state.jobs.operations
    lines = list(state.tally.lines)[::-1]
    accounts = sorted({o.account_key for o in state.jobs.recent.offerings})
    return {
        "about": about,
        "status": about.system,
        "operations": operations,
        "parked": [
            ParkedShown(parked, about.parked_content.get(key, ""))
            for key, parked in operations.parked.items()
        ],
        "orphans": [operations.orphans[name] for name in sorted(operations.orphans)],
        "modes": [(account, operations.modes.get(account)) for account in accounts],
        "kinds": _kinds(state),
        "lines": lines[:_LINES],
        "more_lines": max(0, len(lines) - _LINES),
        "settings": _by_service(about.settings),
    }


def _kinds(state: PageState) -> Sequence[tuple[str, KindTally]]:
    return sorted(state.tally.kinds.items())


def _by_service(settings: Sequence[Stated]) -> list[SettingsOf]:
    by_service: dict[str, list[Stated]] = {}
    for stated in settings:
        service, _, name = stated.name.partition(".")
        by_service.setdefault(service, []).append(Stated(name=name or service, value=stated.value))
    return [SettingsOf(service, tuple(inside)) for service, inside in sorted(by_service.items())]
