"""What a family of faults can do to a run."""

from __future__ import annotations

import random
from collections import Counter
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, ClassVar

from spotline.adapters.clouds.simulated.cloud import SimulatedCloud
from spotline.application.cloud_actuator.ports import CloudProvider
from spotline.application.market_ingest.handler import IngestOptions
from spotline.bench.faults.oracles import ALWAYS, Oracle
from spotline.bench.faults.points import Lifeline
from spotline.bench.faults.scenario import Scenario
from spotline.domain.market.market import Market

if TYPE_CHECKING:
    from spotline.bench.faults.world import FaultWorld


class FaultFamily:
    """One run's faults, drawn from `rng`. This one has none: it is the undisturbed run.

    Parameters
    ----------
    calm_points
        How often the undisturbed run of this scenario reached each fail point.

    Attributes
    ----------
    faults
        How many have changed a state so far.
    same_ledger
        Whether the ledger must be that of the undisturbed run, to the micro-dollar.
    most_spend_percent
        What may be spent at most, of what the undisturbed run spends; 0: any amount.
    oracles
        What must hold beside what always must.
    always
        What must hold after every run of this kind.
    keeps_deadlines
        Whether hard deadlines that are worth it must be met as in the undisturbed run.
    scenario
        The world as this family runs it: limits and a cloud of its own may be in it.
    """

    name: ClassVar[str] = "calm"
    same_ledger: bool = True
    most_spend_percent: ClassVar[int] = 0
    oracles: ClassVar[tuple[Oracle, ...]] = ()
    always: tuple[Oracle, ...] = ALWAYS
    keeps_deadlines: ClassVar[bool] = False

    def __init__(
        self, scenario: Scenario, rng: random.Random, calm_points: Counter[str] | None = None
    ) -> None:
        self.scenario = scenario
        self.rng = rng
        self.calm_points = calm_points or Counter()
        self.faults = 0
        self.notes: dict[str, object] = {}

    def hit(self) -> None:
        """Count a fault that has changed a state."""
        self.faults += 1

    def delay_s(self) -> float:
        """How long a trip to broker, ledger or cloud takes."""
        return 0.0

    def ingest(self) -> IngestOptions:
        """How market_ingest opens slots."""
        return IngestOptions()

    def market(self, market: Market) -> Market:
        """The market as market_ingest gets it."""
        return market

    def cloud(self, cloud: SimulatedCloud) -> CloudProvider:
        """The cloud as the actuator sees it."""
        return cloud

    def in_force(self) -> AbstractContextManager[object]:
        """What stands in for the product's own while it runs, and while its log is replayed."""
        return nullcontext()

    def reach(self, line: Lifeline, point: str) -> None:
        """A service comes by a fail point; it may be killed there."""

    async def before_slot(self, world: FaultWorld, slot: int) -> None:
        """The market waits for this before it opens a slot."""

    async def disturb(self, world: FaultWorld) -> None:
        """Run beside the services, and be cancelled when the run is over."""


class Hasty(FaultFamily):
    """A family whose trips take times that are drawn, so that tasks meet in other orders."""

    def delay_s(self) -> float:
        """Up to 20 ms."""
        return self.rng.random() * 0.02
