"""A deadline as people write it: at a time, or a while after the submission."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Self

from pydantic import BeforeValidator, model_validator

from spotline.adapters.files.fields import A_TIME, FieldRow, Part, expected, time_ns
from spotline.adapters.files.units import seconds_of
from spotline.domain.jobs.job import Deadline, DeadlineKind
from spotline.domain.units import NS_PER_S

A_DEADLINE = f"{A_TIME}, or a while after the submission, such as 36h or 1d12h"

_LONGEST_S = 10 * 366 * 86_400


@dataclass(frozen=True, slots=True)
class After:
    """A while after the submission, in market time."""

    seconds: int


def _when(value: Any) -> Any:
    seconds = seconds_of(value) if isinstance(value, str) else None
    if seconds is None:
        return time_ns(value, A_DEADLINE)
    if not 0 < seconds <= _LONGEST_S:
        raise expected("a while > 0 and of ten years at most")
    return After(seconds)


When = Annotated[int | After, BeforeValidator(_when)]


class DeadlinePart(Part):
    """By when: `hard`, or `soft` with the time after which the result is worthless."""

    hard: Annotated[
        When | None,
        FieldRow(
            "deadline.at_ns",
            "time or duration | `hard` or `soft` is required | not done by then is a failure",
        ),
    ] = None
    soft: Annotated[
        When | None,
        FieldRow(
            "deadline.at_ns",
            "time or duration | | full value until then, linearly less until `worthless_after`",
        ),
    ] = None
    worthless_after: Annotated[
        When | None,
        FieldRow(
            "deadline.expires_ns",
            "time or duration | required with `soft` | no value from then on",
        ),
    ] = None

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        stated = f"{', '.join(sorted(self.model_fields_set)) or 'neither'}"
        if (self.hard is None) == (self.soft is None):
            raise expected("either hard, or soft with worthless_after", found=stated)
        if (self.soft is None) != (self.worthless_after is None):
            raise expected("worthless_after with soft, and only with soft", found=stated)
        soft, worthless = self.soft, self.worthless_after
        if isinstance(soft, After) and isinstance(worthless, After):
            late = worthless.seconds <= soft.seconds
        else:
            late = isinstance(soft, int) and isinstance(worthless, int) and worthless <= soft
        if late:
            raise expected(
                "a time after deadline.soft", at="worthless_after", found="one that is not"
            )
        return self

    @property
    def earliest_ns(self) -> int | None:
        """The time of `hard` or `soft`, None where it is a while after the submission."""
        stated = self.soft if self.hard is None else self.hard
        return stated if isinstance(stated, int) else None

    @property
    def relative(self) -> tuple[str, ...]:
        """The fields that are stated as a while after the submission."""
        return tuple(
            name
            for name in ("hard", "soft", "worthless_after")
            if isinstance(getattr(self, name), After)
        )

    def to_domain(self, now_ns: int) -> Deadline:
        """The deadline of a job that is submitted at a market time.

        Raises
        ------
        ValueError
            Nothing is left between `soft` and `worthless_after`, as one of them is a time.
        """
        if self.hard is not None:
            at_ns, after_s = _at(self.hard, now_ns)
            return Deadline(kind=DeadlineKind.HARD, at_ns=at_ns, expires_ns=at_ns, after_s=after_s)
        at_ns, after_s = _at(self.soft or 0, now_ns)
        expires_ns, expires_after_s = _at(self.worthless_after or 0, now_ns)
        return Deadline(
            kind=DeadlineKind.SOFT,
            at_ns=at_ns,
            expires_ns=expires_ns,
            after_s=after_s,
            expires_after_s=expires_after_s,
        )


def _at(when: int | After, now_ns: int) -> tuple[int, int]:
    """A time, ns since the epoch, and the seconds it was stated as (0: as a time)."""
    if isinstance(when, After):
        return now_ns + when.seconds * NS_PER_S, when.seconds
    return when, 0
