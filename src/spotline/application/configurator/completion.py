"""A whole job of a draft: complete configurations ranked by expected cost to meet the deadline.

What is stated is never overridden. What is not is filled in by defaults where cost has no say
(method, sequence length, precision), and by the cheapest configuration where it has: GPU type,
instance counts, batch size. Nothing here is random; equal requests on equal markets and knowledge
give equal answers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from spotline.application.admission import (
    MOST_INSTANCES,
    Refused,
    all_refused,
    check_job,
    refuse_ended,
    refuse_far_deadline,
)
from spotline.application.allocation.on_demand_quote import (
    DEFAULT_QUOTE_MARGIN,
    on_demand_quote_micro_usd,
    with_margin,
)
from spotline.application.configurator.candidates import Curve, Menu, Point, menu_of
from spotline.application.configurator.messages import (
    Completion,
    CompletionRequest,
    ConfigurationOption,
)
from spotline.application.configurator.places import Place, places_of
from spotline.application.configurator.ports import Knowledge
from spotline.application.configurator.ranking import (
    ROOM_PPM,
    Candidate,
    PlannedOption,
    candidates_of,
    earliest_finish_ns,
    rank_options,
    warm_up_planning,
)
from spotline.application.configurator.throughput import throughput_of
from spotline.application.configurator.trials import configuration_on
from spotline.application.configurator.whole_job import (
    Basis,
    checkpoint_of,
    completed_job,
    job_with,
)
from spotline.application.market_view import MarketView
from spotline.contracts.reasons import Reason
from spotline.domain.configuration.configuration import MethodOption
from spotline.domain.configuration.models import UnknownModel, model_facts
from spotline.domain.jobs.draft import JobDraft
from spotline.domain.jobs.job import DeadlineKind, Job, Throughput
from spotline.domain.units import NS_PER_S, PPM, usd_from_micro_usd, utc_iso

__all__ = ["DEFAULT_MOST_OPTIONS", "Knowledge", "complete", "warm_up"]

# Options returned unless the request says how many.
DEFAULT_MOST_OPTIONS = 10


def complete(
    request: CompletionRequest,
    market: MarketView,
    knowledge: Knowledge,
    *,
    speed_options: Sequence[MethodOption] = (),
) -> Completion | Refused:
    """Fill in what the draft leaves out so that its deadline is met at the least expected cost.

    Parameters
    ----------
    request
        The draft, the knowledge source to ask and how many options to return.
    market
        The live market; only offerings with a quote and a known GPU are considered.
    knowledge
        Gives the source and names the software stack.
    speed_options
        Options of that software that change the speed alone (`fast_kernels`); where the draft
        states no options, it is completed with none or all of them.

    Returns
    -------
    Completion
        The job, with throughputs for every instance type that runs all of its counts, and the best
        options, the first one chosen.
    Refused
        The field of the draft at fault, the rule it breaks, and what would fit; for a deadline
        that nothing meets, the earliest that can be met.

    Raises
    ------
    ValueError
        There is no such source.
    """
    draft = request.draft
    source = knowledge.source(request.source_id)
    refused = _unusable(draft, market)
    if refused is not None:
        return refused
    places = places_of(draft, market)
    if isinstance(places, Refused):
        return places
    menu = menu_of(draft, places, source, knowledge.stack, speed_options)
    if isinstance(menu, Refused):
        return menu
    whole = bool(draft.allowed_counts or draft.gpus)
    outline = _outline(draft, menu.curves)
    if draft.value_from_quote:
        outline = replace(outline, value_micro_usd=_worth(market, outline, menu.curves))

    ranked = rank_options(menu.curves, market, outline, _throughput, whole=whole)
    if not ranked:
        return _too_late(draft, market, menu.curves, outline)
    basis = Basis(
        source_id=source.source_id,
        stack=knowledge.stack,
        gpu_models=len({place.gpu.name for place in places}),
    )
    job = completed_job(
        draft, ranked[0].candidate, _same_batch(ranked[0], menu, places), places, basis
    )
    unfit = check_job(market, job)
    if unfit is not None:
        return replace(unfit, field=unfit.field.replace("job.", "draft.", 1))
    most = request.most_options or DEFAULT_MOST_OPTIONS
    return Completion(
        job=job,
        options=_options(ranked, hard=draft.deadline.kind is DeadlineKind.HARD)[:most],
        considered=len(candidates_of(menu.curves, whole=whole)),
    )


def _unusable(draft: JobDraft, market: MarketView) -> Refused | None:
    """What no configuration could heal, all of it."""
    ended = refuse_ended(market, "draft.start_ns")
    if ended is not None:
        return ended
    return all_refused(
        (
            _unknown_model(draft),
            _early_deadline(draft),
            refuse_far_deadline(market, draft, "draft.deadline"),
            *_absurd(draft, market),
            *_repeated_throughputs(draft),
        )
    )


def _unknown_model(draft: JobDraft) -> Refused | None:
    try:
        model_facts(draft.model_name, draft.model_parameters)
    except UnknownModel as error:
        return Refused(field="draft.model_name", message=str(error))
    return None


def _early_deadline(draft: JobDraft) -> Refused | None:
    if draft.deadline.at_ns - draft.start_ns < NS_PER_S:
        return Refused(field="draft.deadline", message="must lie after start_ns")
    return None


def _absurd(draft: JobDraft, market: MarketView) -> Iterator[Refused]:
    """As `admission`, but before anything is laid out in that many slots or instances."""
    if draft.allowed_counts and draft.allowed_counts[-1] > MOST_INSTANCES:
        yield Refused(
            field="draft.allowed_counts",
            message=f"must be <= {MOST_INSTANCES}, was {draft.allowed_counts[-1]}",
        )
    largest = max((offering.gpus_per_instance for offering in market.offerings), default=1)
    if draft.gpus > MOST_INSTANCES * largest:
        yield Refused(
            field="draft.gpus",
            message=f"must be <= {MOST_INSTANCES * largest} ({MOST_INSTANCES} instances of the "
            f"largest type), was {draft.gpus}",
        )


def _repeated_throughputs(draft: JobDraft) -> Iterator[Refused]:
    names = [throughput.offering for throughput in draft.throughputs]
    for index, throughput in enumerate(draft.throughputs):
        if names.index(throughput.offering) != index:
            yield Refused(
                field=f"draft.throughputs[{index}].offering",
                message=f"must be stated once, {throughput.offering!r} is stated again",
            )


def _outline(draft: JobDraft, curves: Sequence[Curve]) -> Job:
    """The job with everything that no choice changes; counts and throughput are placeholders."""
    place = curves[0].place
    checkpoint = checkpoint_of(
        draft, configuration_on(draft, place, 1, place.gpus_per_instance, draft.options)
    )
    return job_with(draft, checkpoint, (1,), (Throughput(offering="*", alpha=1.0),))


def _worth(market: MarketView, outline: Job, curves: Sequence[Curve]) -> int:
    """What being on time is taken to be worth in ranking, where the owner leaves it to the quote.

    By the cheapest quote of all that may be chosen, micro-USD: without it, a configuration that is
    late would be as good as any.
    """
    quotes = []
    for curve in curves:
        whole = Candidate(curve=curve, size=len(curve.points))
        job = replace(outline, allowed_counts=whole.counts, throughputs=(_throughput(whole),))
        quotes.append(on_demand_quote_micro_usd(market, job))
    return with_margin(min(filter(None, quotes), default=0), DEFAULT_QUOTE_MARGIN)


def _throughput(candidate: Candidate) -> Throughput:
    place = candidate.curve.place
    if place.stated is not None:
        return place.stated
    points = candidate.curve.points[: candidate.size]
    return throughput_of(
        place.key, {point.count: point.planned_tokens_per_hour for point in points}
    )


def _same_batch(
    chosen: PlannedOption, menu: Menu, places: Sequence[Place]
) -> Mapping[str, Mapping[int, Point]]:
    curve = chosen.candidate.curve
    return {place.key: menu.points.get(curve.elsewhere(place), {}) for place in places}


def _too_late(
    draft: JobDraft, market: MarketView, curves: Sequence[Curve], outline: Job
) -> Refused:
    earliest_ns = earliest_finish_ns(curves, market, outline)
    # A message carries whole seconds; rounded down, the answer itself would be refused.
    earliest_ns = -(-earliest_ns // NS_PER_S) * NS_PER_S
    hard = draft.deadline.kind is DeadlineKind.HARD
    asked_ns = draft.deadline.at_ns if hard else draft.deadline.expires_ns
    return Refused(
        field="draft.deadline",
        message=f"cannot be met: {utc_iso(asked_ns)} was asked for, but the fastest configuration "
        f"that keeps what is stated is done at {utc_iso(earliest_ns)} at the earliest, on demand",
        earliest_feasible_deadline_ns=earliest_ns,
        reason=Reason.DEADLINE_INFEASIBLE,
    )


# --- options ----------------------------------------------------------------------------------


def _options(ranked: Sequence[PlannedOption], *, hard: bool) -> tuple[ConfigurationOption, ...]:
    found = []
    for index, option in enumerate(ranked):
        candidate = option.candidate
        largest = candidate.curve.points[candidate.size - 1]
        place = candidate.curve.place
        prediction = largest.prediction
        found.append(
            ConfigurationOption(
                configuration=largest.configuration,
                instance_type=place.instance_type,
                offering_id=option.offering_id,
                allowed_counts=candidate.counts,
                throughput=_throughput(candidate),
                tokens_per_s=prediction.tokens_per_s,
                low_tokens_per_s=prediction.low_tokens_per_s,
                high_tokens_per_s=prediction.high_tokens_per_s,
                success_ppm=round(candidate.success_probability * PPM),
                expected_cost_micro_usd=option.expected_cost_micro_usd,
                on_time_probability_ppm=option.on_time_ppm,
                expected_utility_micro_usd=option.expected_utility_micro_usd,
                policy_id=option.policy_id,
                chosen=index == 0,
                why=_why_chosen(ranked, hard=hard)
                if index == 0
                else _why_not(option, ranked[0], hard=hard),
            )
        )
    return tuple(found)


def _why_chosen(ranked: Sequence[PlannedOption], *, hard: bool) -> str:
    chosen, sure = ranked[0], sum(option.sure for option in ranked)
    cost = f"{usd_from_micro_usd(chosen.expected_cost_micro_usd):.2f} USD"
    if not chosen.sure:
        return (
            f"likeliest to be on time, in {chosen.on_time_ppm / 10_000:.0f} % of the futures, for "
            f"{cost}; none reaches the 99 % that a hard deadline asks for"
        )
    among = f"the {sure} planned that meet the hard deadline" if hard else f"the {sure} planned"
    if chosen.expected_utility_micro_usd < 0:
        cost += ", more than the job is worth"
    what = (
        "least expected cost" if hard else "most expected value less cost, at an expected cost of"
    )
    what += f" ({cost})" if hard else f" {cost},"
    if min(ranked, key=lambda option: option.rank) is not chosen:
        within = f"within {ROOM_PPM / 10_000:.0f} % of the"
        return f"{within} {what} among {among}, with more counts to grow to if it runs slower"
    return f"{what} among {among}"


def _why_not(option: PlannedOption, chosen: PlannedOption, *, hard: bool) -> str:
    if not option.sure:
        return (
            f"on time in {option.on_time_ppm / 10_000:.0f} % of the futures; "
            "a hard deadline asks for 99 %"
        )
    less = chosen.expected_utility_micro_usd - option.expected_utility_micro_usd
    if less < 0:
        return f"{usd_from_micro_usd(-less):.2f} USD better, but with fewer counts to grow to"
    if hard:
        return f"{usd_from_micro_usd(less):.2f} USD dearer than the chosen one"
    return f"{usd_from_micro_usd(less):.2f} USD less expected value than the chosen one"


def warm_up() -> None:
    """Compile the replay, or load it compiled, before the first draft needs it."""
    warm_up_planning()
