"""An explanation as the terminal shows it: a sentence, the alternatives, the inputs, the chain."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from spotline.cli.modes_view import paper_lines
from spotline.cli.tables import (
    Column,
    Kind,
    fact_lines,
    print_facts,
    print_line,
    print_table,
    table_lines,
    terminal_width,
)
from spotline.cli.wording import NOTHING, held_text, lasting, moment, probability, usd

if TYPE_CHECKING:
    from spotline.application.explaining.messages import (
        BidOption,
        ClearedBids,
        ConsideredAlternative,
        DecisionExplanation,
        DecisionInput,
    )

_DIVERGENCE = "divergence"
_COLUMNS = (
    Column("held", Kind.ID),
    Column("USD now", Kind.NUMBER, rank=3),
    Column("USD later", Kind.NUMBER, rank=2),
    Column("P(on time)", Kind.NUMBER, rank=1),
    Column("USD worse", Kind.NUMBER),
    Column("why not", Kind.SENTENCE, rank=1),
)
_BID_COLUMNS = (
    Column("bid", Kind.ID),
    Column("on", Kind.ID, rank=2),
    Column("USD more for it", Kind.NUMBER),
    Column("others lose", Kind.NUMBER, rank=1),
    Column("why not", Kind.SENTENCE, rank=1),
)
# Of alternatives that nothing cut, and of those that one thing cut.
_MOST_OPEN = 5
_MOST_CUT = 2
_SHOWN_OF_DIGEST = 12
_DIGEST = 64


def is_reproduced(explanation: DecisionExplanation) -> bool:
    """Whether the decision that was worked out again is the recorded one."""
    return all(each.kind != _DIVERGENCE for each in explanation.inputs)


def print_explanation(explanation: DecisionExplanation, *, everything: bool) -> None:
    """Print all of it; `everything` lists every alternative, otherwise the telling ones."""
    for line in paper_lines(explanation.clock):
        print_line(line, style="yellow")
    style = "bold" if is_reproduced(explanation) else "bold red"
    for line in fact_lines([("", explanation.summary)], _around(2)):
        print_line(line.strip(), style=style)
    decision = explanation.decision
    where = f"slot {decision.slot}, revision {decision.revision}"
    print_line()
    print_facts(
        [
            ("job", decision.job_id),
            ("decided", f"{moment(explanation.ts_event_ns)} ({where}, seq {explanation.seq})"),
            ("said", decision.explanation),
        ]
    )
    _print_alternatives(explanation, everything=everything)
    _print_bids(explanation, everything=everything)
    print_line()
    print_line("made from", style="bold")
    print_facts([(each.kind, _input_text(each)) for each in explanation.inputs])
    print_line()
    print_line("from quote to bill", style="bold")
    print_facts(
        [
            (f"{moment(link.ts_event_ns)[5:19].replace('T', ' ')}  seq {link.seq}", link.text)
            for link in explanation.chain
        ]
    )


def explanation_lines(explanation: DecisionExplanation, width: int) -> list[str]:
    """The sentence and the telling alternatives in lines of `width`, for what does not print."""
    home = _home_of(explanation.alternatives)
    rows = [_row(each, home) for each in _telling(explanation.alternatives)]
    table = table_lines(_COLUMNS, rows, width, whole=True)
    decided = f"{moment(explanation.ts_event_ns)} (slot {explanation.decision.slot})"
    return [
        *fact_lines([("why", explanation.summary), ("decided", decided)], width),
        "",
        *fact_lines([("where", f"{home} unless said")] if home else [], width),
        table.heading,
        *(line for row in table.rows for line in row),
        "",
        *_bid_lines(explanation, width),
        *fact_lines([("valued by", explanation.method)], width),
        *fact_lines([(each.kind, _input_text(each)) for each in explanation.inputs], width),
    ]


def _around(columns: int) -> int | None:
    width = terminal_width()
    return None if width is None else width + columns


def _print_alternatives(explanation: DecisionExplanation, *, everything: bool) -> None:
    alternatives = explanation.alternatives
    print_line()
    if not alternatives:
        print_facts([("alternatives", explanation.method)])
        return
    shown = list(alternatives) if everything else list(_telling(alternatives))
    home = _home_of(alternatives)
    print_line(
        f"alternatives, on {home} unless another is named" if home else "alternatives", style="bold"
    )
    styles = ["bold" if each.chosen else "" for each in shown]
    print_table(_COLUMNS, [_row(each, home) for each in shown], styles=styles, whole=True)
    left_out = len(alternatives) - len(shown)
    if left_out:
        print_line(f"{left_out} more with --all")
    print_facts([("valued by", explanation.method)])


def _print_bids(explanation: DecisionExplanation, *, everything: bool) -> None:
    """What it bid for where there was anything to clear for it."""
    cleared = explanation.clearing
    if cleared is None or (len(cleared.options) < 2 and not everything):
        return
    print_line()
    jobs = f"{cleared.jobs} job{'' if cleared.jobs == 1 else 's'}"
    print_line(f"bids, cleared with those of {jobs}", style="bold")
    styles = ["bold" if each.chosen else "" for each in cleared.options]
    rows = [_bid_row(each) for each in cleared.options]
    print_table(_BID_COLUMNS, rows, styles=styles, whole=True)
    print_facts(_bid_facts(cleared))


def _bid_lines(explanation: DecisionExplanation, width: int) -> list[str]:
    """The bids in lines of `width`, where there was anything to clear for the job."""
    cleared = explanation.clearing
    if cleared is None or len(cleared.options) < 2:
        return []
    table = table_lines(_BID_COLUMNS, [_bid_row(each) for each in cleared.options], width)
    return [
        table.heading,
        *(line for row in table.rows for line in row),
        "",
        *fact_lines(_bid_facts(cleared), width),
    ]


def _bid_row(each: BidOption) -> tuple[str, ...]:
    kinds = ((each.spot, "spot"), (each.on_demand, "on-demand"))
    held = " + ".join(f"{count} {kind}" for count, kind in kinds if count)
    lose = each.others_lose_micro_usd
    return (
        held or "nothing",
        each.offering_id,
        NOTHING if each.chosen else usd(each.more_micro_usd),
        NOTHING if lose is None else usd(lose),
        "got it" if each.chosen else each.why,
    )


def _bid_facts(cleared: ClearedBids) -> list[tuple[str, str]]:
    facts = [
        (
            "spot is scarce",
            f"one more on {worth.offering_id} is worth {usd(worth.micro_usd_per_instance_hour)} "
            "USD/h beyond its price",
        )
        for worth in cleared.spot_worth
    ]
    gap = cleared.gap_micro_usd
    best = (
        f"the best there is to within {usd(gap)} USD" if gap else "proven to be the best there is"
    )
    fair = cleared.fairness_cost_micro_usd
    cost = [("fairness", f"cost all jobs together {usd(fair)} USD")] if fair else []
    return [*facts, ("the clearing", best), *cost]


def _home_of(alternatives: Sequence[ConsideredAlternative]) -> str:
    """The offering that most alternatives are on."""
    places = [lot.offering_id for each in alternatives for lot in each.lots]
    return max(sorted(set(places)), key=places.count, default="")


def _telling(alternatives: Sequence[ConsideredAlternative]) -> Iterator[ConsideredAlternative]:
    """The chosen one, the best that nothing cut, and the best of what each thing cut."""
    met: dict[str, int] = {}
    home = _home_of(alternatives)
    for each in alternatives:
        away = any(lot.offering_id != home for lot in each.lots)
        kind = "" if each.cut is None else each.cut.value
        if away:
            # Every other offering has one.
            yield each
            continue
        met[kind] = met.get(kind, 0) + 1
        if each.chosen or not each.lots or met[kind] <= (_MOST_CUT if kind else _MOST_OPEN):
            yield each


def _row(each: ConsideredAlternative, home: str) -> tuple[str, ...]:
    held = held_text(each.lots)
    held = "nothing" if held == NOTHING else held
    away = [lot.offering_id for lot in each.lots if lot.offering_id != home]
    why = "chosen" if each.chosen else each.cut_detail
    if each.cut is not None:
        why = f"{each.cut.value.replace('_', ' ')}: {why}"
    if away:
        why = f"on {away[0]}{f'; {why}' if why else ''}"
    return (
        held,
        usd(each.immediate_cost_micro_usd),
        usd(each.cost_to_go_micro_usd),
        probability(each.on_time_probability_ppm),
        NOTHING if each.chosen else usd(each.worse_by_micro_usd),
        why,
    )


def _input_text(each: DecisionInput) -> str:
    """What an input says, and behind it which it is, where, and how old."""
    named = each.id[:_SHOWN_OF_DIGEST] if len(each.id) == _DIGEST else each.id
    behind = [named] if named else []
    if each.seq:
        behind.append(f"seq {each.seq}")
    if each.age_s:
        behind.append(f"{lasting(each.age_s)} old")
    return f"{each.text} ({', '.join(behind)})" if behind else each.text
