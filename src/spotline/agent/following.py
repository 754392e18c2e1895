"""What follows from what the control plane says and how things stand here: a pure rule."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from spotline.adapters.grpc.agent.messages import Order, OrderState


class Step(Enum):
    """What an agent does next.

    `DISOWN`: say that a generation has ended which never began here, for it is waited for.
    `FINISH`: nothing runs, and nothing will: the instance is not needed any more.
    """

    NOTHING = "nothing"
    START = "start"
    STOP = "stop"
    KILL = "kill"
    DISOWN = "disown"
    FINISH = "finish"


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceStanding:
    """How things stand on an instance.

    Parameters
    ----------
    running
        The generation whose program runs here, or is about to; 0: none.
    last
        The newest generation whose end was said; 0: none.
    leaving
        The instance ends by itself: its lease is over, or it is told to shut down.
    """

    running: int = 0
    last: int = 0
    leaving: bool = False


def next_step(order: Order | None, standing: InstanceStanding) -> Step:
    """Decide what to do; asked again after every change, until it is nothing."""
    if standing.leaving:
        return Step.STOP if standing.running else Step.FINISH
    if order is None:
        return Step.NOTHING
    match order.state:
        case OrderState.LEAVE:
            return Step.STOP if standing.running else Step.FINISH
        case OrderState.OVER:
            return Step.KILL if standing.running else Step.FINISH
    if standing.running and standing.running != order.generation:
        # No two generations run at a time; an older order than what runs is a late one.
        return Step.STOP if standing.running < order.generation else Step.NOTHING
    match order.state:
        case OrderState.RUN:
            idle = not standing.running and standing.last < order.generation
            return Step.START if idle else Step.NOTHING
        case OrderState.STOP | OrderState.ABORT:
            if standing.running:
                return Step.STOP if order.state is OrderState.STOP else Step.KILL
            unknown = standing.last < order.generation
            return Step.DISOWN if unknown and order.generation else Step.NOTHING
    return Step.STOP if standing.running else Step.NOTHING
