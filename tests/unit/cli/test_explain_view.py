"""Bids as the terminal shows them."""

from __future__ import annotations

from dataclasses import replace

from spotline.application.explaining.messages import BidOption, ClearedBids
from spotline.cli.explain_view import explanation_lines, print_explanation
from spotline.domain.policies.answer import SpotWorth
from tests.fakes.allocator import EAST
from tests.fakes.boards import EXPLANATION

BIDS = ClearedBids(
    jobs=12,
    options=(
        BidOption(
            offering_id=EAST,
            spot=2,
            on_demand=7,
            chosen=False,
            more_micro_usd=1_400_000,
            others_lose_micro_usd=3_940_000,
            why="worth USD 2.54 more to the others: they lose USD 3.94",
        ),
        BidOption(offering_id=EAST, spot=0, on_demand=0, chosen=True, more_micro_usd=0),
    ),
    spot_worth=(SpotWorth(offering_id=EAST, micro_usd_per_instance_hour=3_160_000),),
    gap_micro_usd=20_000,
    fairness_cost_micro_usd=500_000,
)


def test_bids_are_listed_with_what_the_others_would_lose(capsys) -> None:
    print_explanation(replace(EXPLANATION, clearing=BIDS), everything=False)

    printed = " ".join(capsys.readouterr().out.split())
    assert "bids, cleared with those of 12 jobs" in printed
    assert "1.40 3.94" in printed
    assert "one more on" in printed
    assert "is worth 3.16 USD/h beyond its price" in printed
    assert "the best there is to within 0.02 USD" in printed
    assert "cost all jobs together 0.50 USD" in printed


def test_watching_shows_the_bids_too_and_nothing_where_there_was_nothing_to_clear() -> None:
    bids = "\n".join(explanation_lines(replace(EXPLANATION, clearing=BIDS), 140))
    alone = "\n".join(
        explanation_lines(
            replace(EXPLANATION, clearing=replace(BIDS, options=BIDS.options[1:])), 140
        )
    )

    assert "2 spot + 7 on-demand" in bids
    assert "others lose" in bids
    assert "others lose" not in alone
