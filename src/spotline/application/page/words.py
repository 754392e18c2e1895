"""Every state, flag, reason and class in words: what it is called, and what it means.

`job_view.proto`, `allocation.proto` and `capacity.proto` say when each is which.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import NamedTuple

from spotline.application.board.messages import JobFlag, JobPhase, WaitingFor
from spotline.application.explaining.messages import AlternativeCut
from spotline.domain.events.capacity import RefusalClass
from spotline.domain.policies.answer import DecisionReason


class Said(NamedTuple):
    """What something is called, and what it means."""

    name: str
    means: str


_PHASES: Mapping[Enum, Said] = {
    JobPhase.WAITING: Said("waiting", "it holds nothing that trains"),
    JobPhase.RUNNING: Said("running", "it trains"),
    JobPhase.INTERRUPTED: Said(
        "interrupted", "instances were taken back, and it has not trained since"
    ),
    JobPhase.MOVING: Said("moving", "it changes its offering, and has not trained there yet"),
    JobPhase.SAVING: Said("saving", "instances will be taken back, and it saves before that"),
    JobPhase.FINISHING: Said("finishing", "its work is done, its program has not ended yet"),
    JobPhase.COMPLETED: Said("done in time", "its work was done by its deadline"),
    JobPhase.LATE: Said("done late", "its work was done after its soft deadline"),
    JobPhase.MISSED: Said("missed", "its work was not done by the time that counted"),
    JobPhase.FAILED: Said("failed", "its program failed, and no retry is left"),
    JobPhase.CANCELLED: Said("cancelled", "its owner withdrew it"),
    JobPhase.STOPPED_BY_LIMIT: Said(
        "stopped by its limit", "its budget was used up, and its owner wanted it stopped then"
    ),
    JobPhase.MARKET_ENDED: Said(
        "market ended", "no slot follows in this market: nothing more is decided"
    ),
}
_FLAGS: Mapping[Enum, Said] = {
    JobFlag.AT_RISK: Said("at risk", "it is less likely to be on time than it has to be"),
    JobFlag.STALLED: Said("stalled", "it holds instances, and its program reports nothing"),
}
_WAITS: Mapping[Enum, Said] = {
    WaitingFor.MARKET: Said("the market", "no slot has opened yet"),
    WaitingFor.START: Said("its start", "its owner does not want it to begin before then"),
    WaitingFor.SLOT: Said("the next slot", "it is taken up then"),
    WaitingFor.PRICE: Said("a better price", "its policy sees time enough to wait"),
    WaitingFor.CAPACITY: Said("capacity", "nothing is to be had, or it was refused"),
    WaitingFor.INSTANCES: Said("its instances", "they are bought, and its program starts on them"),
    WaitingFor.RETRY: Said("its next try", "its program failed and is started again"),
    WaitingFor.LIMIT: Said("a limit", "a budget, a cap or a quota allows no more"),
    WaitingFor.BUYING: Said("buying to go on", "somebody or something has stopped buying for it"),
}
_REASONS: Mapping[Enum, Said] = {
    DecisionReason.POLICY: Said("policy", "its policy chose this"),
    DecisionReason.SAFETY_NET: Said(
        "safety net", "the deadline left no more time to wait: the safety net chose this"
    ),
    DecisionReason.FORECAST_OVERDUE: Said(
        "forecast overdue", "no forecast came in time: a rule that needs none chose this"
    ),
    DecisionReason.FORECAST_UNTRUSTED: Said(
        "forecast not trusted", "the forecast is not trusted: a rule that needs none chose this"
    ),
    DecisionReason.ALLOCATOR_UNAVAILABLE: Said(
        "allocator did not answer", "the selector decided by itself"
    ),
    DecisionReason.LAUNCH_REFUSED: Said(
        "launch refused", "a launch was refused: the rest of the slot was decided again"
    ),
    DecisionReason.INTERRUPTED: Said(
        "interrupted", "instances were taken back: the rest of the slot was decided again"
    ),
    DecisionReason.BUDGET: Said("budget", "its budget allows no more"),
    DecisionReason.CLOSED: Said("closed", "it is over and needs nothing more"),
    DecisionReason.AFTER_DEADLINE: Said(
        "after the deadline", "its deadline is over: only on-demand counts from then on"
    ),
    DecisionReason.NO_CAPACITY: Said(
        "no capacity", "there are not enough instances for any count that it runs on"
    ),
    DecisionReason.RETRYING: Said("retrying", "its program failed and waits for its next try"),
    DecisionReason.FINISHING: Said(
        "finishing", "its work is done, and it keeps what it has until its program has ended"
    ),
}
_CUTS: Mapping[Enum, Said] = {
    AlternativeCut.AVAILABILITY: Said("not there", "there are not so many instances"),
    AlternativeCut.YIELDED: Said("yielded", "it was worth more to another job"),
    AlternativeCut.LIMIT: Said("limit", "a limit on money, or a stop of buying, forbids it"),
    AlternativeCut.QUOTA: Said("quota", "the account may not hold so many"),
    AlternativeCut.TOPOLOGY: Said("topology", "the job may not be spread like that"),
    AlternativeCut.SAFETY_NET: Said("safety net", "with it the deadline could be missed"),
    AlternativeCut.COOL_DOWN: Said("cooling down", "a launch there was refused a short time ago"),
    AlternativeCut.RULE: Said("rule", "a rule that comes before any price forbids it"),
}
_REFUSALS: Mapping[Enum, Said] = {
    RefusalClass.NO_CAPACITY: Said(
        "no capacity", "the provider has no more there: the offering cools down"
    ),
    RefusalClass.QUOTA: Said("quota", "the account may hold no more: raise its quota"),
    RefusalClass.UNSUPPORTED: Said("not sold there", "the provider cannot do this there"),
    RefusalClass.UNAUTHORISED: Said(
        "not allowed", "the account may not do this: a person has to look at its rights"
    ),
    RefusalClass.THROTTLED: Said("throttled", "too many calls: it is asked again later"),
    RefusalClass.SERVER: Said("fault of the provider", "the provider failed: it is asked again"),
    RefusalClass.NETWORK: Said("network", "the provider could not be reached"),
    RefusalClass.TOKEN_MISMATCH: Said(
        "token mismatch", "the token was used for another request, or its instances are gone"
    ),
    RefusalClass.UNKNOWN_OUTCOME: Said(
        "outcome unknown", "nobody knows yet whether it was done: it is being looked up"
    ),
    RefusalClass.LIMIT: Said("limit of ours", "a limit of Spotline: it says nothing of the cloud"),
}

WORDS: Mapping[Enum, Said] = MappingProxyType(
    {**_PHASES, **_FLAGS, **_WAITS, **_REASONS, **_CUTS, **_REFUSALS}
)
"""What is said of every member of these enumerations."""


def said(member: Enum) -> Said:
    """What a member is called and means.

    Raises
    ------
    KeyError
        It is of none of the enumerations above.
    """
    return WORDS[member]
