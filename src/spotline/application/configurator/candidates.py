"""What a draft leaves open, laid out as complete configurations with their predicted rates.

A *place* is an instance type of the live market (or one offering whose throughput is stated). On it
every batch size that may be tried gives a *curve*: the rate at every instance count, the global
batch being the same at all of them, since the batch is what convergence depends on.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Protocol, TypeAlias

from spotline.application.admission import MOST_INSTANCES, Refused
from spotline.application.configurator.futures import most_seen
from spotline.application.market_view import MarketView
from spotline.domain.configuration.configuration import (
    Configuration,
    Method,
    MethodOption,
    NoPrediction,
    Prediction,
)
from spotline.domain.configuration.gpus import GpuFacts, UnknownGpu, gpu_facts
from spotline.domain.configuration.interface import KnowledgeSource
from spotline.domain.configuration.rules import broken_rules
from spotline.domain.jobs.draft import JobDraft
from spotline.domain.jobs.job import DeadlineKind, Throughput
from spotline.domain.market.offering import Offering, Quote
from spotline.domain.units import S_PER_HOUR

# The usual way to tune on few GPUs. Cost does not choose it: it changes what is learned.
DEFAULT_METHOD = Method.LORA
DEFAULT_TOKENS_PER_SAMPLE = 2048

# Global batch sizes that fine-tuning recipes use; the smallest is tried however short the job is.
SMALLEST_BATCH = 8
LARGEST_BATCH = 128
# Larger batches are tried only where this many optimiser steps are left of the job.
FEWEST_STEPS = 100

# More instances than these are never chosen for an owner, only taken from him.
MOST_CHOSEN_INSTANCES = 64

# A count stays where it runs more likely than not, and hardly less likely than the curve's best.
LEAST_SUCCESS = 0.5
_SUCCESS_MARGIN = 0.1

# A hard deadline is planned on the rate that 80 % of jobs reach or exceed: nobody is sure of a
# rate, and the re-estimation from progress needs instances left to add when it turns out lower.
# A soft one is planned on the expected rate. The lower end of an interval is its 5 % quantile.
HARD_QUANTILE_PERCENT = 20
_Z_OF_QUANTILE = 0.8416
_Z_OF_LOWER_END = 1.6449

_STATED = "stated"


class Knowledge(Protocol):
    """The knowledge sources that completion may ask.

    Attributes
    ----------
    stack
        The software that jobs run with.
    """

    @property
    def stack(self) -> str:
        """The software that jobs run with."""
        ...

    def source(self, source_id: str = "") -> KnowledgeSource:
        """The source of this name, the default one where it is empty.

        Raises
        ------
        ValueError
            There is none of this name.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Place:
    """Where a job can run at one throughput: `key` is the instance type, or what is stated for it.

    `most_instances` is the largest count that one of its offerings is known to have had, and
    `MOST_CHOSEN_INSTANCES` where nobody tells its on-demand stock, which is taken as plenty, as in
    all planning. `most_spot` is the largest spot count seen.
    """

    key: str
    instance_type: str
    gpu: GpuFacts
    gpus_per_instance: int
    offerings: tuple[Offering, ...]
    most_instances: int
    most_spot: int
    stated: Throughput | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Point:
    """The rate at one instance count; `planned_tokens_per_hour` is what schedules are laid on."""

    count: int
    configuration: Configuration
    prediction: Prediction
    planned_tokens_per_hour: float


# Place key, batch size, and the options by name and value.
CurveKey: TypeAlias = tuple[str, int, tuple[tuple[str, str], ...]]


def _key_of(place: Place, batch_size: int, options: Sequence[MethodOption]) -> CurveKey:
    return place.key, batch_size, tuple((one.name, one.value) for one in options)


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
        return _key_of(self.place, self.batch_size, self.options)

    @property
    def counts(self) -> tuple[int, ...]:
        """The instance counts, ascending."""
        return tuple(point.count for point in self.points)

    def elsewhere(self, place: Place) -> CurveKey:
        """The same batch size and options at another place."""
        return _key_of(place, self.batch_size, self.options)


@dataclass(frozen=True, slots=True, kw_only=True)
class Menu:
    """All that may be chosen from.

    `curves` hold the counts that are worth having; `points` of every place, batch size and options
    hold all that may run, by count, for jobs that move.
    """

    curves: tuple[Curve, ...]
    points: dict[CurveKey, dict[int, Point]]


# --- places -----------------------------------------------------------------------------------


def places_of(draft: JobDraft, market: MarketView) -> tuple[Place, ...] | Refused:
    """The places of the market that the draft leaves open, by key, or why there is none."""
    refused = _unknown_names(draft, market)
    if refused is not None:
        return refused
    wanted = ""
    if draft.gpu_model:
        try:
            wanted = gpu_facts(draft.gpu_model).name
        except UnknownGpu as error:
            return Refused(field="draft.gpu_model", message=str(error))
    quoted = {slot_quote.quote.offering_id for slot_quote in market.quotes}
    grouped: dict[str, list[tuple[Offering, Throughput | None]]] = {}
    for offering in sorted(market.offerings, key=lambda one: one.offering_id):
        named = {offering.offering_id, offering.instance_type}
        if offering.offering_id not in quoted or (
            draft.offerings and not named & {*draft.offerings}
        ):
            continue
        stated = _stated_for(draft, offering)
        if _facts_of(offering) is not None and wanted in ("", _gpu_name(offering)):
            key = offering.instance_type
            if stated is not None and stated.offering == offering.offering_id:
                key = offering.offering_id
            grouped.setdefault(key, []).append((offering, stated))
    if not grouped:
        return _nowhere(draft, market, wanted)
    most_spot = _most_spot(market)
    most = {
        one.quote.offering_id: _most_instances(one.quote, most_spot.get(one.quote.offering_id, 0))
        for one in market.quotes
    }
    return tuple(_place(key, grouped[key], most, most_spot) for key in sorted(grouped))


def _place(
    key: str,
    members: Sequence[tuple[Offering, Throughput | None]],
    most: Mapping[str, int],
    most_spot: Mapping[str, int],
) -> Place:
    first, stated = members[0]
    offerings = tuple(offering for offering, _ in members)
    return Place(
        key=key,
        instance_type=first.instance_type,
        gpu=gpu_facts(first.gpu_model),
        gpus_per_instance=first.gpus_per_instance,
        offerings=offerings,
        most_instances=max(most[offering.offering_id] for offering in offerings),
        most_spot=max(1, *(most_spot[offering.offering_id] for offering in offerings)),
        stated=stated,
    )


def _facts_of(offering: Offering) -> GpuFacts | None:
    try:
        return gpu_facts(offering.gpu_model)
    except UnknownGpu:
        return None


def _gpu_name(offering: Offering) -> str:
    facts = _facts_of(offering)
    return "" if facts is None else facts.name


def _stated_for(draft: JobDraft, offering: Offering) -> Throughput | None:
    for key in (offering.offering_id, offering.instance_type, "*"):
        for throughput in draft.throughputs:
            if throughput.offering == key:
                return throughput
    return None


def _unknown_names(draft: JobDraft, market: MarketView) -> Refused | None:
    known = {offering.offering_id for offering in market.offerings}
    known |= {offering.instance_type for offering in market.offerings}
    for index, name in enumerate(draft.offerings):
        if name not in known:
            return Refused(
                field=f"draft.offerings[{index}]",
                message=f"must be a known offering or instance type, was {name!r}; known are "
                f"{', '.join(sorted(known))}",
            )
    return None


def _nowhere(draft: JobDraft, market: MarketView, wanted: str) -> Refused:
    if not market.quotes:
        return Refused(
            field="draft.offerings",
            message="cannot be chosen from yet: no slot of the market has opened",
        )
    there = sorted(
        {f"{one.instance_type} ({one.gpu_model or 'no GPU stated'})" for one in market.offerings}
    )
    within = f" within {', '.join(draft.offerings)}" if draft.offerings else ""
    if wanted:
        return Refused(
            field="draft.gpu_model",
            message=f"must be on the market{within}, was {draft.gpu_model!r}; there are "
            f"{', '.join(there)}",
        )
    return Refused(
        field="draft.offerings",
        message=f"must leave an instance type with a known GPU and a quote{within}; there are "
        f"{', '.join(there)}",
    )


def _most_spot(market: MarketView) -> dict[str, int]:
    """The largest spot count seen of every offering; where nobody tells, all that is chosen."""
    seen = most_seen(market)
    return {
        one.offering_id: min(
            MOST_CHOSEN_INSTANCES, seen.get(one.offering_id, MOST_CHOSEN_INSTANCES)
        )
        for one in market.offerings
    }


def _most_instances(quote: Quote, most_spot: int) -> int:
    stock = quote.on_demand_available
    return max(1, most_spot, stock.instances) if stock.known else MOST_CHOSEN_INSTANCES


# --- counts and batches -----------------------------------------------------------------------


def _counts_at(draft: JobDraft, place: Place, bound: int) -> tuple[int, ...]:
    """The counts to try on a place, none where what is stated does not fit its instances."""
    if draft.gpus:
        count, rest = divmod(draft.gpus, place.gpus_per_instance)
        if (
            rest
            or count > MOST_INSTANCES
            or (draft.allowed_counts and count != draft.allowed_counts[-1])
        ):
            return ()
        return draft.allowed_counts or (count,)
    return draft.allowed_counts or tuple(range(1, bound + 1))


def _batch_sizes(
    draft: JobDraft,
    counts_by_place: Iterable[tuple[Place, tuple[int, ...]]],
    tokens_per_sample: int,
) -> tuple[int, ...]:
    if draft.batch_size:
        return (draft.batch_size,)
    fixed = bool(draft.gpus or draft.allowed_counts)
    found: set[int] = set()
    for place, counts in counts_by_place:
        if not counts:
            continue
        whole = place.gpus_per_instance * (math.lcm(*counts) if fixed else 1)
        size = whole << max(0, math.ceil(math.log2(SMALLEST_BATCH / whole)))
        found.add(size)
        while (size := 2 * size) <= LARGEST_BATCH:
            if draft.tokens >= FEWEST_STEPS * size * tokens_per_sample:
                found.add(size)
    return tuple(sorted(found))


def tokens_per_sample_of(draft: JobDraft) -> int:
    """The sequence length stated, else the default."""
    return draft.tokens_per_sample or DEFAULT_TOKENS_PER_SAMPLE


def precision_of(draft: JobDraft, gpu: GpuFacts) -> str:
    """The precision stated, else what the GPU computes natively."""
    return draft.precision or ("bfloat16" if gpu.bfloat16 else "float16")


def configuration_on(
    draft: JobDraft, place: Place, count: int, batch_size: int, options: tuple[MethodOption, ...]
) -> Configuration:
    """The configuration of `count` instances of a place, a node each."""
    return Configuration(
        model_name=draft.model_name,
        method=draft.method or DEFAULT_METHOD,
        gpu_model=place.gpu.name,
        gpus=count * place.gpus_per_instance,
        nodes=count,
        tokens_per_sample=tokens_per_sample_of(draft),
        batch_size=batch_size,
        precision=precision_of(draft, place.gpu),
        expert_parallel=draft.expert_parallel or 1,
        model_parameters=draft.model_parameters,
        options=options,
    )


# --- the menu ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """A configuration to be predicted, and where it belongs."""

    place: Place
    count: int
    configuration: Configuration

    @property
    def key(self) -> CurveKey:
        one = self.configuration
        return _key_of(self.place, one.batch_size, one.options)


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
    rows, broken = _rows_of(draft, places, _option_sets(draft, speed_options))
    if not rows:
        return _misfit(draft, places, broken)
    predicted = _predicted(rows, source, stack)
    points: dict[CurveKey, dict[int, Point]] = {}
    curves_of: dict[CurveKey, _Row] = {}
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
        return _fails(draft, rows, predicted, source, stack)
    return Menu(curves=tuple(curves), points=points)


def _option_sets(
    draft: JobDraft, speed_options: Sequence[MethodOption]
) -> tuple[tuple[MethodOption, ...], ...]:
    """The options stated, else none or all that only change the speed."""
    if draft.options or not speed_options:
        return (draft.options,)
    return ((), tuple(sorted(speed_options, key=lambda option: option.name)))


def _rows_of(
    draft: JobDraft, places: Sequence[Place], option_sets: Sequence[tuple[MethodOption, ...]]
) -> tuple[list[_Row], dict[str, str]]:
    """Configurations without a broken rule, and one sentence per field of the rules broken."""
    bound = min(
        MOST_INSTANCES, MOST_CHOSEN_INSTANCES, max(place.most_instances for place in places)
    )
    tried = [(place, _counts_at(draft, place, bound)) for place in places]
    batches = _batch_sizes(draft, tried, tokens_per_sample_of(draft))
    # Of free counts most do not divide the batch: they are passed over before anything is built.
    free = not (draft.allowed_counts or draft.gpus)
    rows: list[_Row] = []
    broken: dict[str, str] = {}
    for place, counts in tried:
        for count, batch_size, options in product(counts, batches, option_sets):
            if free and count > 1 and batch_size % (count * place.gpus_per_instance):
                continue
            row = _Row(
                place=place,
                count=count,
                configuration=configuration_on(draft, place, count, batch_size, options),
            )
            faults = _faults(draft, row)
            if not faults:
                rows.append(row)
            for field, message in faults:
                broken.setdefault(field, message)
    return (_whole_sets(draft, rows) if draft.allowed_counts else rows), broken


def _faults(draft: JobDraft, row: _Row) -> list[tuple[str, str]]:
    """Fields and sentences of what is wrong with a configuration before it is tried."""
    found = [(rule.field, rule.message) for rule in broken_rules(row.configuration)]
    beyond = _beyond_stated(draft, row.count)
    return [*found, ("throughputs", beyond)] if beyond else found


def _whole_sets(draft: JobDraft, rows: Sequence[_Row]) -> list[_Row]:
    """Only places and batches on which every stated count may be tried."""
    tried = Counter(row.key for row in rows)
    return [row for row in rows if tried[row.key] == len(draft.allowed_counts)]


def _predicted(
    rows: Sequence[_Row], source: KnowledgeSource, stack: str
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


def _beyond_stated(draft: JobDraft, count: int) -> str:
    """Which stated throughput has no rate for a count, empty if none: they are all kept."""
    for throughput in draft.throughputs:
        if throughput.table and count > len(throughput.table):
            return (
                f"table on {throughput.offering} must reach {count} instances, "
                f"has {len(throughput.table)}"
            )
        if throughput.rate_per_hour(count) <= 0:
            return f"on {throughput.offering} must be > 0 for {count} instances"
    return ""


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


# --- refusals ---------------------------------------------------------------------------------


def _misfit(draft: JobDraft, places: Sequence[Place], broken: dict[str, str]) -> Refused:
    """Why no configuration may even be tried: the stated field at fault, and what would fit."""
    per_instance = sorted({place.gpus_per_instance for place in places})
    if draft.gpus and not broken:
        sizes = " or ".join(str(one) for one in per_instance)
        largest = f" and equal the largest of allowed_counts ({draft.allowed_counts[-1]} instances)"
        return Refused(
            field="draft.gpus",
            message=f"must be a multiple of an instance's GPUs ({sizes})"
            f"{largest if draft.allowed_counts else ''}, was {draft.gpus}",
        )
    stated = {
        "throughputs": draft.throughputs,
        "batch_size": draft.batch_size,
        "gpus": draft.gpus or draft.allowed_counts,
        "expert_parallel": draft.expert_parallel,
    }
    fields = [field for field in stated if field in broken and stated[field]] or sorted(broken)
    field = fields[0]
    return Refused(field=f"draft.{field}", message=broken[field] + _would_fit(draft, places, field))


def _would_fit(draft: JobDraft, places: Sequence[Place], field: str) -> str:
    if field != "batch_size":
        return ""
    needs = []
    for place in places:
        counts = _counts_at(draft, place, 1)
        if counts:
            whole = math.lcm(*(count * place.gpus_per_instance for count in counts))
            below = draft.batch_size // whole * whole
            nearest = f"{below} or {below + whole}" if below else f"{whole}"
            needs.append(f"{nearest} would fit {place.instance_type}")
    return f"; {', '.join(needs)}" if needs else ""


def _fails(
    draft: JobDraft,
    rows: Sequence[_Row],
    predicted: Sequence[Prediction | NoPrediction],
    source: KnowledgeSource,
    stack: str,
) -> Refused:
    """Why nothing that may be tried is expected to run."""
    said = [
        (prediction.success_probability, -index, prediction)
        for index, prediction in enumerate(predicted)
        if isinstance(prediction, Prediction)
    ]
    if not said:
        reason = next(one.reason for one in predicted if isinstance(one, NoPrediction))
        return Refused(
            field="draft.model_name",
            message=f"nothing is known of how {draft.model_name!r} runs: {reason}",
        )
    likelihood, negative, prediction = max(said, key=lambda one: one[:2])
    row = rows[-negative]
    one = row.configuration
    nearest = (
        f"nearest is {row.count} x {row.place.instance_type} ({one.gpus} {one.gpu_model}) with "
        f"batch {one.batch_size}, which runs with a probability of {likelihood * 100:.0f} %"
    )
    if prediction.peak_memory_gb:
        nearest += (
            f" and needs about {prediction.peak_memory_gb:.0f} GB on each GPU of "
            f"{row.place.gpu.memory_gb:.0f} GB"
        )
    if likelihood >= LEAST_SUCCESS:
        # It would run, but not at all of the counts that are stated.
        nearest += "; not every count of allowed_counts would run"
    field = _field_of_failure(draft)
    return Refused(
        field=f"draft.{field}",
        message=f"no configuration of {draft.model_name} that keeps what is stated is likely to "
        f"run: {nearest}{_smaller(draft, rows, source, stack)}",
    )


def _field_of_failure(draft: JobDraft) -> str:
    for field in ("batch_size", "tokens_per_sample", "gpus", "gpu_model", "method"):
        if getattr(draft, field):
            return field
    return "model_name"


def _smaller(draft: JobDraft, rows: Sequence[_Row], source: KnowledgeSource, stack: str) -> str:
    """Which smaller batch would run, where a batch is stated."""
    if not draft.batch_size:
        return "; a smaller model, a quantised method or larger GPUs would need less"
    tries = []
    for row in rows:
        one = row.configuration
        size = draft.batch_size
        while (size := size // 2) >= one.gpus:
            if size % one.gpus == 0:
                tries.append(configuration_on(draft, row.place, row.count, size, draft.options))
    answers = source.predict(tries, stack=stack) if tries else ()
    fit = [
        tried.batch_size
        for tried, answer in zip(tries, answers, strict=True)
        if isinstance(answer, Prediction) and answer.success_probability >= LEAST_SUCCESS
    ]
    return f"; batch_size {max(fit)} would fit" if fit else "; no smaller batch would fit either"
