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


class SaidWords(NamedTuple):
    """What something is called, and what it means."""

    name: str
    means: str


_PHASES: Mapping[Enum, SaidWords] = {
    JobPhase.WAITING: SaidWords("waiting", "it holds nothing that trains"),
    JobPhase.RUNNING: SaidWords("running", "it trains"),
    JobPhase.INTERRUPTED: SaidWords(
        "interrupted", "instances were taken back, and it has not trained since"
    ),
    JobPhase.MOVING: SaidWords("moving", "it changes its offering, and has not trained there yet"),
    JobPhase.SAVING: SaidWords("saving", "instances will be taken back, and it saves before that"),
    JobPhase.FINISHING: SaidWords("finishing", "its work is done, its program has not ended yet"),
    JobPhase.COMPLETED: SaidWords("done in time", "its work was done by its deadline"),
    JobPhase.LATE: SaidWords("done late", "its work was done after its soft deadline"),
    JobPhase.MISSED: SaidWords("missed", "its work was not done by the time that counted"),
    JobPhase.FAILED: SaidWords("failed", "its program failed, and no retry is left"),
    JobPhase.CANCELLED: SaidWords("cancelled", "its owner withdrew it"),
    JobPhase.STOPPED_BY_LIMIT: SaidWords(
        "stopped by its limit", "its budget was used up, and its owner wanted it stopped then"
    ),
    JobPhase.MARKET_ENDED: SaidWords(
        "market ended", "no slot follows in this market: nothing more is decided"
    ),
}
_FLAGS: Mapping[Enum, SaidWords] = {
    JobFlag.AT_RISK: SaidWords("at risk", "it is less likely to be on time than it has to be"),
    JobFlag.STALLED: SaidWords("stalled", "it holds instances, and its program reports nothing"),
}
_WAITS: Mapping[Enum, SaidWords] = {
    WaitingFor.MARKET: SaidWords("the market", "no slot has opened yet"),
    WaitingFor.START: SaidWords("its start", "its owner does not want it to begin before then"),
    WaitingFor.SLOT: SaidWords("the next slot", "it is taken up then"),
    WaitingFor.PRICE: SaidWords("a better price", "its policy sees time enough to wait"),
    WaitingFor.CAPACITY: SaidWords("capacity", "nothing is left for it, or it was refused"),
    WaitingFor.INSTANCES: SaidWords(
        "its instances", "they are bought, and its program starts on them"
    ),
    WaitingFor.RETRY: SaidWords("its next try", "its program failed and is started again"),
    WaitingFor.LIMIT: SaidWords("a limit", "a budget, a cap or a quota allows no more"),
    WaitingFor.BUYING: SaidWords(
        "buying to go on", "somebody or something has stopped buying for it"
    ),
}
_REASONS: Mapping[Enum, SaidWords] = {
    DecisionReason.POLICY: SaidWords("policy", "its policy chose this"),
    DecisionReason.SAFETY_NET: SaidWords(
        "safety net", "the deadline left no more time to wait: the safety net chose this"
    ),
    DecisionReason.FORECAST_OVERDUE: SaidWords(
        "forecast overdue", "no forecast came in time: a rule that needs none chose this"
    ),
    DecisionReason.FORECAST_UNTRUSTED: SaidWords(
        "forecast not trusted", "the forecast is not trusted: a rule that needs none chose this"
    ),
    DecisionReason.ALLOCATOR_UNAVAILABLE: SaidWords(
        "allocator did not answer", "the selector decided by itself"
    ),
    DecisionReason.LAUNCH_REFUSED: SaidWords(
        "launch refused", "a launch was refused: the rest of the slot was decided again"
    ),
    DecisionReason.INTERRUPTED: SaidWords(
        "interrupted", "instances were taken back: the rest of the slot was decided again"
    ),
    DecisionReason.BUDGET: SaidWords("budget", "its budget allows no more"),
    DecisionReason.CLOSED: SaidWords("closed", "it is over and needs nothing more"),
    DecisionReason.AFTER_DEADLINE: SaidWords(
        "after the deadline",
        "its deadline is over: idle spot or on-demand does the rest, if that pays",
    ),
    DecisionReason.NO_CAPACITY: SaidWords(
        "no capacity",
        "too few instances are left for any count it runs on; hard deadlines come first",
    ),
    DecisionReason.RETRYING: SaidWords("retrying", "its program failed and waits for its next try"),
    DecisionReason.FINISHING: SaidWords(
        "finishing", "its work is done, and it keeps what it has until its program has ended"
    ),
}
_CUTS: Mapping[Enum, SaidWords] = {
    AlternativeCut.AVAILABILITY: SaidWords("not there", "there are not so many instances"),
    AlternativeCut.YIELDED: SaidWords("yielded", "it was worth more to another job"),
    AlternativeCut.LIMIT: SaidWords("limit", "a limit on money, or a stop of buying, forbids it"),
    AlternativeCut.QUOTA: SaidWords("quota", "the account may not hold so many"),
    AlternativeCut.TOPOLOGY: SaidWords("topology", "the job may not be spread like that"),
    AlternativeCut.SAFETY_NET: SaidWords("safety net", "with it the deadline could be missed"),
    AlternativeCut.COOL_DOWN: SaidWords(
        "cooling down", "a launch there was refused a short time ago"
    ),
    AlternativeCut.RULE: SaidWords("rule", "a rule that comes before any price forbids it"),
}
_REFUSALS: Mapping[Enum, SaidWords] = {
    RefusalClass.NO_CAPACITY: SaidWords(
        "no capacity", "the provider has no more there: the offering cools down"
    ),
    RefusalClass.QUOTA: SaidWords("quota", "the account may hold no more: raise its quota"),
    RefusalClass.UNSUPPORTED: SaidWords("not sold there", "the provider cannot do this there"),
    RefusalClass.UNAUTHORISED: SaidWords(
        "not allowed", "the account may not do this: a person has to look at its rights"
    ),
    RefusalClass.THROTTLED: SaidWords("throttled", "too many calls: it is asked again later"),
    RefusalClass.SERVER: SaidWords(
        "fault of the provider", "the provider failed: it is asked again"
    ),
    RefusalClass.NETWORK: SaidWords("network", "the provider could not be reached"),
    RefusalClass.TOKEN_MISMATCH: SaidWords(
        "token mismatch", "the token was used for another request, or its instances are gone"
    ),
    RefusalClass.UNKNOWN_OUTCOME: SaidWords(
        "outcome unknown", "nobody knows yet whether it was done: it is being looked up"
    ),
    RefusalClass.LIMIT: SaidWords(
        "limit of ours", "a limit of Spotline: it says nothing of the cloud"
    ),
}

WORDS: Mapping[Enum, SaidWords] = MappingProxyType(
    {**_PHASES, **_FLAGS, **_WAITS, **_REASONS, **_CUTS, **_REFUSALS}
)
"""What is said of every member of these enumerations."""


def said(member: Enum) -> SaidWords:
    """What a member is called and means.

    Raises
    ------
    KeyError
        It is of none of the enumerations above.
    """
    return WORDS[member]
