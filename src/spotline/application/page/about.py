"""What a server of pages knows of a run beside its log: under which settings it decides."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from spotline.application.selector.state import SelectorOptions
from spotline.domain.jobs.outlook import JobOutlook


@dataclass(frozen=True, slots=True, kw_only=True)
class Stated:
    """Something that a run says of itself: what it is called, and what it is."""

    name: str
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """Of which run the pages are.

    `selector` are the options that limits come from, None where they are not known. `versions` and
    `settings` are for people to read. `outlooks` are what is expected of open jobs now, by job.
    """

    selector: SelectorOptions | None = None
    versions: tuple[Stated, ...] = ()
    settings: tuple[Stated, ...] = ()
    outlooks: Mapping[str, JobOutlook] = field(default_factory=dict)


NOTHING_KNOWN = About()
