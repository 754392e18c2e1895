"""Put an explanation together: one sentence, the alternatives, the inputs, the chain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from spotline.application.explaining.bidding import bids_of
from spotline.application.explaining.facts import DecidedTurn
from spotline.application.explaining.inputs import inputs_of
from spotline.application.explaining.messages import DecisionExplanation, DecisionInput
from spotline.application.explaining.trail import Trail, chain_of
from spotline.application.explaining.valuing import considered
from spotline.application.explaining.words import summary_of


def explained(
    trail: Trail, turn: DecidedTurn, differences: Sequence[str] = ()
) -> DecisionExplanation:
    """Explain a recorded decision from what was decided on.

    Parameters
    ----------
    trail
        The decision, and what the log holds around it.
    turn
        What it was made on, recomputed.
    differences
        In what the recomputed decision differs from the recorded one: named, not hidden.
    """
    decision = trail.decision
    inputs = inputs_of(trail, turn)
    if differences:
        text = "; ".join(differences)
        named = DecisionInput(kind="divergence", id="", seq=trail.mark.seq, age_s=0, text=text)
        again = turn.decision_of(decision.job_id)
        summary = (
            "This decision is not reproduced: "
            f"{text}. The numbers below are of what was recomputed."
        )
        if again is None:
            return DecisionExplanation(
                decision=decision,
                seq=trail.mark.seq,
                ts_event_ns=turn.market.now_ns,
                summary=summary,
                alternatives=(),
                method="none: nothing is recomputed",
                inputs=(named, *inputs),
                chain=chain_of(trail, turn),
            )
        told = explained(replace(trail, decision=again), turn)
        return replace(
            told, decision=decision, summary=f"{summary} {told.summary}", inputs=(named, *inputs)
        )
    found = considered(turn, decision, trail.refusals())
    return DecisionExplanation(
        decision=decision,
        seq=trail.mark.seq,
        ts_event_ns=turn.market.now_ns,
        summary=summary_of(trail, turn, found),
        alternatives=found.alternatives,
        method=found.method,
        inputs=inputs,
        chain=chain_of(trail, turn),
        clearing=bids_of(turn, decision.job_id),
    )
