"""What a draft leaves open, laid out as complete configurations with their predicted rates.

A *place* is an instance type of the live market (or one offering whose throughput is stated). On it
every batch size that may be tried gives a *curve*: the rate at every instance count, the global
batch being the same at all of them, since the batch is what convergence depends on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from spotline.application.admission import Refused
from spotline.application.configurator.misfits import LEAST_SUCCESS, all_fail, misfit
from spotline.application.configurator.places import Place
from spotline.application.configurator.trials import (
    CurveKey,
    Trial,
    curve_key,
    option_sets_of,
    trials_of,
)
from spotline.domain.configuration.configuration import (
    Configuration,
    MethodOption,
    NoPrediction,
    Prediction,
)
from spotline.domain.configuration.interface import KnowledgeSource
from spotline.domain.jobs.draft import JobDraft
from spotline.domain.jobs.job import DeadlineKind, Throughput
from spotline.domain.units import S_PER_HOUR

# A count is worth having where it is hardly less likely to run than the curve's best.
_SUCCESS_MARGIN = 0.1

# A hard deadline is planned on the rate that 80 % of jobs reach or exceed: no plan is sure of a
# rate, and the re-estimation from progress needs instances left to add when it turns out lower.
# A soft one is planned on the expected rate. The lower end of an interval is its 5 % quantile.
HARD_QUANTILE_PERCENT = 20
_Z_OF_QUANTILE = 0.8416
_Z_OF_LOWER_END = 1.6449

_STATED = "stated"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Point:
    """The rate at one instance count; `planned_tokens_per_hour` is what schedules are laid on."""

    count: int
    configuration: Configuration
    prediction: Prediction
    planned_tokens_per_hour: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Curve:
    """Rates over instance counts, ascending, of one place, batch size and set of options."""

    place: Place
    batch_size: int
    options: tuple[MethodOption, ...]
    points: tuple[Point, ...]

    @property
    def key(self) -> CurveKey:
        """What it is of, to sort and to look up by."""
        return curve_key(self.place, self.batch_size, self.options)

    @property
    def counts(self) -> tuple[int, ...]:
        """The instance counts, ascending."""
        return tuple(point.count for point in self.points)

    def elsewhere(self, place: Place) -> CurveKey:
        """The same batch size and options at another place."""
        return curve_key(place, self.batch_size, self.options)


@dataclass(frozen=True, slots=True, kw_only=True)
class Menu:
    """All that may be chosen from.

    `curves` hold the counts that are worth having; `points` of every place, batch size and options
    hold all that may run, by count, for jobs that move.
    """

    curves: tuple[Curve, ...]
    points: dict[CurveKey, dict[int, Point]]


def menu_of(
    draft: JobDraft,
    places: Sequence[Place],
    source: KnowledgeSource,
    stack: str,
    speed_options: Sequence[MethodOption] = (),
) -> Menu | Refused:
    """Lay out everything that fits the draft and runs more likely than not, or say what breaks.

    One call of the source predicts all of it: sources are slow per call, not per row.
    """
    rows, broken = trials_of(draft, places, option_sets_of(draft, speed_options))
    if not rows:
        return misfit(draft, places, broken)
    predicted = _predicted(rows, source, stack)
    points: dict[CurveKey, dict[int, Point]] = {}
    curves_of: dict[CurveKey, Trial] = {}
    hard = draft.deadline.kind is DeadlineKind.HARD
    for row, prediction in zip(rows, predicted, strict=True):
        if isinstance(prediction, Prediction) and prediction.success_probability >= LEAST_SUCCESS:
            curves_of.setdefault(row.key, row)
            points.setdefault(row.key, {})[row.count] = Point(
                count=row.count,
                configuration=row.configuration,
                prediction=prediction,
                planned_tokens_per_hour=_planned_per_hour(prediction, hard=hard),
            )
    curves = [
        Curve(
            place=row.place,
            batch_size=row.configuration.batch_size,
            options=row.configuration.options,
            points=kept,
        )
        for key, row in sorted(curves_of.items(), key=lambda item: item[0])
        if (kept := _worth_having(draft, row.place, points[key]))
    ]
    if not curves:
        return all_fail(draft, rows, predicted, source, stack)
    return Menu(curves=tuple(curves), points=points)


def _predicted(
    rows: Sequence[Trial], source: KnowledgeSource, stack: str
) -> list[Prediction | NoPrediction]:
    unknown = [row.configuration for row in rows if row.place.stated is None]
    told = iter(source.predict(unknown, stack=stack) if unknown else ())
    return [
        next(told) if row.place.stated is None else _stated_rate(row.place.stated, row.count)
        for row in rows
    ]


def _stated_rate(throughput: Throughput, count: int) -> Prediction:
    """What the owner says of a rate is taken as it is: he has run it."""
    per_s = throughput.rate_per_hour(count) / S_PER_HOUR
    return Prediction(
        source_id=_STATED,
        tokens_per_s=per_s,
        low_tokens_per_s=per_s,
        high_tokens_per_s=per_s,
        success_probability=1.0,
        basis="stated by the job's owner",
    )


def _planned_per_hour(prediction: Prediction, *, hard: bool) -> float:
    rate = prediction.tokens_per_s
    if hard:
        lower = prediction.low_tokens_per_s / rate
        rate *= lower ** (_Z_OF_QUANTILE / _Z_OF_LOWER_END)
    return rate * S_PER_HOUR


def _worth_having(draft: JobDraft, place: Place, by_count: dict[int, Point]) -> tuple[Point, ...]:
    """All stated counts or none; of others those that are there, likely to run, and faster."""
    if draft.allowed_counts or draft.gpus:
        asked = draft.allowed_counts or tuple(by_count)
        return tuple(by_count[n] for n in asked) if set(asked) <= set(by_count) else ()
    there = [by_count[n] for n in sorted(by_count) if n <= place.most_instances]
    if not there:
        return ()
    likeliest = max(point.prediction.success_probability for point in there)
    kept: list[Point] = []
    for point in there:
        likely = point.prediction.success_probability >= likeliest - _SUCCESS_MARGIN
        faster = not kept or point.planned_tokens_per_hour > kept[-1].planned_tokens_per_hour
        if likely and faster:
            kept.append(point)
    return tuple(kept)
