"""What has happened to a job, one line for people per event."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from spotline.application.unfit import NOT_BELIEVED
from spotline.domain.events.allocation import AllocationDecided
from spotline.domain.events.capacity import (
    CapacityLost,
    CostAccrued,
    InterruptionNoticed,
    InterruptionWithdrawn,
    LaunchRefused,
    OfferingProbed,
    ProbeCommanded,
    RefusalClass,
)
from spotline.domain.events.event import Event
from spotline.domain.events.freeze import BuyingExcepted
from spotline.domain.events.knowledge import ThroughputReestimated
from spotline.domain.events.lifecycle import (
    JobAdmitted,
    JobCancelled,
    JobClosed,
    JobExited,
    JobQuoted,
    JobRetryScheduled,
    JobSubmitted,
    JobUpdated,
)
from spotline.domain.events.limits import LimitAction, LimitReached
from spotline.domain.events.parking import EntryParked
from spotline.domain.events.training import (
    AgentJoined,
    CheckpointCommitted,
    CheckpointFailed,
    CheckpointFault,
    CheckpointKind,
    GenerationFormed,
    JobHeard,
    JobSilent,
    JobStalled,
    JobStallEnded,
    NoticeAcknowledged,
    NoticeAction,
    TrainingRestarted,
)
from spotline.domain.jobs.lot import Lot
from spotline.domain.jobs.outlook import JobOutlook
from spotline.domain.jobs.run import OnStall
from spotline.domain.market.offering import CapacityType
from spotline.domain.policies.answer import DecisionReason
from spotline.domain.units import NS_PER_S, usd_from_micro_usd, utc_iso

LONGEST_TEXT = 400

_KINDS = {
    CheckpointKind.PERIODIC: "checkpoint",
    CheckpointKind.PREEMPTION: "preemption checkpoint",
    CheckpointKind.FINAL: "result",
}
_FAULTS = {
    CheckpointFault.SKIPPED: "was skipped: it would not have been written in time",
    CheckpointFault.NOT_WRITTEN: "could not be written",
    CheckpointFault.INCOMPLETE: "was found unfinished",
    CheckpointFault.DAMAGED: "was found damaged",
}
_ACTIONS = {
    NoticeAction.FORWARDED: "was told to the program",
    NoticeAction.SAVED: "was used: a checkpoint was committed",
    NoticeAction.SKIPPED: "left no time for a checkpoint: none was tried",
    NoticeAction.NOT_SAVED: "was too short: the checkpoint was not finished",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class JobHappening:
    """Something that happened to a job, at `ts_event_ns` of market time, stored at `wall_ns`."""

    seq: int
    kind: str
    ts_event_ns: int
    text: str
    wall_ns: int = 0


def happening_text(event: Event) -> str | None:
    """What happened, in one line; None for what its owner need not know."""
    text = (
        _of_parking(event)
        or _of_life(event)
        or _of_money(event)
        or _of_instances(event)
        or _of_training(event)
    )
    if text is None:
        return None
    line = " ".join(text.split())
    return line if len(line) <= LONGEST_TEXT else f"{line[: LONGEST_TEXT - 3]}..."


def probe_text(event: ProbeCommanded | OfferingProbed) -> str:
    """Why an offering was asked for spot that is ended at once, or what came of it."""
    if isinstance(event, ProbeCommanded):
        gain = usd_from_micro_usd(event.gain_micro_usd)
        price = usd_from_micro_usd(event.price_micro_usd)
        return (
            f"asked {event.offering_id} for {event.instances} spot: knowing what is there may save "
            f"{gain:,.2f} USD, and costs at most {price:,.2f}"
        )
    cost = usd_from_micro_usd(event.cost_micro_usd)
    why = f" ({event.detail})" if event.detail else ""
    return (
        f"{event.offering_id} had {event.granted} of {event.requested} spot that were asked for"
        f"{why}, ended at once for {cost:,.2f} USD"
    )


def _of_parking(event: Event) -> str | None:
    if not isinstance(event, EntryParked):
        return None
    if event.error_type in NOT_BELIEVED:
        return f"{event.service} did not believe {event.kind} ({event.error}): nothing follows"
    return f"{event.service} could not take {event.kind} ({event.error}): nothing is bought for it"


def _of_life(event: Event) -> str | None:
    match event:
        case JobSubmitted():
            return f"submitted: {event.job.work.amount:g} {event.job.work.unit}"
        case JobUpdated():
            return "its owner changed deadline, value or budget"
        case JobCancelled():
            return "its owner withdrew it"
        case JobQuoted():
            return _quote(event.outlook)
        case JobAdmitted():
            return f"taken up with policy {event.policy_id} on {event.offering_id}"
        case ThroughputReestimated():
            return "its rates are believed to be others than before"
        case AllocationDecided():
            return _decision(event)
        case JobExited():
            if not event.exit_code:
                return f"the program is done{_of(event.generation)}"
            said = f": {event.detail}" if event.detail else ""
            return f"the program failed with exit code {event.exit_code}{said}"
        case JobRetryScheduled():
            return f"is started again, retry {event.retry}: {event.detail}"
        case JobClosed():
            return f"over: {event.outcome.value}, {event.cost_micro_usd / 1e6:,.2f} USD"
        case _:
            return None


_FOLLOWS = {
    LimitAction.STOP: "it is stopped",
    LimitAction.WIND_DOWN: "nothing more is bought for it, and it ends",
    LimitAction.FINISH: "it goes on: finishing is worth what it costs",
    LimitAction.WAIT: "it holds nothing until the limit is raised",
}


def _of_money(event: Event) -> str | None:
    match event:
        case LimitReached():
            until = f" at {utc_iso(event.until_ns)}" if event.until_ns else ""
            return f"{event.limit} reached: {_FOLLOWS[event.action]}{until} ({event.detail})"
        case BuyingExcepted():
            return (
                f"{event.instances} on-demand {event.offering_id} bought for its deadline against "
                f"{event.against}; {usd_from_micro_usd(event.quote_left_micro_usd):,.2f} USD of its "
                "quote were left"
            )
        case _:
            return None


def _of_instances(event: Event) -> str | None:
    match event:
        case InterruptionNoticed():
            which = ", ".join(event.instance_ids)
            return f"{which} will be taken back in {event.lead_s} s"
        case InterruptionWithdrawn():
            return f"{', '.join(event.instance_ids)} will not be taken back after all"
        case CapacityLost():
            return f"{', '.join(event.instance_ids)} gone without our asking"
        case LaunchRefused():
            return _refusal(event)
        case ProbeCommanded() | OfferingProbed():
            return probe_text(event)
        case CostAccrued() if not event.instances:
            copied = usd_from_micro_usd(event.cost_micro_usd)
            return f"its checkpoint was copied to {event.offering_id} for {copied:,.2f} USD"
        case AgentJoined():
            return f"agent of {event.instance_id} joined"
        case JobSilent():
            return f"agent of {event.instance_id} is silent"
        case JobHeard():
            return f"agent of {event.instance_id} is heard of again"
        case _:
            return None


def _of_training(event: Event) -> str | None:
    match event:
        case GenerationFormed():
            return (
                f"generation {event.generation} starts on {', '.join(event.instance_ids)}: "
                f"{event.detail}"
            )
        case TrainingRestarted():
            start = f"from {event.resumed_done:g}" if event.resumed_sha256 else "from the beginning"
            return (
                f"generation {event.generation} makes progress after {event.restart_s} s, {start}"
            )
        case CheckpointCommitted():
            return (
                f"{_KINDS[event.kind]} of step {event.step} holds {event.done:g}, saved in "
                f"{event.save_s} s: {event.uri}"
            )
        case CheckpointFailed():
            said = f" ({event.detail})" if event.detail else ""
            return f"checkpoint of step {event.step} {_FAULTS[event.fault]}{said}"
        case JobStalled():
            quiet_s = (event.ts_event_ns - event.since_ns) // NS_PER_S
            follows = "; it is started again" if event.on_stall is OnStall.RESTART else ""
            return f"stalled: its program has reported nothing for {quiet_s} s{follows}"
        case JobStallEnded():
            return "its program reports again"
        case NoticeAcknowledged():
            return f"the notice to {event.instance_id} {_ACTIONS[event.action]}"
        case _:
            return None


def _decision(event: AllocationDecided) -> str:
    held = _lots(event.lots)
    if event.move is not None:
        moved = f"moves from {event.move.from_offering_id}: is to hold {held}"
        return f"{moved}: {event.explanation}"
    if event.reason is DecisionReason.BUDGET:
        return f"is to hold {held}, as its budget allows no more: {event.explanation}"
    return f"is to hold {held}: {event.explanation}"


_REFUSALS = {
    RefusalClass.NO_CAPACITY: "none is there",
    RefusalClass.QUOTA: "the quota is used up",
    RefusalClass.UNSUPPORTED: "it is not sold there",
    RefusalClass.UNAUTHORISED: "the account may not",
    RefusalClass.THROTTLED: "too many requests",
    RefusalClass.SERVER: "the provider has trouble",
    RefusalClass.NETWORK: "the provider could not be reached",
    RefusalClass.TOKEN_MISMATCH: "the request was another one before",
    RefusalClass.UNKNOWN_OUTCOME: "it is not known what came of it",
    RefusalClass.LIMIT: "a limit of ours",
}


def _refusal(event: LaunchRefused) -> str:
    kind = "spot" if event.capacity_type is CapacityType.SPOT else "on-demand"
    got = f"{event.granted} of {event.requested}" if event.granted else f"none of {event.requested}"
    why = "" if event.refusal_class is None else f": {_REFUSALS[event.refusal_class]}"
    said = f" ({event.detail})" if event.detail else ""
    again = f"; asked again in {event.retry_after_s} s" if event.retry_after_s else ""
    return f"got {got} {kind} {event.offering_id}{why}{said}{again}"


def _quote(outlook: JobOutlook) -> str:
    low, middle, high = (
        f"{usd_from_micro_usd(cost):,.2f}"
        for cost in (
            outlook.cost_p10_micro_usd,
            outlook.cost_p50_micro_usd,
            outlook.cost_p90_micro_usd,
        )
    )
    on_time = outlook.on_time_probability_ppm / 10_000
    finish_ns = outlook.finish_p50_ns
    done = f"done {utc_iso(finish_ns)}" if finish_ns else "not done"
    return (
        f"quoted: {middle} USD ({low} to {high} in 8 of 10 futures), {done} in the middle one, "
        f"on time in {on_time:.0f} % of {outlook.futures}"
    )


def _of(generation: int) -> str:
    return f", generation {generation}" if generation else ""


def _lots(lots: Sequence[Lot]) -> str:
    held = [
        f"{count} {kind} {lot.offering_id}"
        for lot in lots
        for count, kind in ((lot.spot, "spot"), (lot.on_demand, "on-demand"))
        if count
    ]
    return " + ".join(held) or "nothing"
