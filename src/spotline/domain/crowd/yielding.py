"""Who left spot to whom, and what that gained: said of a clearing, so that people can follow it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from spotline.domain.crowd.bids import Option
from spotline.domain.policies.answer import Yielded


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A job's options in a clearing and the index of what it got."""

    job_id: str
    options: tuple[Option, ...]
    chosen: int

    @property
    def got(self) -> Option:
        """What it holds."""
        return self.options[self.chosen]

    @property
    def wanted(self) -> Option:
        """What it would hold if nobody else was there."""
        return max(self.options, key=lambda option: option.value_micro_usd)

    def loss_without(self, offering_id: str, spot: int) -> int:
        """What it would lose if it had to give up so much spot of an offering."""
        most = self.got.spot - spot
        rest = [
            option.value_micro_usd
            for option in self.options
            if option.spot <= (most if option.offering_id == offering_id else 0)
        ]
        return self.got.value_micro_usd - max(rest, default=self.got.value_micro_usd)


def yielded_to(claims: Sequence[Claim], *, weighted: bool = False) -> Mapping[str, Yielded]:
    """By job id, the spot that it wanted and did not get, and the job to which that is worth most.

    A job that got all that it bid for is not in it. Where bids were `weighted`, what is yielded may
    be worth less there: that is said.
    """
    holders: dict[str, list[Claim]] = {}
    for claim in sorted(claims, key=lambda claim: claim.job_id):
        if claim.got.spot:
            holders.setdefault(claim.got.offering_id, []).append(claim)
    # Most that yield at an offering are short of as much there: whom that costs most is one question.
    losses: dict[tuple[str, int], list[tuple[int, str]]] = {}
    found: dict[str, Yielded] = {}
    for claim in claims:
        if len(claim.options) == 1:
            continue
        wanted, got = claim.wanted, claim.got
        short = wanted.spot - (got.spot if got.offering_id == wanted.offering_id else 0)
        lost = wanted.value_micro_usd - got.value_micro_usd
        if short < 1 or lost <= 0:
            continue
        key = wanted.offering_id, short
        if key not in losses:
            losses[key] = _greatest_losses(holders.get(wanted.offering_id, ()), *key)
        others = [loss for loss in losses[key] if loss[1] != claim.job_id]
        if not others:
            continue
        loss, to_job_id = others[0]
        found[claim.job_id] = Yielded(
            offering_id=wanted.offering_id,
            spot=short,
            to_job_id=to_job_id,
            gain_micro_usd=loss - lost if weighted else max(0, loss - lost),
        )
    return found


def _greatest_losses(
    holders: Sequence[Claim], offering_id: str, spot: int
) -> list[tuple[int, str]]:
    """The two jobs that would lose most if they gave up so much spot, and what; greatest first."""
    losses = [
        (holder.loss_without(offering_id, min(spot, holder.got.spot)), holder.job_id)
        for holder in holders
    ]
    return sorted(losses, reverse=True)[:2]
