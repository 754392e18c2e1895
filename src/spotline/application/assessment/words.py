"""An assessment in words: the verdict, and what the lines rest on."""

from __future__ import annotations

from spotline.application.assessment.answer import Assessment, BreakEven
from spotline.application.assessment.prices import PriceFrom
from spotline.application.assessment.standing_in import HISTORY_CURRENCY
from spotline.domain.units import PPM

_PRICES = {
    PriceFrom.HISTORY: "from the price history, at the time and in the zone of each",
    PriceFrom.BILL: "as jobs on this bill paid for spot",
    PriceFrom.ASSUMED: "assumed, as neither history nor bill says it",
}
_NEARLY_ALL = 10_000  # millionths: what is nearer to all or none is said so


def verdict(told: Assessment) -> str:
    """The answer in one sentence."""
    if not told.jobs:
        return "Nothing can be said: no job on this bill could be assessed."
    currency = told.bill.currency
    best = told.headline
    if best is None:
        return f"You would save nothing: {_why_nothing(told)}"
    nothing = [factor(a.slack_ppm) for a in told.answers if not a.saves]
    besides = f"; nothing that can be told from 0 at {_listed(nothing)}" if nothing else ""
    share = 100 * best.saving.p50_micro / max(1, told.paid_micro)
    return (
        f"You would have saved {money(best.saving.p50_micro)} of {money(told.paid_micro)} {currency} "
        f"({share:.0f} %; p10 to p90: {money(best.saving.p10_micro)} to "
        f"{money(best.saving.p90_micro)}), had every job been allowed {factor(best.slack_ppm)} times "
        f"the time that it took{besides}."
    )


def _why_nothing(told: Assessment) -> str:
    if told.paid_micro and all(line.assessed.on_demand_micro == 0 for line in told.jobs):
        return "all of it ran on commitments, which are paid for in any case."
    most = max(told.answers, key=lambda a: (a.saving.p50_micro, a.slack_ppm))
    paid = f"{money(told.paid_micro)} {told.bill.currency} were paid"
    if most.saving.p50_micro <= 0:
        return f"{paid}, and at no slack would Spotline have cost less in half of the futures."
    return (
        f"{paid}, and at best, with {factor(most.slack_ppm)} times the time, "
        f"{money(most.saving.p10_micro)} to {money(most.saving.p90_micro)} (p10 to p90) would have been saved: "
        "that cannot be told from 0."
    )


def factor(slack_ppm: int) -> str:
    """A slack as people write it."""
    return f"{slack_ppm / PPM:.1f}" if slack_ppm % (PPM // 10) == 0 else f"{slack_ppm / PPM:g}"


def money(micro: int) -> str:
    """An amount without its currency."""
    return f"{micro / 1e6:,.2f}"


def _jobs(count: int) -> str:
    return "1 job" if count == 1 else f"{count:,} jobs"


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def break_even_words(found: BreakEven) -> str:
    """How much spot it takes."""
    if found.ahead == "always":
        return "however rare it is"
    if found.ahead == "never":
        return "never, even if always there"
    if found.share_ppm < _NEARLY_ALL:
        return "from under 1 % of the time"
    return f"from {100 * found.share_ppm / PPM:.0f} % of the time"


def rests_on(told: Assessment) -> list[tuple[str, str]]:
    """What was taken for granted, each with a name: for whoever doubts the answer."""
    stated = told.assumptions
    facts = [
        (
            "futures",
            f"{stated.futures} courses that spot may have taken, seed {stated.seed}; "
            f"{told.lived:,} of {_jobs(len(told.jobs))} lived through in each"
            + ("" if told.lived == len(told.jobs) else ", and stand for others like them"),
        )
    ]
    for use in told.priors:
        shares = sorted(use.share_ppm.values())
        facts.append(
            (
                "when spot was there",
                f"no bill says it: for {_jobs(use.jobs)} drawn from the {len(shares)} prior laws of "
                f"kind {use.kind}, with spot {100 * shares[0] / PPM:.0f} to "
                f"{100 * shares[-1] / PPM:.0f} % of the time (spotline priors show)",
            )
        )
    for price in told.prices:
        held = f"; {price.held:,} began before it does" if price.held else ""
        facts.append(
            (
                "spot prices",
                f"of {_jobs(price.jobs)} {_PRICES[price.source]}: "
                f"{100 * price.mean_ppm / PPM:.0f} % of the list price in the mean{held}",
            )
        )
    if told.bill.prices and told.bill.currency != HISTORY_CURRENCY:
        facts.append(
            (
                "price history",
                f"not used: it is in {HISTORY_CURRENCY}, the bill in {told.bill.currency}",
            )
        )
    facts += [
        ("deadlines", "none is on a bill: begin of the job plus so many times its time at work"),
        ("starts", f"{stated.launch_s} s without progress at every start or replacement"),
        (
            "interruptions",
            f"each throws away the last {stated.lost_s} s of work, or what there was",
        ),
        (
            "commitments",
            "carried in every line as they were paid: leaving them saves nothing",
        ),
        (
            "also carried",
            "traffic, disks and failed launches, in every line as they were paid",
        ),
        (
            "a gang",
            "is on spot whole or not at all; jobs take nothing from each other; what spot there is "
            "shows at once; that jobs on this bill did hold spot is not counted for it",
        ),
    ]
    return facts
