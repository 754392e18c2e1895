"""How much notice a provider guarantees before it takes spot back, by its own documentation.

A lead that comes "on a best effort basis" is no lead that a hard deadline may be built on: where
none is guaranteed, the work since the last checkpoint is taken to be lost. A cloud that knows better, by
a contract or from years of own data, states it in the market file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import overload

from spotline.domain.market.grid import AnyMarket
from spotline.domain.market.market import Market
from spotline.domain.market.offering import Offering


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentedNotice:
    """Seconds that a provider announces and seconds that it guarantees, and where it says so."""

    announced_s: int
    guaranteed_s: int
    source: str


DOCUMENTED: Mapping[str, DocumentedNotice] = MappingProxyType(
    {
        "aws": DocumentedNotice(
            announced_s=120,
            guaranteed_s=0,
            source="https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/"
            "spot-instance-termination-notices.html: notices are emitted on a best effort basis",
        ),
        "gcp": DocumentedNotice(
            announced_s=30,
            guaranteed_s=0,
            source="https://cloud.google.com/compute/docs/instances/preemptible: a best effort "
            "shutdown period of up to 30 seconds",
        ),
        "azure": DocumentedNotice(
            announced_s=30,
            guaranteed_s=0,
            source="https://learn.microsoft.com/azure/architecture/guide/spot/spot-eviction: at "
            "any moment, with up to 30 seconds of notice",
        ),
        "prime-intellect": DocumentedNotice(
            announced_s=0, guaranteed_s=0, source="resells others; documents no notice"
        ),
    }
)


def guaranteed_notice_s(provider: str) -> int | None:
    """The notice that a provider's documentation guarantees, None for one that is not listed."""
    documented = DOCUMENTED.get(provider)
    return None if documented is None else documented.guaranteed_s


def announced_notice_s(offering: Offering) -> int:
    """How long after a notice a provider takes an instance, by its word: best effort where more than is guaranteed."""
    documented = DOCUMENTED.get(offering.provider)
    announced_s = 0 if documented is None else documented.announced_s
    return max(announced_s, offering.notice_lead_s or 0)


@overload
def sold_by(market: Market, notice_lead_s: int) -> Market: ...


@overload
def sold_by(market: AnyMarket, notice_lead_s: int) -> AnyMarket: ...


def sold_by(market: AnyMarket, notice_lead_s: int) -> AnyMarket:
    """The market as a cloud sells it that gives this much notice, which no offering exceeds.

    The cloud that takes instances back gives the notice: an offering of which no more is said than
    its provider's documentation takes that of the cloud that sells it here, a simulated one say.
    """

    def sold(offering: Offering) -> Offering:
        stated = offering.notice_lead_s
        if stated is None or stated == guaranteed_notice_s(offering.provider):
            return replace(offering, notice_lead_s=notice_lead_s)
        return replace(offering, notice_lead_s=min(stated, notice_lead_s))

    return replace(market, offerings=tuple(map(sold, market.offerings)))
