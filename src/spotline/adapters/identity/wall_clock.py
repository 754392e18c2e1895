"""The wall clock of credentials, which tests replace, and moments as our files write them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

Now = Callable[[], datetime]


def utc_now() -> datetime:
    """The wall clock, with its zone."""
    return datetime.now(UTC)


def written_moment(moment: datetime | None) -> str:
    """A moment to the second, as `2026-03-01T18:00:00Z`; empty for none."""
    if moment is None:
        return ""
    return moment.astimezone(UTC).replace(microsecond=0, tzinfo=None).isoformat() + "Z"
